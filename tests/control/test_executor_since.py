"""A decision that comes while its first slot is under way: its slots are the clock's."""

from __future__ import annotations

from migrator.control.events import Create, Created, Ready, Warm
from migrator.control.executor import Executor
from migrator.core.catalogue import board
from migrator.core.problem import Instance, Kind, Task

FIRST = Instance(0, 2, Task("a", Kind.INFERENCE))
NEXT = Instance(2, 2, Task("a", Kind.INFERENCE))


def begun(since_s: float | None) -> Executor:
    """Without lead, so that nothing happens before its slot; the decision comes at 10.4 s."""
    executor = Executor(board("A100-40GB"), lead_s=0.0)
    instructions = executor.follow(10.4, [(FIRST,), (FIRST, NEXT)], 1.0, since_s=since_s)
    assert instructions == [Create(Instance(0, 2))]
    assert executor.on(10.6, Created(Instance(0, 2))) == [Warm(Instance(0, 2), "a")]
    assert executor.on(10.8, Ready(Instance(0, 2), 0.2)) == []
    return executor


def test_the_next_slot_begins_with_the_clock_and_not_later() -> None:
    executor = begun(since_s=10.0)
    assert executor.tick(10.99) == []
    assert executor.tick(11.0) == [Create(Instance(2, 2))]


def test_without_it_the_first_slot_begins_when_the_decision_comes() -> None:
    executor = begun(since_s=None)
    assert executor.tick(11.39) == []
    assert executor.tick(11.4) == [Create(Instance(2, 2))]


def test_a_slot_that_is_still_to_come_begins_now() -> None:
    executor = begun(since_s=12.0)
    assert executor.tick(11.4) == [Create(Instance(2, 2))]
