"""The journal: which owner created which instance on which GPU, and unfinished operations.

One SQLite file for all GPUs of a machine, with a row for each instance. An intent is on disk
before the GPU is touched. After a crash, `journaled_driver` settles unfinished operations. Only the
process that holds a GPU's lock writes rows of that GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from migrator.core.catalogue import Place
from migrator.core.errors import GpuError
from migrator.gpu.drivers.base import Gpu, GpuInstance
from migrator.gpu.layout import Op, Step
from migrator.io import database
from migrator.io.database import DamagedError, Synchronous, is_damage, transaction

_HERE = "driver = :driver AND gpu_uuid = :gpu"


class EntryState(StrEnum):
    """What was begun or done with an instance."""

    CREATING = "creating"
    PRESENT = "present"
    DESTROYING = "destroying"


@dataclass(frozen=True)
class JournalEntry:
    """One instance that an owner creates, has, or destroys."""

    id: int
    owner: str
    place: Place
    state: EntryState
    number: int | None = None
    uuid: str | None = None
    """Number and UUID of the instance, once known: they distinguish it from another owner's
    instance at the same place."""

    @property
    def step(self) -> Step:
        """The operation that led to its state."""
        op = Op.DESTROY if self.state is EntryState.DESTROYING else Op.CREATE
        return Step(op, self.place)

    def is_about(self, instance: GpuInstance) -> bool:
        """Whether `instance` can be the one of this entry: nothing contradicts it."""
        return (
            instance.place == self.place
            and self.number in (None, instance.number)
            and (self.uuid is None or instance.uuid in (None, self.uuid))
        )


@dataclass(frozen=True)
class LayoutChange:
    """An unfinished change from the owner's instances `before` to its instances `wanted`."""

    id: int
    owner: str
    before: tuple[Place, ...]
    wanted: tuple[Place, ...]
    pid: int


def find_instance(present: Iterable[GpuInstance], entry: JournalEntry) -> GpuInstance | None:
    """The instance of an entry; None if it does not exist."""
    return next((instance for instance in present if entry.is_about(instance)), None)


def match_entries(
    present: Iterable[GpuInstance], entries: Iterable[JournalEntry]
) -> dict[Place, tuple[GpuInstance, JournalEntry]]:
    """The instances of these entries, by place."""
    entries = tuple(entries)
    return {
        instance.place: (instance, entry)
        for instance in present
        for entry in entries
        if entry.is_about(instance)
    }


SCHEMA = database.Schema(
    holds="the journal",
    application_id=0x4D494752,
    version=2,
    statements=(
        "CREATE TABLE instance (id INTEGER PRIMARY KEY, driver TEXT, gpu_uuid TEXT, boot_id TEXT, "
        "owner TEXT, start INTEGER, profile TEXT, state TEXT, number INTEGER, uuid TEXT)",
        "CREATE TABLE change (id INTEGER PRIMARY KEY, driver TEXT, gpu_uuid TEXT, boot_id TEXT, "
        "owner TEXT, before TEXT, wanted TEXT, pid INTEGER)",
    ),
)


def journal_path(state: Path) -> Path:
    """The journal of a machine in its state folder."""
    return state / "journal.db"


def describe_set_aside(path: Path) -> str:
    """That a damaged journal was set aside as `path`, and the consequence."""
    return (
        f"the journal was damaged and is kept as {path}; what is on the GPU now counts as not ours "
        "(`migrator gpu show` lists it)"
    )


class Journal:
    """The journal in the file `path`. A process must not use a journal that its parent opened."""

    def __init__(
        self, path: Path, *, synchronous: Synchronous = "FULL", read_only: bool = False
    ) -> None:
        """`read_only`: change nothing, and raise GpuError for a damaged file."""
        self.path = path
        self.damaged: Path | None = None
        """Path to which a damaged journal was moved when this one was opened."""
        if read_only:
            self._connection = _open_for_reading(path)
        else:
            self._connection, self.damaged = _open_for_writing(path, synchronous)
        self._read_only = read_only

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def entries(self, gpu: Gpu) -> tuple[JournalEntry, ...]:
        """The entries of this GPU and boot."""
        rows = self._rows(
            "SELECT id, owner, start, profile, state, number, uuid FROM instance", gpu
        )
        return tuple(
            JournalEntry(row, owner, Place(start, profile), EntryState(state), number, uuid)
            for row, owner, start, profile, state, number, uuid in rows
        )

    def unfinished(self, gpu: Gpu) -> tuple[LayoutChange, ...]:
        """The layout changes of this GPU and boot that were begun and never ended."""
        rows = self._rows("SELECT id, owner, before, wanted, pid FROM change", gpu)
        return tuple(
            LayoutChange(row, owner, _places(before), _places(wanted), pid)
            for row, owner, before, wanted, pid in rows
        )

    def begin_create(self, gpu: Gpu, owner: str, place: Place) -> JournalEntry:
        """Write an intent; the GPU may be touched only after this has returned."""
        state = EntryState.CREATING
        row = self._write(
            "INSERT INTO instance VALUES "
            "(NULL, :driver, :gpu, :boot, :owner, :start, :profile, :state, NULL, NULL)",
            **_here(gpu),
            owner=owner,
            start=place.start,
            profile=place.profile,
            state=state,
        )
        return JournalEntry(row, owner, place, state)

    def begin_destroy(self, entry: JournalEntry) -> JournalEntry:
        """Write an intent; the GPU may be touched only after this has returned."""
        return self._update(replace(entry, state=EntryState.DESTROYING))

    def set_number(self, entry: JournalEntry, number: int) -> JournalEntry:
        return self._update(replace(entry, number=number))

    def set_present(self, entry: JournalEntry, instance: GpuInstance) -> JournalEntry:
        """Write that nothing is under way, and which instance it is."""
        state, number, uuid = EntryState.PRESENT, instance.number, instance.uuid
        return self._update(replace(entry, state=state, number=number, uuid=uuid))

    def remove(self, entry: JournalEntry) -> None:
        """Write that the instance does not exist."""
        self._write("DELETE FROM instance WHERE id = :id", id=entry.id)

    def begin_change(
        self, gpu: Gpu, owner: str, before: tuple[Place, ...], wanted: tuple[Place, ...]
    ) -> LayoutChange:
        """Write the layout before and the wanted one; the steps are written on their own."""
        row = self._write(
            "INSERT INTO change VALUES "
            "(NULL, :driver, :gpu, :boot, :owner, :before, :wanted, :pid)",
            **_here(gpu),
            owner=owner,
            before=_text(before),
            wanted=_text(wanted),
            pid=os.getpid(),
        )
        return LayoutChange(row, owner, before, wanted, os.getpid())

    def end_change(self, change: LayoutChange) -> None:
        """Write that the change is finished, undone, or abandoned."""
        self._write("DELETE FROM change WHERE id = :id", id=change.id)

    def forget_other_boots(self, gpu: Gpu) -> tuple[Place, ...]:
        """Delete this GPU's rows of other boots; return the places that had instances."""
        there = f"FROM {{}} WHERE {_HERE} AND boot_id != :boot"
        with self._translate_errors():
            query = f"SELECT start, profile {there.format('instance')} ORDER BY start"
            gone = self._connection.execute(query, _here(gpu)).fetchall()
            query = f"SELECT 1 {there.format('change')}"
            changes = self._connection.execute(query, _here(gpu)).fetchall()
        for table in ("instance", "change") if gone or changes else ():
            self._write(f"DELETE {there.format(table)}", **_here(gpu))
        return tuple(Place(*row) for row in gone)

    def _rows(self, select: str, gpu: Gpu) -> list[tuple[Any, ...]]:
        query = f"{select} WHERE {_HERE} AND boot_id = :boot ORDER BY id"
        with self._translate_errors():
            return self._connection.execute(query, _here(gpu)).fetchall()

    def _update(self, entry: JournalEntry) -> JournalEntry:
        self._write(
            "UPDATE instance SET state = :state, number = :number, uuid = :uuid WHERE id = :id",
            state=entry.state,
            number=entry.number,
            uuid=entry.uuid,
            id=entry.id,
        )
        return entry

    def _write(self, statement: str, **values: object) -> int:
        """Execute a statement in a transaction of its own; return the id of an inserted row."""
        with self._translate_errors():
            if self._read_only:
                raise OSError("it was opened read-only")
            with transaction(self._connection):
                return self._connection.execute(statement, values).lastrowid or 0

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            advice = (
                "move the file away"
                if is_damage(error)
                else "make room or change permissions there"
            )
            raise GpuError(
                f"{self.path}: the journal cannot be used ({error}), and without it the GPU is "
                f"not touched; {advice}, then run the command again"
            ) from error


def _here(gpu: Gpu) -> dict[str, str]:
    """Column values of this GPU, driver and boot. Each driver has rows of its own on a GPU."""
    return {"driver": gpu.driver, "gpu": gpu.uuid, "boot": gpu.boot_id}


def _text(places: Iterable[Place]) -> str:
    return json.dumps([[place.start, place.profile] for place in places])


def _places(text: str) -> tuple[Place, ...]:
    return tuple(Place(start, profile) for start, profile in json.loads(text))


def _open_for_writing(
    path: Path, synchronous: Synchronous
) -> tuple[sqlite3.Connection, Path | None]:
    """A connection, and the path to which a damaged file was moved.

    Raises GpuError, or InputError for a file of another version.
    """
    try:
        return database.open_or_replace(path, SCHEMA, synchronous)
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


def _open_for_reading(path: Path) -> sqlite3.Connection:
    """A read-only connection; to an empty journal in memory if there is no file."""
    try:
        return database.open_checked(path, SCHEMA)
    except FileNotFoundError:
        return database.empty(SCHEMA.statements)
    except DamagedError as error:
        raise GpuError(
            f"{path}: the journal is damaged ({error}); the next change sets it aside, "
            "and then what is on the GPU counts as not ours"
        ) from error
    except (sqlite3.Error, OSError) as error:
        raise GpuError(
            f"{path}: the journal cannot be read ({error}); make it readable, or name another "
            "folder in MIGRATOR_STATE"
        ) from error
