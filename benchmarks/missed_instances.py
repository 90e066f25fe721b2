"""From what was asked for and what the daemon wrote down: how long each new instance was missed.

An instance is missed from the moment its slot begins (or the plan comes, where that is later)
until it serves. One that has served its tenant since before it was last asked for is not new.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from migrator.core.catalogue import Board, find_placement
from migrator.core.problem import Instance, Kind, Task
from migrator.records.rows import UnitRecord

READY, WARMING = "ready", "warming"


class Room(StrEnum):
    """What was on the slices of a new instance the slot before."""

    RETRAINED = "slices of a retraining"
    SAME = "same place, other task"
    TAKEN = "slices held by others"
    IDLE = "slices idle before"


@dataclass(frozen=True)
class Decided:
    """A decision: from a slot of its window on, one allocation a slot."""

    at_s: float
    slot: int
    slots: tuple[tuple[Instance, ...], ...]

    @classmethod
    def read(cls, line: str) -> Decided:
        """As changing_policy.py writes it."""
        parsed_json = json.loads(line)
        slots = tuple(
            tuple(Instance(start, gpcs, Task(who, Kind(kind))) for start, gpcs, who, kind in slot)
            for slot in parsed_json["slots"]
        )
        return cls(parsed_json["at_s"], parsed_json["slot"], slots)


@dataclass(frozen=True)
class Asked:
    """An instance that a slot asks for and the one before did not."""

    instance: Instance
    task: Task
    room: Room
    from_s: float
    until_s: float
    """When nobody asks for it any more."""


@dataclass(frozen=True)
class Visible:
    """A new instance that was asked for, and how long it was missed."""

    asked: Asked
    missed_s: float
    made: bool
    """Whether the instance was new too, not only its worker."""
    came: bool
    """Whether it served before it was no longer asked for."""


def followed(
    decisions: Iterable[Decided], windows_s: Sequence[float], slots: int, slot_s: float
) -> tuple[list[tuple[Instance, ...]], list[float]]:
    """What each slot of the run asked for, and from when: its begin, or the decision's."""
    made = sorted(decisions, key=lambda decision: decision.at_s)
    held: list[tuple[Instance, ...]] = []
    begins_s: list[float] = []
    for begin_s in windows_s:
        own = [decided for decided in made if begin_s <= decided.at_s < begin_s + slots * slot_s]
        for slot in range(slots):
            slot_begin_s = begin_s + slot * slot_s
            decideds = [
                decided for decided in own if decided.at_s <= slot_begin_s and decided.slot <= slot
            ]
            newest = decideds[-1] if decideds else (own[0] if own else None)
            if newest is None or newest.slot > slot:
                held.append(held[-1] if held else ())
            else:
                held.append(newest.slots[slot - newest.slot])
            begins_s.append(slot_begin_s if decideds or not own else max(slot_begin_s, own[0].at_s))
    return held, begins_s


def asked_for(
    board: Board, slots: Sequence[tuple[Instance, ...]], begins_s: Sequence[float]
) -> Iterator[Asked]:
    """Every new inference instance in a run of slots, which begin at these moments."""
    for number in range(1, len(slots)):
        for slot in slots[number]:
            if slot.task is None or slot in slots[number - 1] or slot.task.kind is Kind.RETRAINING:
                continue
            end = next((n for n in range(number, len(slots)) if slot not in slots[n]), None)
            yield Asked(
                slot,
                slot.task,
                _room(board, slot, slots[number - 1]),
                begins_s[number],
                float("inf") if end is None else begins_s[end],
            )


def visible(asked: Iterable[Asked], units: Iterable[UnitRecord]) -> Iterator[Visible]:
    """How long each was missed; those that were there all along are left out."""
    rows = sorted(units, key=lambda unit: unit.from_s)
    ready = [row for row in rows if row.state == READY]
    seen: set[tuple[str, float]] = set()
    lives: set[str] = set()
    for instance in sorted(asked, key=lambda instance: instance.from_s):
        served_by = next((row for row in ready if _serves(row, instance)), None)
        if served_by is None:
            yield Visible(instance, instance.until_s - instance.from_s, False, False)
            continue
        kept = (served_by.unit, served_by.from_s) in seen
        seen.add((served_by.unit, served_by.from_s))
        if not kept:
            made = served_by.unit not in lives and not _served_before(rows, served_by)
            yield Visible(instance, max(0.0, served_by.from_s - instance.from_s), made, True)
        lives.add(served_by.unit)


def _room(board: Board, instance: Instance, before: Iterable[Instance]) -> Room:
    overlapping = [earlier for earlier in before if _overlap(board, instance, earlier)]
    if not overlapping:
        return Room.IDLE
    if [(earlier.start, earlier.gpcs) for earlier in overlapping] == [
        (instance.start, instance.gpcs)
    ]:
        return Room.SAME
    trained = all(earlier.task and earlier.task.kind is Kind.RETRAINING for earlier in overlapping)
    return Room.RETRAINED if trained else Room.TAKEN


def _overlap(board: Board, one: Instance, other: Instance) -> bool:
    here, there = (
        find_placement(board, instance.start, instance.gpcs) for instance in (one, other)
    )
    return here is not None and there is not None and here.overlaps(there)


def _serves(row: UnitRecord, asked: Asked) -> bool:
    """Whether it serves what was asked for at some time while it was."""
    place = (row.start, row.gpcs, row.tenant, row.task)
    wanted = (asked.instance.start, asked.instance.gpcs, asked.task.tenant, asked.task.kind)
    ends_s = float("inf") if row.to_s is None else row.to_s
    return place == wanted and row.from_s < asked.until_s and ends_s > asked.from_s


def _served_before(rows: Iterable[UnitRecord], unit: UnitRecord) -> bool:
    """Whether the same instance worked for somebody before this worker."""
    return any(
        row.unit == unit.unit and row.from_s < unit.from_s and row.state in (READY, "training")
        for row in rows
    )
