"""Persistent SQLite files (journal, records, labels): creation, checks and replacement.

A file is created under another name and renamed, so an empty or incomplete file is damaged, not
new. Opening a file for writing first checks all of its pages and its tables. A damaged file is
moved to another name and replaced by a new one.

SQLite goes on writing to a file that was moved or deleted. Every commit therefore checks that the
open file is still the one at its path.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from migrator.core.errors import InputError, NotWrittenError
from migrator.io.atomic_write import replace_file
from migrator.io.locks import hold_lock

WAIT_S = 10.0
"""Timeout in seconds for the lock of another writing process."""
AGAIN_S = 10.0
"""Minimum seconds before a file that could not be written is opened again."""
_WAL_BYTES = 16 * 2**20
"""Maximum size in bytes of the write-ahead log after its content is in the file."""
_SUFFIXES = ("", "-wal", "-shm")
"""Of the files that make up a database."""
_TEMPORARY = {
    *(sqlite3.SQLITE_ABORT, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN),
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_LOCKED),
    *(sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM, sqlite3.SQLITE_PROTOCOL),
    sqlite3.SQLITE_READONLY,
}
"""Error codes that say nothing about the content: the file is temporarily unusable."""

Synchronous = Literal["FULL", "NORMAL", "OFF"]
"""Commits survive with FULL a power failure, with NORMAL a killed process; OFF is for tests."""


@dataclass(frozen=True)
class Schema:
    """Kind of a file: description of its content, application id, version and tables."""

    holds: str
    application_id: int
    version: int
    statements: tuple[str, ...]
    check: Literal["integrity_check", "quick_check"] = "integrity_check"
    """How a file is checked before it is used. The quick one does not compare indexes with tables,
    which takes 5 times as long in a file of a million small rows (10 s instead of 2 s)."""


class DamagedError(Exception):
    """The file is not of this schema, or is incomplete."""


class MovedError(OSError):
    """The open file, or its write-ahead log, is no longer at its path."""


class FileMovedError(NotWrittenError):
    """Nothing is written until the file is back at its path, or the process is restarted."""


class _ForeignError(DamagedError):
    """A file of another program, without visible damage."""


def is_damage(error: BaseException) -> bool:
    """Whether the cause is the file's content, not permissions, space, locks or the device."""
    if isinstance(error, DamagedError | UnicodeDecodeError):
        return True
    if not isinstance(error, sqlite3.DatabaseError) or isinstance(error, sqlite3.ProgrammingError):
        return False
    # Text that is not UTF-8 raises an OperationalError of the binding without a code.
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & 0xFF not in _TEMPORARY


def open_database(
    path: Path, schema: Schema, synchronous: Synchronous
) -> tuple[sqlite3.Connection, Path | None]:
    """A connection for writing, and the path to which a damaged file was moved.

    Raises InputError, or NotWrittenError if the disk is full. Opening an intact file also needs
    space.
    """
    with explain_errors(path, schema):
        path.parent.mkdir(parents=True, exist_ok=True)
        return open_or_replace(path, schema, synchronous)


def open_or_replace(
    path: Path, schema: Schema, synchronous: Synchronous
) -> tuple[sqlite3.Connection, Path | None]:
    """Like `open_database`, with the errors unchanged."""
    try:
        return _usable(path, schema, synchronous), None
    except (FileNotFoundError, DamagedError):
        with hold_lock(path.parent):
            aside = _replaced(path, schema, synchronous)
        return _usable(path, schema, synchronous), aside


def open_as_is(path: Path, schema: Schema) -> sqlite3.Connection:
    """A connection to the existing content, for the owner while the disk is full.

    Empty if there is no file. Needs no space; without any space it does not see the write-ahead
    log.
    """
    with explain_errors(path, schema):
        if not path.exists():
            return empty(schema.statements)
        connection = _connected(path, "mode=ro")
        try:
            _check_kind(path, schema, connection)
        except sqlite3.Error:  # no space to read the write-ahead log
            connection.close()
            connection = _connected(path, "mode=ro&immutable=1")
        return connection


def open_checked(path: Path, schema: Schema) -> sqlite3.Connection:
    """A read-only connection to a file that was completely checked.

    Raises FileNotFoundError, DamagedError, InputError (a newer file), sqlite3.Error or OSError.
    """
    path.stat()  # SQLite does not say that a file is missing
    # Without a log no process is writing, and SQLite does not need to create its own files beside
    # it.
    log = path.with_name(f"{path.name}-wal")
    with _damage_as_error():
        try:
            connection = _connected(path, "mode=ro" if log.exists() else "mode=ro&immutable=1")
        except sqlite3.OperationalError:
            if log.exists():
                raise
            connection = _connected(path, "mode=ro&immutable=1")  # its last writer has just ended
        try:
            _check_kind(path, schema, connection)
            if _pragma(connection, schema.check) != "ok":
                raise DamagedError("pages are missing or broken")
        except BaseException:
            connection.close()
            raise
    return connection


def empty(statements: tuple[str, ...]) -> sqlite3.Connection:
    """A connection to a database in memory with these tables."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    for statement in statements:
        connection.execute(statement)
    return connection


@contextlib.contextmanager
def reading(path: Path, schema: Schema) -> Iterator[sqlite3.Connection]:
    """A connection to a snapshot of the file, even while another process writes to it."""
    with joining(path, schema, "ro") as connection:
        connection.execute("BEGIN")
        yield connection


@contextlib.contextmanager
def joining(
    path: Path, schema: Schema, mode: Literal["ro", "rw"] = "rw"
) -> Iterator[sqlite3.Connection]:
    """A connection besides the owner's. Only the owner may create the file or move it aside."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file; name the folder of a run")
    with (
        explain_errors(path, schema),
        contextlib.closing(_connected(path, f"mode={mode}")) as connection,
    ):
        _check_kind(path, schema, connection)
        yield connection


@contextlib.contextmanager
def explain_errors(path: Path, schema: Schema) -> Iterator[None]:
    """Raise faults of the file as an error of one sentence."""
    try:
        yield
    except MovedError as error:
        raise FileMovedError(
            f"{path}: the file of {schema.holds} was moved or deleted while it was in use "
            f"({error}), and nothing is written until it is back; put it back, or restart the "
            "daemon to begin a new file"
        ) from error
    except (DamagedError, sqlite3.Error, UnicodeDecodeError, OSError) as error:
        if isinstance(error, _ForeignError):
            raise InputError(
                f"{path}: this is not a file of {schema.holds} ({error}); name that of a run"
            ) from error
        what, then = "cannot be used", "make room or rights there"
        if is_damage(error):
            unknown = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB
            what = "is damaged or is not a MIGRator database" if unknown else "is damaged"
            then = "start the daemon again, which moves it aside"
        kind = NotWrittenError if _is_full(error) else InputError
        raise kind(
            f"{path}: the file of {schema.holds} {what} ({error}); {then}, or name another folder"
        ) from error


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit all statements of the block, or none.

    Raises MovedError and commits nothing if the file is no longer at its path.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        require_in_place(connection)
        connection.execute("COMMIT")
    except BaseException:
        # A full disk has already ended the transaction.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def require_in_place(connection: sqlite3.Connection) -> None:
    """Raise MovedError if what this process writes does not reach the file at its path."""
    if isinstance(connection, _Writer):
        connection.require_in_place()


def describe_moved(connection: sqlite3.Connection, path: Path, schema: Schema) -> str:
    """Why nothing can be written, in one sentence; "" if the file is at its path."""
    try:
        with explain_errors(path, schema):
            require_in_place(connection)
    except InputError as error:
        return str(error)
    return ""


class _Writer(sqlite3.Connection):
    """A connection for writing that knows which files it has opened."""

    _opened: Mapping[Path, tuple[int, int]] = {}

    def note_files(self, path: Path) -> None:
        paths = [path.absolute().with_name(f"{path.name}{suffix}") for suffix in _SUFFIXES]
        self._opened = {path: _identity(path) for path in paths}

    def require_in_place(self) -> None:
        for path, opened in self._opened.items():
            try:
                present = _identity(path)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise MovedError(f"there is no {path.name}") from error
            if present != opened:
                raise MovedError(f"another {path.name} has taken its place")


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _replaced(path: Path, schema: Schema, synchronous: Synchronous) -> Path | None:
    """Create a new file, unless another process just did; the path of the damaged one."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = None
    try:
        _usable(path, schema, synchronous).close()
        return None
    except FileNotFoundError:
        _move_beside(path, path.with_name(f"{path.name}.lost-{stamp}"))
    except DamagedError:
        aside = path.with_name(f"{path.name}.damaged-{stamp}")
        path.rename(aside)
        _move_beside(path, aside)
    _make(path, schema)
    return aside


def _move_beside(path: Path, aside: Path) -> None:
    """Move the write-ahead log with its file, because it would be replayed into the next one."""
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))


def _make(path: Path, schema: Schema) -> None:
    with replace_file(path) as draft:
        draft.unlink(missing_ok=True)
        connection = _connected(draft, "mode=rwc")
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            with transaction(connection):
                connection.execute(f"PRAGMA application_id={schema.application_id}")
                connection.execute(f"PRAGMA user_version={schema.version}")
                for statement in schema.statements:
                    connection.execute(statement)
        finally:
            connection.close()
            for suffix in ("-wal", "-shm"):
                draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def _usable(path: Path, schema: Schema, synchronous: Synchronous) -> sqlite3.Connection:
    """A connection for writing, to a checked file of this version."""
    # Read-only first, because closing a writer would remove the log of a damaged file.
    open_checked(path, schema).close()
    with _damage_as_error():
        connection = _connected(path, "mode=rw")
        try:
            if _pragma(connection, "journal_mode=WAL") != "wal":
                raise OSError("its folder does not allow a write-ahead log")
            connection.execute(f"PRAGMA synchronous={synchronous}")
            connection.execute(f"PRAGMA journal_size_limit={_WAL_BYTES}")
            connection.note_files(path)
        except BaseException:
            connection.close()
            raise
    return connection


@contextlib.contextmanager
def _damage_as_error() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if is_damage(error):
            raise DamagedError(str(error)) from error
        raise


def _connected(path: Path, how: str) -> _Writer:
    """`how` contains SQLite's URI parameters. Only `_make` allows SQLite to create a file."""
    # SQLite would wait for a writer of a FIFO, and calls a folder an error of the disk.
    if path.exists() and not path.is_file():
        raise OSError("it is not a regular file")
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}",
        uri=True,
        timeout=WAIT_S,
        isolation_level=None,
        check_same_thread=False,
        factory=_Writer,
    )


@functools.cache
def _tables(statements: tuple[str, ...]) -> frozenset[tuple[str, str, str, str | None]]:
    with contextlib.closing(empty(statements)) as connection:
        return _tables_in(connection)


def _tables_in(connection: sqlite3.Connection) -> frozenset[tuple[str, str, str, str | None]]:
    return frozenset(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))


def _check_kind(path: Path, schema: Schema, connection: sqlite3.Connection) -> None:
    """Raise DamagedError for other tables, and InputError for another version."""
    tables = _tables_in(connection)
    if not tables:
        raise DamagedError("it is empty")
    if _pragma(connection, "application_id") != schema.application_id:
        raise _ForeignError("it is a database of something else")
    version = _pragma(connection, "user_version")
    if version != schema.version:
        raise InputError(
            f"{path}: this file of {schema.holds} has version {version} and this MIGRator reads "
            f"version {schema.version}; use the MIGRator that wrote it, or name another folder"
        )
    if tables != _tables(schema.statements):
        raise DamagedError("tables are missing or others")


def _is_full(error: BaseException) -> bool:
    """Whether the disk is full, which SQLite also reports as an I/O error."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _pragma(connection: sqlite3.Connection, name: str) -> object:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return value
