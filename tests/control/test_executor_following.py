"""How a decision is followed: order of steps, what is kept, what is begun ahead."""

import pytest
from support.executor_stage import Stage, serves, trains

from migrator.control.events import Create, Created, Destroyed, Ready, TrainingEnded, Warm
from migrator.control.executor import Executor
from migrator.core.catalogue import board
from migrator.core.errors import InputError
from migrator.core.problem import Instance, Kind, Task

A4, B3 = serves("a", 4, 0), serves("b", 3, 4)
A2, A2_HIGH, B2 = serves("a", 2, 0), serves("a", 2, 2), serves("b", 2, 4)


def test_what_is_wanted_is_created_then_warmed_then_left_alone() -> None:
    stage = Stage()
    assert stage.follow(0.0, (A4, B3)) == [
        "create 4g@0",
        "create 3g@4",
        "warm 4g@0 a",
        "warm 3g@4 b",
    ]
    assert stage.states() == {"4g@0": "ready a", "3g@4": "ready b"}
    assert stage.tick(1.0) == stage.tick(100.0) == []


def test_what_stays_with_its_tenant_is_not_touched() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, B3), (A4, B2))
    said = stage.tick(1.0)
    assert said == [
        "drain 3g@4 b",
        "stopworker 3g@4",
        "destroy 3g@4",
        "create 2g@4",
        "warm 2g@4 b",
    ]


def test_another_tenant_gets_the_instance_without_destroying_it() -> None:
    stage = Stage()
    stage.follow(0.0, (A2, A2_HIGH, B2))
    assert stage.follow(5.0, (A2, serves("b", 2, 2), B2)) == [
        "drain 2g@2 a",
        "stopworker 2g@2",
        "warm 2g@2 b",
    ]


def test_the_last_instance_serves_until_its_replacement_does() -> None:
    stage = Stage()
    stage.follow(0.0, (A2, B2))
    stage.held_back = {"warm 2g@2 a"}
    replaced = (A2_HIGH, serves("b", 2, 0), B2)
    assert stage.follow(5.0, replaced) == ["create 2g@2", "warm 2g@2 a"]
    assert stage.states()["2g@0"] == "ready a"
    assert stage.on(6.0, Ready(A2_HIGH, 1.0)) == [
        "drain 2g@0 a",
        "stopworker 2g@0",
        "warm 2g@0 b",
    ]


def test_the_only_worker_that_warms_is_waited_for() -> None:
    stage = Stage()
    stage.held_back = {"warm 2g@0 a", "warm 2g@2 a"}
    stage.follow(0.0, (A2,))
    assert stage.follow(1.0, (A2_HIGH,)) == ["create 2g@2", "warm 2g@2 a"]
    said = stage.on(2.0, Ready(A2_HIGH, 1.0))
    assert said == ["stopworker 2g@0", "destroy 2g@0"]


def test_extra_capacity_stays_until_what_replaces_it_is_ready() -> None:
    stage = Stage()
    stage.follow(0.0, (A2, serves("a", 1, 6)))
    stage.held_back = {"warm 2g@2 a"}
    assert stage.follow(5.0, (A2_HIGH, serves("a", 1, 6))) == ["create 2g@2", "warm 2g@2 a"]
    said = stage.on(6.0, Ready(A2_HIGH, 1.0))
    assert said == ["drain 2g@0 a", "stopworker 2g@0", "destroy 2g@0"]


def test_tenants_that_change_places_do_not_wait_for_each_other_for_ever() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, B3))
    stage.follow(5.0, (serves("b", 4, 0), serves("a", 3, 4)))
    assert stage.states() == {"4g@0": "ready b", "3g@4": "ready a"}


def test_free_slices_are_used_ahead_of_need() -> None:
    stage = Stage(lead_s=2.0)
    stage.follow(0.0, *[(A4,)] * 5, (A4, B3))
    assert stage.tick(2.9) == []
    assert stage.tick(3.0) == ["create 3g@4", "warm 3g@4 b"]


def test_a_retraining_gets_its_instance_early_and_begins_in_its_slot() -> None:
    stage = Stage(lead_s=5.0)
    said = stage.follow(0.0, (A4,), (A4,), (A4, trains("b", 3, 4)))
    assert "create 3g@4" in said
    assert stage.states()["3g@4"] == "idle"
    assert stage.tick(2.0) == ["train 3g@4 b"]


def test_an_instance_that_somebody_removed_is_made_again() -> None:
    stage = Stage()
    stage.follow(0.0, (A4,))
    assert stage.on(1.0, Destroyed(A4)) == ["create 4g@0", "warm 4g@0 a"]


@pytest.mark.parametrize(
    ("slots", "word"),
    [
        ([], "no slots"),
        ([(A4, serves("b", 2, 2))], "no room"),
        ([(A4, A4)], "no room"),
        ([(Instance(3, 4),)], "no place"),
    ],
)
def test_a_decision_the_board_cannot_take_is_refused(
    slots: list[tuple[Instance, ...]], word: str
) -> None:
    stage = Stage()
    stage.follow(0.0, (A4,))
    with pytest.raises(InputError, match=word):
        stage.follow(1.0, *slots)
    assert stage.tick(2.0) == []


def test_a_retraining_that_lasts_longer_leaves_its_tenant_what_serves_it() -> None:
    """The plan has its place for the tenant's inference by now, and the other's for somebody."""
    stage = Stage()
    stage.held_back = {"train 3g@4 a"}
    stage.follow(0.0, (A4, trains("a", 3, 4)))
    planned = (serves("b", 4, 0), serves("a", 3, 4))
    assert not [line for line in stage.follow(5.0, planned) if line.startswith("drain")]
    assert stage.states() == {"4g@0": "ready a", "3g@4": "training a"}
    said = stage.on(9.0, TrainingEnded(trains("a", 3, 4), "a", ok=True))
    assert said[0] == "warm 3g@4 a"
    assert said[-1] == "warm 4g@0 b"


def test_a_removed_tenant_keeps_no_instance_where_nothing_else_needs_the_place() -> None:
    stage = Stage()
    alone, both = (serves("a", 3, 0),), (serves("a", 3, 0), serves("b", 3, 4))
    stage.follow(0.0, both)
    assert stage.follow(1.0, alone) == []  # harmless: b may come back
    stage.executor.remove("b")
    assert stage.tick(2.0) == ["drain 3g@4 b", "stopworker 3g@4", "destroy 3g@4"]
    stage.executor.add("b")
    stage.follow(3.0, both)
    assert stage.follow(4.0, alone) == []


# as in a window of the live demo: both tenants lose all their places at once
BEFORE = (serves("b", 2, 0), serves("a", 2, 2), serves("a", 2, 4), serves("a", 1, 6))
AFTER = (serves("a", 2, 0), serves("b", 1, 2), trains("b", 1, 3), trains("a", 3, 4))


def test_nobody_is_without_what_serves_where_heirs_can_come_one_after_the_other() -> None:
    stage = Stage()
    stage.follow(0.0, BEFORE)
    stage.held_back = {"warm 1g@2 b", "warm 2g@0 a"}
    stage.follow(5.0, AFTER)
    # b's heir gets the slices of those that a can spare; the last of a waits for b to go
    assert stage.states()["2g@0"] == "ready b"
    assert stage.states()["1g@6"] == "ready a"
    assert stage.states()["1g@2"] == "warming b"
    stage.on(6.0, Ready(serves("b", 1, 2), 1.0))
    assert stage.states()["2g@0"] == "warming a"
    assert stage.states()["1g@6"] == "ready a"
    stage.on(7.0, Ready(serves("a", 2, 0), 1.0))
    assert stage.states() == {
        "2g@0": "ready a",
        "1g@2": "ready b",
        "1g@3": "training b",
        "3g@4": "training a",
    }


def test_where_every_order_leaves_a_gap_it_is_no_longer_than_the_plan_charges() -> None:
    """There is no free place: if one waited for the other, its gap would be twice as long."""
    stage = Stage()
    stage.follow(0.0, (serves("a", 3, 0), serves("b", 3, 4)))
    stage.held_back = {"warm 3g@4 a", "warm 3g@0 b"}
    stage.follow(5.0, (serves("b", 3, 0), serves("a", 3, 4)))
    assert stage.states() == {"3g@0": "warming b", "3g@4": "warming a"}


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
