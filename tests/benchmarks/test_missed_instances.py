"""How long a new instance was missed, from what was asked for and what was written down."""

from __future__ import annotations

import pytest
from support.scenarios import serves, trains

from benchmarks.missed_instances import Decided, Room, asked_for, followed, visible
from migrator.core.catalogue import board
from migrator.core.problem import Instance
from migrator.records.rows import UnitRecord

A100 = board("A100-40GB")


def ready(unit: str, from_s: float, to_s: float | None, held: Instance) -> UnitRecord:
    assert held.task is not None
    return UnitRecord(
        unit, from_s, held.start, held.gpcs, held.task.tenant, "inference", "ready", to_s
    )


OLD, NEW = serves("a", 0, 2), serves("a", 2, 2)


@pytest.mark.parametrize(
    ("before", "room"),
    [
        ((), Room.IDLE),
        ((serves("b", 2, 2),), Room.SAME),
        ((serves("b", 0, 4),), Room.TAKEN),
        ((trains("b", 0, 4),), Room.RETRAINED),
        ((trains("b", 2, 1), serves("b", 3, 1)), Room.TAKEN),
    ],
)
def test_what_was_on_its_slices_before_is_told(before: tuple[Instance, ...], room: Room) -> None:
    (asked,) = asked_for(A100, [before, (NEW,)], [0.0, 1.0])
    assert (asked.instance, asked.room, asked.from_s) == (NEW, room, 1.0)


def test_retrainings_and_what_stays_are_not_asked_for() -> None:
    slots = [(OLD,), (OLD, trains("a", 4, 1)), (OLD,)]
    assert not list(asked_for(A100, slots, [0.0, 1.0, 2.0]))


def test_it_is_missed_from_its_slot_until_it_serves() -> None:
    asked = list(asked_for(A100, [(OLD,), (NEW,), (NEW,)], [0.0, 1.0, 2.0]))
    (late,) = visible(asked, [ready("u1", 1.5, None, NEW)])
    assert (late.missed_s, late.came) == (0.5, True)
    (early,) = visible(asked, [ready("u1", 0.4, None, NEW)])
    assert (early.missed_s, early.made) == (0.0, True)


def test_what_never_serves_is_missed_as_long_as_it_is_asked_for() -> None:
    asked = list(asked_for(A100, [(OLD,), (NEW,), (OLD,)], [0.0, 1.0, 3.0]))
    instances = list(visible([instance for instance in asked if instance.instance == NEW], []))
    assert [(instance.missed_s, instance.came) for instance in instances] == [(2.0, False)]


def test_one_that_was_never_taken_away_is_not_new_again() -> None:
    slots = [(OLD,), (OLD, NEW), (OLD,), (OLD, NEW)]
    asked = list(asked_for(A100, slots, [0.0, 1.0, 2.0, 3.0]))
    assert len(asked) == 2
    kept = list(visible(asked, [ready("u1", 1.2, None, NEW)]))
    assert [instance.missed_s for instance in kept] == [pytest.approx(0.2)]
    again = list(visible(asked, [ready("u1", 1.2, 2.1, NEW), ready("u1", 2.9, None, NEW)]))
    assert [(instance.missed_s, instance.made) for instance in again] == [
        (pytest.approx(0.2), True),
        (0.0, False),
    ]


def test_a_decision_counts_from_when_it_came_and_the_next_replaces_it() -> None:
    first = Decided(10.3, 0, ((OLD,), (NEW,), (NEW,)))
    second = Decided(11.2, 1, ((OLD,), (OLD,)))
    held, begins_s = followed([first, second], [10.0], 3, 1.0)
    assert held == [(OLD,), (NEW,), (OLD,)]
    assert begins_s == [10.3, 11.0, 12.0]


def test_a_window_without_a_decision_goes_on_with_what_was_held() -> None:
    held, _ = followed([Decided(0.0, 0, ((OLD,), (NEW,)))], [0.0, 2.0], 2, 1.0)
    assert held == [(OLD,), (NEW,), (NEW,), (NEW,)]
