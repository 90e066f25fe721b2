"""The journal: which owner created which instance on which GPU, and unfinished operations.

One SQLite file for all GPUs of a machine. An intent is on disk before the GPU is touched. After a
crash, `journaled_driver` settles unfinished operations. Only the process that holds a GPU's lock
writes entries of that GPU. A generation identifies one instance: its create and its destroy have
the same number.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from migrator.core.catalogue import Place
from migrator.core.errors import GpuError
from migrator.gpu.drivers.base import Gpu, GpuInstance
from migrator.gpu.layout import Op, Step
from migrator.io import database
from migrator.io.database import DamagedError, Synchronous, is_damage, transaction

Row = dict[str, Any]
"""A value for each column of a table."""
KEPT = 200
"""Number of finished rows that are kept for inspection."""
_HERE = "driver = :driver AND gpu_uuid = :gpu"
_PARTS = {
    "deed": ("start", "profile", "generation", "intent", "state", "number", "uuid", "change"),
    "change": ("before", "wanted", "state"),
}


class EntryState(StrEnum):
    """Progress of an entry or a layout change."""

    BEGUN = "begun"
    DONE = "done"
    UNDONE = "undone"
    FORGOTTEN = "forgotten"
    """A created instance that was missing later, or a change that will not be settled."""
    SUPERSEDED = "superseded"
    """A change that was abandoned for a later one."""


@dataclass(frozen=True)
class JournalEntry:
    """One create or destroy: the intent, and its result."""

    driver: str
    gpu_uuid: str
    boot_id: str
    owner: str
    place: Place
    generation: int
    intent: Op
    state: EntryState = EntryState.BEGUN
    number: int | None = None
    uuid: str | None = None
    """Number and UUID of the instance, once known: they distinguish it from another owner's
    instance at the same place."""
    change: int | None = None
    """The layout change it is part of."""
    pid: int = 0
    began_s: float = 0.0
    ended_s: float | None = None
    id: int = 0

    @property
    def step(self) -> Step:
        return Step(self.intent, self.place)

    def is_about(self, instance: GpuInstance) -> bool:
        """Whether `instance` can be the one of this entry: nothing contradicts it."""
        return (
            instance.place == self.place
            and self.number in (None, instance.number)
            and (self.uuid is None or instance.uuid in (None, self.uuid))
        )


@dataclass(frozen=True)
class LayoutChange:
    """A change from the owner's instances `before` to its instances `wanted`."""

    driver: str
    gpu_uuid: str
    boot_id: str
    owner: str
    before: tuple[Place, ...]
    wanted: tuple[Place, ...]
    state: EntryState = EntryState.BEGUN
    pid: int = 0
    began_s: float = 0.0
    ended_s: float | None = None
    id: int = 0


def live_creates(entries: Iterable[JournalEntry]) -> tuple[JournalEntry, ...]:
    """The creates, begun or done, whose instance no finished destroy has removed."""
    entries = tuple(entries)
    removed = {
        entry.generation
        for entry in entries
        if entry.intent is Op.DESTROY and entry.state is EntryState.DONE
    }
    return tuple(
        entry
        for entry in entries
        if entry.intent is Op.CREATE
        and entry.state in (EntryState.BEGUN, EntryState.DONE)
        and entry.generation not in removed
    )


def find_instance(present: Iterable[GpuInstance], entry: JournalEntry) -> GpuInstance | None:
    """The instance of an entry; None if it does not exist."""
    return next((instance for instance in present if entry.is_about(instance)), None)


def match_creates(
    present: Iterable[GpuInstance], creates: Iterable[JournalEntry]
) -> dict[Place, tuple[GpuInstance, JournalEntry]]:
    """The instances that these creates made, by place."""
    creates = tuple(creates)
    return {
        instance.place: (instance, create)
        for instance in present
        for create in creates
        if create.is_about(instance)
    }


def to_row(record: JournalEntry | LayoutChange) -> Row:
    """A record as a row of its table, without its id."""
    row: Row = {field.name: getattr(record, field.name) for field in fields(record)}
    del row["id"]
    if isinstance(record, JournalEntry):
        place = row.pop("place")
        return {**row, "start": place.start, "profile": place.profile}
    for name in ("before", "wanted"):
        row[name] = json.dumps([[place.start, place.profile] for place in row[name]])
    return row


def entry_from_row(row: Row) -> JournalEntry:
    """The entry in a row."""
    values = dict(row)
    place = Place(values.pop("start"), values.pop("profile"))
    state, intent = EntryState(values.pop("state")), Op(values.pop("intent"))
    return JournalEntry(place=place, state=state, intent=intent, **values)


def change_from_row(row: Row) -> LayoutChange:
    """The layout change in a row."""
    places = {
        name: tuple(Place(start, profile) for start, profile in json.loads(row[name]))
        for name in ("before", "wanted")
    }
    return LayoutChange(**{**row, **places, "state": EntryState(row["state"])})


_ALIVE = f"""(intent = 'create' AND state = 'done' AND generation NOT IN (
    SELECT generation FROM deed WHERE {_HERE} AND intent = 'destroy' AND state = 'done'
))"""
_TYPES = {
    "id": "INTEGER PRIMARY KEY",
    **dict.fromkeys(("start", "generation", "number", "change", "pid"), "INTEGER"),
    **dict.fromkeys(("began_s", "ended_s"), "REAL"),
}
COLUMNS = {
    name: ("driver", "gpu_uuid", "boot_id", "owner", *parts, "pid", "began_s", "ended_s")
    for name, parts in _PARTS.items()
}
"""Columns of each table, without its id."""

SCHEMA = database.Schema(
    holds="the journal",
    application_id=0x4D494752,
    version=1,
    statements=tuple(
        "CREATE TABLE {} ({})".format(
            table, ", ".join(f"{name} {_TYPES.get(name, 'TEXT')}" for name in ("id", *columns))
        )
        for table, columns in COLUMNS.items()
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
        """The entries of this GPU and boot that are unfinished or whose instance exists."""
        rows = self._rows("deed", gpu, f"(state = 'begun' OR {_ALIVE})")
        return tuple(map(entry_from_row, rows))

    def unfinished(self, gpu: Gpu) -> tuple[LayoutChange, ...]:
        """The layout changes of this GPU and boot that were begun and never ended."""
        return tuple(map(change_from_row, self._rows("change", gpu, "state = 'begun'")))

    def state_of(self, change: LayoutChange) -> EntryState:
        with self._translate_errors():
            query = "SELECT state FROM change WHERE id = ?"
            return EntryState(self._connection.execute(query, (change.id,)).fetchone()[0])

    def begin(
        self,
        gpu: Gpu,
        owner: str,
        op: Op,
        place: Place,
        *,
        create: JournalEntry | None = None,
        change: LayoutChange | None = None,
    ) -> JournalEntry:
        """Write an intent; the GPU may be touched only after this has returned.

        `create` is the entry of the instance that is to be destroyed.
        """
        entry = JournalEntry(
            driver=gpu.driver,
            gpu_uuid=gpu.uuid,
            boot_id=gpu.boot_id,
            owner=owner,
            place=place,
            generation=create.generation if create else self._next_generation(gpu),
            intent=op,
            number=create.number if create else None,
            uuid=create.uuid if create else None,
            change=change.id if change else None,
            pid=os.getpid(),
            began_s=time.time(),
        )
        return replace(entry, id=self._write("deed", to_row(entry)))

    def set_number(self, entry: JournalEntry, number: int) -> JournalEntry:
        numbered = replace(entry, number=number)
        self._write("deed", to_row(numbered), numbered.id)
        return numbered

    def end(
        self, entry: JournalEntry, state: EntryState, instance: GpuInstance | None = None
    ) -> JournalEntry:
        """Write the result of an entry, and which instance it is."""
        ended = replace(entry, state=state, ended_s=time.time())
        if instance:
            ended = replace(ended, number=instance.number, uuid=instance.uuid)
        self._write("deed", to_row(ended), ended.id)
        return ended

    def begin_change(
        self, gpu: Gpu, owner: str, before: tuple[Place, ...], wanted: tuple[Place, ...]
    ) -> LayoutChange:
        """Write the layout before and the wanted one; the steps are entries of their own."""
        change = LayoutChange(
            gpu.driver,
            gpu.uuid,
            gpu.boot_id,
            owner,
            before,
            wanted,
            pid=os.getpid(),
            began_s=time.time(),
        )
        return replace(change, id=self._write("change", to_row(change)))

    def end_change(self, change: LayoutChange, state: EntryState) -> None:
        ended = replace(change, state=state, ended_s=time.time())
        self._write("change", to_row(ended), ended.id)

    def forget_other_boots(self, gpu: Gpu) -> tuple[Place, ...]:
        """Delete this GPU's entries of other boots; return the places that had instances."""
        with self._translate_errors():
            query = " UNION ".join(
                f"SELECT boot_id FROM {table} WHERE {_HERE} AND boot_id != :boot"
                for table in COLUMNS
            )
            values = {**_here(gpu), "boot": gpu.boot_id}
            boots = self._connection.execute(query, values).fetchall()
        gone = [entry for (boot,) in boots for entry in self.entries(replace(gpu, boot_id=boot))]
        with self._translate_errors():
            for table in COLUMNS if boots else ():
                self._connection.execute(
                    f"DELETE FROM {table} WHERE {_HERE} AND boot_id != :boot", values
                )
        return tuple(sorted(create.place for create in live_creates(gone)))

    def shorten(self, gpu: Gpu) -> None:
        """Delete old finished rows, so that the file stays small."""
        finished = {
            "deed": f"state != 'begun' AND NOT {_ALIVE}",
            "change": "state != 'begun'",
        }
        with self._translate_errors():
            for table, where in finished.items():
                count = f"SELECT count(*) FROM {table} WHERE {_HERE}"
                if self._connection.execute(count, _here(gpu)).fetchone()[0] > 2 * KEPT:
                    self._connection.execute(
                        f"DELETE FROM {table} WHERE {_HERE} AND {where} "
                        f"AND id <= (SELECT max(id) FROM {table}) - {KEPT}",
                        _here(gpu),
                    )

    def _next_generation(self, gpu: Gpu) -> int:
        with self._translate_errors():
            query = f"SELECT coalesce(max(generation), 0) + 1 FROM deed WHERE {_HERE}"
            return int(self._connection.execute(query, _here(gpu)).fetchone()[0])

    def _rows(self, table: str, gpu: Gpu, where: str) -> list[Row]:
        columns = ("id", *COLUMNS[table])
        with self._translate_errors():
            rows = self._connection.execute(
                f"SELECT {', '.join(columns)} FROM {table} "
                f"WHERE {_HERE} AND boot_id = :boot AND {where} ORDER BY id",
                {**_here(gpu), "boot": gpu.boot_id},
            ).fetchall()
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def _write(self, table: str, values: Row, row: int | None = None) -> int:
        """Insert a row, or replace the one with this id; return the id."""
        ordered = [values[column] for column in COLUMNS[table]]
        marks = ", ".join("?" * (len(ordered) + 1))
        with self._translate_errors():
            if self._read_only:
                raise OSError("it was opened read-only")
            with transaction(self._connection):
                cursor = self._connection.execute(
                    f"INSERT OR REPLACE INTO {table} VALUES ({marks})", (row, *ordered)
                )
        return row or int(cursor.lastrowid or 0)

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
    """Column values of this GPU and driver. Each driver has entries of its own on a GPU."""
    return {"driver": gpu.driver, "gpu": gpu.uuid}


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
