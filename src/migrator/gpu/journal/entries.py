"""Records of the journal: single creates and destroys, and whole layout changes.

Pure. A generation identifies one instance: its create and its destroy have the same number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from migrator.core.placement import Place
from migrator.gpu.drivers.base import GpuInstance
from migrator.gpu.partition.steps import Op, Step

Row = dict[str, Any]
"""A value for each column of a table."""


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
        """The entry as a step of a plan."""
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
        each.generation
        for each in entries
        if each.intent is Op.DESTROY and each.state is EntryState.DONE
    }
    return tuple(
        each
        for each in entries
        if each.intent is Op.CREATE
        and each.state in (EntryState.BEGUN, EntryState.DONE)
        and each.generation not in removed
    )


def find_instance(present: Iterable[GpuInstance], entry: JournalEntry) -> GpuInstance | None:
    """The instance of an entry; None if it does not exist."""
    return next((each for each in present if entry.is_about(each)), None)


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
    row: Row = {each.name: getattr(record, each.name) for each in fields(record)}
    del row["id"]
    if isinstance(record, JournalEntry):
        place = row.pop("place")
        return {**row, "start": place.start, "profile": place.profile}
    for name in ("before", "wanted"):
        row[name] = json.dumps([[each.start, each.profile] for each in row[name]])
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
