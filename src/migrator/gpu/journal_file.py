"""The journal's file: its tables, and in words what became of one that cannot be used."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from migrator.core.errors import GpuError
from migrator.io import database
from migrator.io.database import DamagedError, OlderError, Synchronous, rebuilt, table

_COLUMNS = {
    "deed": (
        "id INTEGER PRIMARY KEY",
        "driver TEXT",
        "gpu_uuid TEXT",
        "boot_id TEXT",
        "owner TEXT",
        "start INTEGER",
        "profile TEXT",
        "generation INTEGER",
        "intent TEXT",
        "state TEXT",
        "number INTEGER",
        "uuid TEXT",
        "change INTEGER",
        "pid INTEGER",
        "began_s REAL",
        "ended_s REAL",
    ),
    "change": (
        "id INTEGER PRIMARY KEY",
        "driver TEXT",
        "gpu_uuid TEXT",
        "boot_id TEXT",
        "owner TEXT",
        "before TEXT",
        "wanted TEXT",
        "state TEXT",
        "pid INTEGER",
        "began_s REAL",
        "ended_s REAL",
    ),
}
COLUMNS = {
    name: tuple(each.split()[0] for each in columns[1:]) for name, columns in _COLUMNS.items()
}
"""Those of each table, without its id."""

LAYOUT = database.Layout(
    holds="the journal",
    application_id=0x4D494752,
    version=3,
    statements=tuple(table(name, columns) for name, columns in _COLUMNS.items()),
    # version 1 cannot tell which driver made what, and is set aside
    upgrades={
        2: tuple(each for name, columns in _COLUMNS.items() for each in rebuilt(name, columns))
    },
)


def in_words(aside: Path) -> str:
    """Why a file was kept aside, and what follows from it."""
    why = "is of an older MIGRator" if f".{OlderError.aside}-" in aside.name else "was damaged"
    return (
        f"the journal {why} and is kept as {aside}; what is on the GPU now counts as not ours "
        "(`migrator gpu show` lists it)"
    )


def opened(path: Path, synchronous: Synchronous) -> tuple[sqlite3.Connection, Path | None]:
    """A connection, and where a damaged or older file was kept; GpuError, InputError (newer)."""
    with _told(path):
        return database.opened_or_replaced(path, LAYOUT, synchronous)


def looked_at(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing, not even a damaged file; GpuError, InputError (newer).

    Where there is no file it is to an empty journal that nobody else sees.
    """
    try:
        return database.checked(path, LAYOUT)
    except FileNotFoundError:
        return database.empty(LAYOUT.statements)
    except DamagedError as error:
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
    except DamagedError as error:
        raise GpuError(
            f"{path}: the journal is damaged again right after a new one was begun ({error}); "
            "check the disk, or name another folder in MIGRATOR_STATE"
        ) from error
