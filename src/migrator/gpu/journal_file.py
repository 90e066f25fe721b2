"""The journal's file: opened, made, and kept aside when it is damaged.

A file is made under another name and renamed, so that one which is empty or half a database is
never a young one but a damaged one. Every row carries a checksum, since SQLite has none of its
own for pages.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from migrator.core.errors import GpuError, InputError

VERSION = 2
APPLICATION_ID = 0x4D494752
"""What marks the file as a journal of ours."""
WAIT_S = 10.0
"""For another process that writes, about another GPU."""
_WRITING = "mode=rw"
"""SQLite must not make the file, or an empty one would pass as a damaged one."""

TABLES = {
    "deed": (
        "driver TEXT, gpu_uuid TEXT, boot_id TEXT, owner TEXT, start INTEGER, profile TEXT, "
        "generation INTEGER, intent TEXT, state TEXT, number INTEGER, uuid TEXT, "
        "change INTEGER, pid INTEGER, began_s REAL, ended_s REAL"
    ),
    "change": (
        "driver TEXT, gpu_uuid TEXT, boot_id TEXT, owner TEXT, before TEXT, wanted TEXT, "
        "state TEXT, pid INTEGER, began_s REAL, ended_s REAL"
    ),
}
COLUMNS = {
    table: tuple(each.split()[0] for each in columns.split(", "))
    for table, columns in TABLES.items()
}


class _DamagedError(Exception):
    """The file is no journal of ours, or not all of it is there."""

    aside = "damaged"


class _OlderError(_DamagedError):
    """An older MIGRator wrote it, and it cannot tell which driver made what."""

    aside = "older"


def checksum(values: Sequence[object]) -> int:
    """Of a row's values, in the order of its columns."""
    return zlib.crc32(repr(tuple(values)).encode())


def in_words(aside: Path) -> str:
    """Why a file was kept aside, and what follows from it."""
    why = "is of an older MIGRator" if f".{_OlderError.aside}-" in aside.name else "was damaged"
    return (
        f"the journal {why} and is kept as {aside}; what is on the GPU now counts as not ours "
        "(`migrator gpu show` lists it)"
    )


def opened(path: Path, synchronous: str) -> tuple[sqlite3.Connection, Path | None]:
    """A connection, and where a damaged or older file was kept; GpuError, InputError (newer)."""
    with _told(path):
        try:
            return _connected(path, _WRITING, synchronous), None
        except (FileNotFoundError, _DamagedError):
            with _alone(path):
                damaged = _renewed(path, synchronous)
            return _connected(path, _WRITING, synchronous), damaged


def looked_at(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing, not even a damaged file; GpuError, InputError (newer).

    Where there is no file it is to an empty journal that nobody else sees.
    """
    if not path.exists():
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        _make_tables(connection)
        return connection
    # without a log nobody is writing, and SQLite need not put its own files beside it
    log = path.with_name(f"{path.name}-wal")
    how = "mode=ro" if log.exists() else "mode=ro&immutable=1"
    try:
        return _connected(path, how, None)
    except _DamagedError as error:
        raise GpuError(
            f"{path}: the journal is damaged or older ({error}); the next change keeps it aside, "
            "and then what is on the GPU counts as not ours"
        ) from error
    except (sqlite3.Error, OSError) as error:
        raise GpuError(
            f"{path}: the journal cannot be read ({error}); make it readable, or name another "
            "folder in MIGRATOR_STATE"
        ) from error


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise GpuError(
            f"{path}: the journal cannot be opened ({error}) and nothing was changed; make its "
            "folder writable, or name another one in MIGRATOR_STATE"
        ) from error
    except _DamagedError as error:
        raise GpuError(
            f"{path}: the journal is damaged again right after a new one was begun ({error}); "
            "check the disk, or name another folder in MIGRATOR_STATE"
        ) from error


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keeps two processes from making, or keeping aside, the same file at once."""
    with path.with_name(f"{path.name}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _renewed(path: Path, synchronous: str) -> Path | None:
    """A new file, unless another process has just made one; where the damaged one is kept."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = None
    try:
        _connected(path, _WRITING, synchronous).close()
        return None
    except FileNotFoundError:
        _move_beside(path, path.with_name(f"{path.name}.lost-{stamp}"))
    except _DamagedError as error:
        aside = path.with_name(f"{path.name}.{error.aside}-{stamp}")
        path.rename(aside)
        _move_beside(path, aside)
    _make(path)
    return aside


def _move_beside(path: Path, aside: Path) -> None:
    """The write-ahead log goes with its file: it would be replayed into the next one."""
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))


def _make(path: Path) -> None:
    draft = path.with_name(f"{path.name}.new-{os.getpid()}")
    draft.unlink(missing_ok=True)
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("BEGIN")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={VERSION}")
        _make_tables(connection)
        connection.execute("COMMIT")
    finally:
        connection.close()
    draft.rename(path)


def _make_tables(connection: sqlite3.Connection) -> None:
    for table, columns in TABLES.items():
        connection.execute(
            f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {columns}, checksum INTEGER)"
        )


def _connected(path: Path, how: str, synchronous: str | None) -> sqlite3.Connection:
    """`how`: SQLite's words for what it may do; `synchronous`: None where nothing is written."""
    if not path.stat().st_size:
        raise _DamagedError("it is empty")
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}",
        uri=True,
        timeout=WAIT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        _check(path, connection)
        if synchronous is not None:
            _set_up(connection, synchronous)
    except BaseException as error:
        connection.close()
        if _is_damage(error):
            raise _DamagedError(str(error)) from error
        raise
    return connection


def _is_damage(error: BaseException) -> bool:
    """Locked, full or unreadable is no damage; SQLite tells those as OperationalError."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.OperationalError
    )


def _check(path: Path, connection: sqlite3.Connection) -> None:
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise _DamagedError("it is a database of something else")
    version = _pragma(connection, "user_version")
    if isinstance(version, int) and version > VERSION:
        raise InputError(
            f"{path}: this journal has version {version} and this MIGRator knows {VERSION}; use "
            "the newer MIGRator that wrote it, or name another folder in MIGRATOR_STATE"
        )
    if isinstance(version, int) and 0 < version < VERSION:
        raise _OlderError(f"it has version {version}")
    if version != VERSION or _pragma(connection, "quick_check") != "ok":
        raise _DamagedError("pages are missing or broken")
    for table, columns in COLUMNS.items():
        _check_table(connection, table, columns)


def _set_up(connection: sqlite3.Connection, synchronous: str) -> None:
    if _pragma(connection, "journal_mode=WAL") != "wal":
        raise sqlite3.OperationalError("its folder does not allow a write-ahead log")
    connection.execute(f"PRAGMA synchronous={synchronous}")


def _check_table(connection: sqlite3.Connection, table: str, columns: tuple[str, ...]) -> None:
    there = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    if there != ["id", *columns, "checksum"]:
        raise _DamagedError(f"table {table} is missing or another")
    for _id, *values, found in connection.execute(f"SELECT * FROM {table}"):
        if checksum(values) != found:
            raise _DamagedError(f"a row of {table} is not as it was written")


def _pragma(connection: sqlite3.Connection, name: str) -> object:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return value
