"""The journal's rows: deeds and changes as plain values, and back."""

from __future__ import annotations

import json

from migrator.gpu.change import Op
from migrator.gpu.deed import Change, Deed, State
from migrator.gpu.driver import Place

Value = str | int | float | None
Row = dict[str, Value]
"""A value for each column."""


def deed_values(deed: Deed) -> Row:
    """A deed as its row has it."""
    return {
        "driver": deed.driver,
        "gpu_uuid": deed.gpu_uuid,
        "boot_id": deed.boot_id,
        "owner": deed.owner,
        "start": deed.place.start,
        "profile": deed.place.profile,
        "generation": deed.generation,
        "intent": str(deed.intent),
        "state": str(deed.state),
        "number": deed.number,
        "uuid": deed.uuid,
        "change": deed.change,
        "pid": deed.pid,
        "began_s": deed.began_s,
        "ended_s": deed.ended_s,
    }


def deed_of(row: Row) -> Deed:
    """The deed in a row."""
    return Deed(
        driver=str(row["driver"]),
        gpu_uuid=str(row["gpu_uuid"]),
        boot_id=str(row["boot_id"]),
        owner=str(row["owner"]),
        place=Place(_whole(row["start"]), str(row["profile"])),
        generation=_whole(row["generation"]),
        intent=Op(str(row["intent"])),
        state=State(str(row["state"])),
        number=None if row["number"] is None else _whole(row["number"]),
        uuid=None if row["uuid"] is None else str(row["uuid"]),
        change=None if row["change"] is None else _whole(row["change"]),
        pid=_whole(row["pid"]),
        began_s=float(row["began_s"] or 0.0),
        ended_s=None if row["ended_s"] is None else float(row["ended_s"]),
        id=_whole(row["id"]),
    )


def change_values(change: Change) -> Row:
    """A change as its row has it."""
    return {
        "driver": change.driver,
        "gpu_uuid": change.gpu_uuid,
        "boot_id": change.boot_id,
        "owner": change.owner,
        "before": json.dumps([[each.start, each.profile] for each in change.before]),
        "wanted": json.dumps([[each.start, each.profile] for each in change.wanted]),
        "state": str(change.state),
        "pid": change.pid,
        "began_s": change.began_s,
        "ended_s": change.ended_s,
    }


def change_of(row: Row) -> Change:
    """The change in a row."""
    return Change(
        driver=str(row["driver"]),
        gpu_uuid=str(row["gpu_uuid"]),
        boot_id=str(row["boot_id"]),
        owner=str(row["owner"]),
        before=_places(str(row["before"])),
        wanted=_places(str(row["wanted"])),
        state=State(str(row["state"])),
        pid=_whole(row["pid"]),
        began_s=float(row["began_s"] or 0.0),
        ended_s=None if row["ended_s"] is None else float(row["ended_s"]),
        id=_whole(row["id"]),
    )


def _places(text: str) -> tuple[Place, ...]:
    return tuple(Place(start, profile) for start, profile in json.loads(text))


def _whole(value: Value) -> int:
    assert isinstance(value, int)
    return value
