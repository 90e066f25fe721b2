"""Persistent SQLite files (journal, records, labels): creation, checks and replacement.

A file is created under another name and renamed, so an empty or incomplete file is damaged, not
new. Opening a file for writing first checks all of it: pages, tables, the checksum of each row and
the write-ahead log. A damaged file is moved to another name and replaced by a new one.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import shutil
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from migrator.core.errors import InputError, NotWrittenError
from migrator.io.files import replace_file
from migrator.io.processes import hold_lock
from migrator.io.write_ahead_log import BrokenLogError, is_lost, last_commit

WAIT_S = 10.0
"""Timeout in seconds for the lock of another writing process."""
AGAIN_S = 10.0
"""Minimum seconds before a file that could not be written is opened again."""
_WAL_BYTES = 16 * 2**20
"""Maximum size in bytes of the write-ahead log after its content is in the file."""
_NOT_NOW = {
    getattr(sqlite3, f"SQLITE_{name}")
    for name in [
        "ABORT",
        "AUTH",
        "BUSY",
        "CANTOPEN",
        "FULL",
        "INTERRUPT",
        "IOERR",
        "LOCKED",
        "NOLFS",
        "NOMEM",
        "PERM",
        "PROTOCOL",
        "READONLY",
    ]
}
"""Error codes that say nothing about the content: the file is temporarily unusable."""

Synchronous = Literal["FULL", "NORMAL", "OFF"]
"""Commits survive with FULL a power failure, with NORMAL a killed process; OFF is for tests."""


@dataclass(frozen=True)
class Layout:
    """Kind of a file: description of its content, application id, version and tables."""

    holds: str
    application_id: int
    version: int
    """Version of the tables. A version that does not match the tables is damage."""
    statements: tuple[str, ...]
    upgrades: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Statements that upgrade an older version to the next one, by the older version.

    Writers run them; readers read the older version as it is. The last upgrade must leave exactly
    the tables that `statements` create (`rebuilt`).
    """


def table(name: str, columns: Sequence[str], *constraints: str) -> str:
    """The statement that creates a table whose rows have a checksum of their values.

    SQLite computes the checksum whenever a row is written. SQLite itself has none for its pages.
    """
    names = ", ".join(each.split()[0] for each in columns)
    checksum = f"checksum INTEGER GENERATED ALWAYS AS (row_checksum({names})) STORED"
    return f"CREATE TABLE {name} ({', '.join((*columns, checksum, *constraints))})"


def rebuilt(
    name: str, columns: Sequence[str], *constraints: str, added: Sequence[str] = ()
) -> tuple[str, ...]:
    """The statements that recreate a table with its rows, for upgrades. Its indexes are lost.

    `added`: columns that the older table lacks; they are null in its rows.
    """
    names = ", ".join(each.split()[0] for each in columns if each not in added)
    return (
        f"ALTER TABLE {name} RENAME TO old_{name}",
        table(name, columns, *constraints),
        f"INSERT INTO {name} ({names}) SELECT {names} FROM old_{name} ORDER BY rowid",
        f"DROP TABLE old_{name}",
    )


class DamagedError(Exception):
    """The file is not of this layout, or is incomplete."""

    aside = "damaged"


class OlderError(DamagedError):
    """A file of an older version that cannot be upgraded."""

    aside = "older"


class _LostTailError(DamagedError):
    """The end of the write-ahead log is unreadable, everything before it is readable."""


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
    return code is None or code & 0xFF not in _NOT_NOW


def open_database(
    path: Path, layout: Layout, synchronous: Synchronous
) -> tuple[sqlite3.Connection, Path | None]:
    """A connection for writing, and the path to which a damaged file was moved.

    Raises InputError, or NotWrittenError if the disk is full. Opening an intact file also needs
    space.
    """
    with explain_errors(path, layout):
        path.parent.mkdir(parents=True, exist_ok=True)
        return open_or_replace(path, layout, synchronous)


def open_or_replace(
    path: Path, layout: Layout, synchronous: Synchronous
) -> tuple[sqlite3.Connection, Path | None]:
    """Like `open_database`, with the errors unchanged."""
    try:
        return _usable(path, layout, synchronous), None
    except (FileNotFoundError, DamagedError):
        with hold_lock(path.parent):
            aside = _replaced(path, layout, synchronous)
        return _usable(path, layout, synchronous), aside


def open_as_is(path: Path, layout: Layout) -> sqlite3.Connection:
    """A connection to the existing content, for the owner while the disk is full.

    Empty if there is no file. Needs no space; without any space it does not see the write-ahead
    log.
    """
    with explain_errors(path, layout):
        if not path.exists():
            return empty(layout.statements)
        connection = _connected(path, "mode=ro")
        try:
            _check_kind(path, layout, connection)
        except sqlite3.Error:  # no space to read the write-ahead log
            connection.close()
            connection = _connected(path, "mode=ro&immutable=1")
        return connection


def open_checked(path: Path, layout: Layout) -> sqlite3.Connection:
    """A read-only connection to a file that was completely checked.

    Raises FileNotFoundError, DamagedError, InputError (a newer file), sqlite3.Error or OSError.
    """
    _check_header(path)
    try:
        last = last_commit(path)
    except BrokenLogError as error:
        raise DamagedError(str(error)) from error
    # Without a log no process is writing, and SQLite does not need to create its own files beside
    # it.
    log = path.with_name(f"{path.name}-wal")
    with _noticing_damage():
        connection = _connected(path, "mode=ro" if log.exists() else "mode=ro&immutable=1")
        try:
            if _check_kind(path, layout, connection):
                _check_rows(layout, connection)
            if _pragma(connection, "integrity_check") != "ok":
                raise DamagedError("pages are missing or broken")
            if last is not None and is_lost(path, last):
                raise _LostTailError("the last transactions in its write-ahead log are broken")
        except BaseException:
            connection.close()
            raise
    return connection


def empty(statements: tuple[str, ...]) -> sqlite3.Connection:
    """A connection to a database in memory with these tables."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _allow_checksums(connection)
    for statement in statements:
        connection.execute(statement)
    return connection


@contextlib.contextmanager
def reading(path: Path, layout: Layout) -> Iterator[sqlite3.Connection]:
    """A connection to a snapshot of the file, even while another process writes to it."""
    with joining(path, layout, "ro") as connection:
        connection.execute("BEGIN")
        yield connection


@contextlib.contextmanager
def joining(
    path: Path, layout: Layout, mode: Literal["ro", "rw"] = "rw"
) -> Iterator[sqlite3.Connection]:
    """A connection besides the owner's. Only the owner may create the file or move it aside."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file; name the folder of a run")
    with (
        explain_errors(path, layout),
        contextlib.closing(_connected(path, f"mode={mode}")) as connection,
    ):
        _check_kind(path, layout, connection)
        yield connection


@contextlib.contextmanager
def explain_errors(path: Path, layout: Layout) -> Iterator[None]:
    """Raise faults of the file as an error of one sentence."""
    try:
        yield
    except (DamagedError, sqlite3.Error, UnicodeDecodeError, OSError) as error:
        if isinstance(error, _ForeignError):
            raise InputError(
                f"{path}: this is no file of {layout.holds} ({error}); name that of a run"
            ) from error
        what, then = "cannot be used", "make room or rights there"
        if is_damage(error):
            none = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB
            what = "is damaged or none" if none else "is damaged"
            then = "start the daemon again, which keeps it aside"
        kind = NotWrittenError if _is_full(error) else InputError
        raise kind(
            f"{path}: the file of {layout.holds} {what} ({error}); {then}, or name another folder"
        ) from error


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit all statements of the block, or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk has already ended the transaction.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _replaced(path: Path, layout: Layout, synchronous: Synchronous) -> Path | None:
    """Create a new file, unless another process just did; the path of the damaged one."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = None
    try:
        _usable(path, layout, synchronous).close()
        return None
    except FileNotFoundError:
        _move_beside(path, path.with_name(f"{path.name}.lost-{stamp}"))
    except DamagedError as error:
        aside = path.with_name(f"{path.name}.{error.aside}-{stamp}")
        if isinstance(error, _LostTailError) and _recovered(path, aside, layout, synchronous):
            return aside
        path.rename(aside)
        _move_beside(path, aside)
    _make(path, layout)
    return aside


def _recovered(path: Path, copy: Path, layout: Layout, synchronous: Synchronous) -> bool:
    """Recover the file up to the broken end of its log; return whether it is intact then.

    Only the copy keeps the broken end. A process that is killed during a commit can also leave one.
    """
    for suffix in ("", "-wal"):
        shutil.copy2(f"{path}{suffix}", f"{copy}{suffix}")
    try:
        with contextlib.closing(_connected(path, "mode=rw")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        _usable(path, layout, synchronous).close()
    except (DamagedError, sqlite3.Error):
        return False
    return True


def _move_beside(path: Path, aside: Path) -> None:
    """Move the write-ahead log with its file, because it would be replayed into the next one."""
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))


def _make(path: Path, layout: Layout) -> None:
    with replace_file(path) as draft:
        draft.unlink(missing_ok=True)
        connection = _connected(draft, "mode=rwc")
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            with transaction(connection):
                connection.execute(f"PRAGMA application_id={layout.application_id}")
                connection.execute(f"PRAGMA user_version={layout.version}")
                for statement in layout.statements:
                    connection.execute(statement)
        finally:
            connection.close()
            for suffix in ("-wal", "-shm"):
                draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def _usable(path: Path, layout: Layout, synchronous: Synchronous) -> sqlite3.Connection:
    """A connection for writing, to a checked file of this version."""
    # Read-only first, because closing a writer would remove the log of a damaged file.
    open_checked(path, layout).close()
    with _noticing_damage():
        connection = _connected(path, "mode=rw")
        try:
            if _pragma(connection, "journal_mode=WAL") != "wal":
                raise OSError("its folder does not allow a write-ahead log")
            _upgrade(path, layout, connection)
            connection.execute(f"PRAGMA synchronous={synchronous}")
            connection.execute(f"PRAGMA journal_size_limit={_WAL_BYTES}")
        except BaseException:
            connection.close()
            raise
    return connection


@contextlib.contextmanager
def _noticing_damage() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if is_damage(error):
            raise DamagedError(str(error)) from error
        raise


def _connected(path: Path, how: str) -> sqlite3.Connection:
    """`how` contains SQLite's URI parameters. Only `_make` allows SQLite to create a file."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}",
        uri=True,
        timeout=WAIT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    _allow_checksums(connection)
    return connection


def _allow_checksums(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA trusted_schema=ON")
    connection.create_function("row_checksum", -1, _row_checksum, deterministic=True)


def _row_checksum(*values: object) -> int:
    """Checksum of a row; an integer has the same one if SQLite stores it as a float."""
    found = 0
    for each in values:
        value = int(each) if isinstance(each, float) and each.is_integer() else each
        content = value if isinstance(value, bytes) else repr(value).encode()
        found = zlib.crc32(content, zlib.crc32(b"%d:" % len(content), found))
    return found


@dataclass(frozen=True)
class _Tables:
    """The tables that `Layout.statements` create."""

    schema: frozenset[tuple[str, str, str, str | None]]
    checksummed: Mapping[str, Sequence[str]]
    """Table -> the columns that its checksum covers."""


@functools.cache
def _tables(statements: tuple[str, ...]) -> _Tables:
    with contextlib.closing(empty(statements)) as connection:
        schema = _schema(connection)
        names = [name for kind, name, *_, sql in schema if kind == "table" and "row_" in str(sql)]
        columns = {each: connection.execute(f"PRAGMA table_info({each})") for each in names}
        return _Tables(schema, {each: [row[1] for row in columns[each]] for each in names})


def _schema(connection: sqlite3.Connection) -> frozenset[tuple[str, str, str, str | None]]:
    return frozenset(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))


def _check_header(path: Path) -> None:
    """Raise DamagedError for a header that SQLite would take for that of a read-only file."""
    with path.open("rb") as file:
        header = file.read(20)
    if len(header) < 20:
        raise DamagedError("it is empty" if not header else "it is cut off")
    if not set(header[18:20]) <= {1, 2}:
        raise DamagedError("its header is broken")


def _check_kind(path: Path, layout: Layout, connection: sqlite3.Connection) -> bool:
    """Whether it has this version and its tables; False for an older one to upgrade."""
    if _pragma(connection, "application_id") != layout.application_id:
        raise _ForeignError("it is a database of something else")
    version = _pragma(connection, "user_version")
    assert isinstance(version, int)
    if _schema(connection) == _tables(layout.statements).schema:
        if version != layout.version:
            raise DamagedError("its version is not that of its tables")
        return True
    if version > layout.version:
        raise InputError(
            f"{path}: this file of {layout.holds} has version {version} and this MIGRator knows "
            f"{layout.version}; use the newer MIGRator that wrote it, or name another folder"
        )
    if 0 < version < layout.version and version not in layout.upgrades:
        raise OlderError(f"it has version {version}")
    if version not in layout.upgrades:
        raise DamagedError("tables are missing or others")
    return False


def _check_rows(layout: Layout, connection: sqlite3.Connection) -> None:
    for name, columns in _tables(layout.statements).checksummed.items():
        wrong = f"checksum IS NOT row_checksum({', '.join(columns)})"
        if connection.execute(f"SELECT 1 FROM {name} WHERE {wrong} LIMIT 1").fetchone():
            raise DamagedError(f"a row of {name} is not as it was written")


def _upgrade(path: Path, layout: Layout, connection: sqlite3.Connection) -> None:
    """Upgrade an older version to this one, completely or not at all."""
    if _pragma(connection, "user_version") == layout.version:
        return
    with transaction(connection):
        version = _pragma(connection, "user_version")
        while isinstance(version, int) and version < layout.version:
            for statement in layout.upgrades[version]:
                connection.execute(statement)
            version += 1
            connection.execute(f"PRAGMA user_version={version}")
        if not _check_kind(path, layout, connection):
            raise DamagedError("its tables are not those of its version")


def _is_full(error: BaseException) -> bool:
    """Whether the disk is full, which SQLite also reports as an I/O error."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _pragma(connection: sqlite3.Connection, name: str) -> object:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return value
