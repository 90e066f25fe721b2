"""The SQLite files of a live run (records, labels): made whole, opened, kept aside when damaged.

A file is made under another name and renamed, so that an empty or half one is never a young one
but a damaged one. Writers keep a damaged file aside and begin anew; readers say that it is damaged.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from migrator.core.errors import InputError, NotWrittenError

WAIT_S = 10.0
"""For another process that writes."""
_WAL_BYTES = 16 * 2**20
"""What the write-ahead log may keep once its content is in the file."""

Synchronous = Literal["FULL", "NORMAL"]
"""FULL: what is committed survives a power cut; NORMAL: a killed process only."""


@dataclass(frozen=True)
class Layout:
    """Which file it is: what it holds in words, its mark, its version, how its tables are made."""

    holds: str
    application_id: int
    version: int
    statements: tuple[str, ...]
    upgrades: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """By an older version: what makes it the next one. Writers do it, readers read it as it is."""


class _DamagedError(Exception):
    """No file of this layout, or not all of it is there."""


class _ForeignError(_DamagedError):
    """A file of something else, whole as far as one can tell."""


def opened(
    path: Path, layout: Layout, synchronous: Synchronous
) -> tuple[sqlite3.Connection, Path | None]:
    """A connection to write with, and where a damaged file was kept aside; InputError.

    NotWrittenError where the disk is full, which opening a whole file needs room on, too.
    """
    with told(path, layout):
        path.parent.mkdir(parents=True, exist_ok=True)
        damaged = None
        try:
            connection = _checked(path, layout)
        except FileNotFoundError:
            connection = _made(path, layout)
        except _DamagedError:
            damaged = _kept_aside(path)
            connection = _made(path, layout)
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute(f"PRAGMA journal_size_limit={_WAL_BYTES}")
        return connection, damaged


def opened_as_is(path: Path, layout: Layout) -> sqlite3.Connection:
    """What the file holds, for its owner while the disk is full; without a file, nothing.

    It needs no room, sees no changes and can be closed for a connection that writes.
    """
    with told(path, layout):
        if path.exists():
            return _connected(path, "ro", "&immutable=1")
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        for statement in layout.statements:
            connection.execute(statement)
        return connection


@contextlib.contextmanager
def reading(path: Path, layout: Layout) -> Iterator[sqlite3.Connection]:
    """A connection that sees one moment of the file, also while another process writes it."""
    with joining(path, layout, "ro") as connection:
        connection.execute("BEGIN")
        yield connection


@contextlib.contextmanager
def joining(
    path: Path, layout: Layout, mode: Literal["ro", "rw"] = "rw"
) -> Iterator[sqlite3.Connection]:
    """A connection beside that of the file's owner, who alone may make it or keep it aside."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file; name the folder of a run")
    with told(path, layout), contextlib.closing(_connected(path, mode)) as connection:
        _check_kind(path, layout, connection)
        yield connection


@contextlib.contextmanager
def told(path: Path, layout: Layout) -> Iterator[None]:
    """Faults of the file as one sentence."""
    try:
        yield
    except (_DamagedError, sqlite3.Error, OSError) as error:
        if isinstance(error, _ForeignError):
            raise InputError(
                f"{path}: this is no file of {layout.holds} ({error}); name that of a run"
            ) from error
        if _is_no_database(error):
            what, then = "is damaged or none", "start the daemon again, which keeps it aside"
        elif _is_damage(error):
            what, then = "is damaged", "start the daemon again, which keeps it aside"
        else:
            what, then = "cannot be used", "make room or rights there"
        kind = NotWrittenError if _is_full(error) else InputError
        raise kind(
            f"{path}: the file of {layout.holds} {what} ({error}); {then}, or name another folder"
        ) from error


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # a full disk ends the transaction by itself
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _made(path: Path, layout: Layout) -> sqlite3.Connection:
    draft = path.with_name(f"{path.name}.new-{os.getpid()}")
    draft.unlink(missing_ok=True)
    connection = sqlite3.connect(draft, isolation_level=None)
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
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    _move_beside(path, _aside(path, "lost"))
    draft.rename(path)
    _sync_folder(path.parent)
    return _checked(path, layout)


def _kept_aside(path: Path) -> Path:
    aside = _aside(path, "damaged")
    path.rename(aside)
    _move_beside(path, aside)
    return aside


def _aside(path: Path, why: str) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return path.with_name(f"{path.name}.{why}-{stamp}")


def _move_beside(path: Path, aside: Path) -> None:
    """The write-ahead log goes with its file: it would be replayed into the next one."""
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))


def _checked(path: Path, layout: Layout) -> sqlite3.Connection:
    if not path.stat().st_size:
        raise _DamagedError("it is empty")
    connection = _connected(path, "rw")
    try:
        _check_kind(path, layout, connection)
        if _pragma(connection, "quick_check") != "ok":
            raise _DamagedError("pages are missing or broken")
        if _pragma(connection, "journal_mode=WAL") != "wal":
            raise sqlite3.OperationalError("its folder does not allow a write-ahead log")
        _upgrade(layout, connection)
    except BaseException as error:
        connection.close()
        if _is_damage(error):
            raise _DamagedError(str(error)) from error
        raise
    return connection


def _connected(path: Path, mode: Literal["ro", "rw"], more: str = "") -> sqlite3.Connection:
    # never rwc: a file that SQLite makes would pass as a damaged one
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}{more}",
        uri=True,
        timeout=WAIT_S,
        isolation_level=None,
        check_same_thread=False,
    )


def _check_kind(path: Path, layout: Layout, connection: sqlite3.Connection) -> None:
    if _pragma(connection, "application_id") != layout.application_id:
        raise _ForeignError("it is a database of something else")
    version = _pragma(connection, "user_version")
    if isinstance(version, int) and version > layout.version:
        raise InputError(
            f"{path}: this file of {layout.holds} has version {version} and this MIGRator knows "
            f"{layout.version}; use the newer MIGRator that wrote it, or name another folder"
        )
    if version != layout.version and version not in layout.upgrades:
        raise _DamagedError("its version is unknown")


def _upgrade(layout: Layout, connection: sqlite3.Connection) -> None:
    """From an older version to this one, all of it or nothing."""
    with transaction(connection):
        version = _pragma(connection, "user_version")
        while isinstance(version, int) and version < layout.version:
            for statement in layout.upgrades[version]:
                connection.execute(statement)
            version += 1
            connection.execute(f"PRAGMA user_version={version}")


def _is_damage(error: BaseException) -> bool:
    """Locked, full or unreadable is no damage; SQLite tells those as OperationalError."""
    if isinstance(error, sqlite3.OperationalError):
        return False
    return isinstance(error, sqlite3.DatabaseError | _DamagedError)


def _is_full(error: BaseException) -> bool:
    """Whether the disk took nothing more; for the shared memory of a file that is an I/O error."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _is_no_database(error: BaseException) -> bool:
    return (
        isinstance(error, sqlite3.DatabaseError)
        and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB
    )


def _pragma(connection: sqlite3.Connection, name: str) -> object:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return value


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
