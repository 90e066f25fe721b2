"""How a decision is followed: order of steps, what is kept, what is begun ahead."""

import pytest
from support.executor_stage import Stage, serves, trains

from migrator.control.events import (
    Created,
    CreateFailed,
    Destroyed,
    Drained,
    Ready,
    Stopped,
    TrainingEnded,
    WorkerLost,
)
from migrator.core.errors import InputError
from migrator.core.problem import Instance

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


def test_one_of_several_goes_at_once_where_its_slices_are_needed() -> None:
    stage = Stage()
    stage.follow(0.0, (A2, serves("a", 1, 6), B2))
    stage.held_back = {"warm 2g@2 a"}
    said = stage.follow(5.0, (A2_HIGH, serves("a", 1, 6), serves("b", 2, 0), B2))
    assert "drain 2g@0 a" in said


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


def test_a_tenant_the_plan_forgets_keeps_what_nobody_needs() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, B3))
    assert stage.follow(5.0, (B3,)) == []
    assert stage.follow(9.0, (B3, serves("b", 2, 0)))[0] == "drain 4g@0 a"


def test_what_comes_back_soon_is_not_taken_away() -> None:
    stage = Stage()
    two = serves("a", 1, 2)
    stage.follow(0.0, (A2, two), (A2,), (A2, two))
    assert stage.tick(1.0) == stage.tick(2.0) == []


def test_free_slices_are_used_ahead_of_need() -> None:
    stage = Stage(lead_s=2.0)
    stage.follow(0.0, *[(A4,)] * 5, (A4, B3))
    assert stage.tick(2.9) == []
    assert stage.tick(3.0) == ["create 3g@4", "warm 3g@4 b"]


def test_slow_starts_begin_earlier() -> None:
    stage = Stage(lead_s=2.0, overheads_s={"b": 2.0})
    stage.follow(0.0, *[(A4,)] * 5, (A4, B3))
    assert stage.tick(1.0) == ["create 3g@4", "warm 3g@4 b"]


def test_quick_starts_do_not_begin_as_early_as_slow_ones() -> None:
    stage = Stage(lead_s=2.0, overheads_s={"a": 0.1, "b": 4.0})
    stage.follow(0.0, *[(A4,)] * 6, (A4, serves("a", 2, 4), serves("b", 1, 6)))
    assert stage.tick(1.0) == []
    assert stage.states() == {"4g@0": "ready a", "1g@6": "ready b"}
    assert stage.tick(4.0) == ["create 2g@4", "warm 2g@4 a"]


def test_nothing_is_begun_ahead_where_an_instance_for_nobody_is_refused() -> None:
    stage = Stage(lead_s=5.0)
    stage.held_back = {"create 3g@4"}
    nobody = Instance(4, 3)
    stage.follow(0.0, (A4, nobody), (A4, nobody), (A4, nobody), (A4, B2))
    said = stage.on(0.5, CreateFailed(nobody, "refused"))
    assert "create 2g@4" not in said
    assert "create 2g@4" in stage.tick(3.0)


def test_nothing_is_begun_where_somebody_else_comes_first() -> None:
    stage = Stage(lead_s=5.0)
    small = serves("a", 1, 4)
    stage.held_back = {"warm 1g@4 a"}
    said = stage.follow(0.0, (A4,), (A4, small), (A4, B3))
    assert said == ["create 4g@0", "create 1g@4", "warm 4g@0 a", "warm 1g@4 a"]


def test_a_retraining_gets_its_instance_early_and_begins_in_its_slot() -> None:
    stage = Stage(lead_s=5.0)
    said = stage.follow(0.0, (A4,), (A4,), (A4, trains("b", 3, 4)))
    assert "create 3g@4" in said
    assert stage.states()["3g@4"] == "idle"
    assert stage.tick(2.0) == ["train 3g@4 b"]


def test_a_spare_of_the_right_size_is_used() -> None:
    stage = Stage()
    stage.executor.adopt(0.0, [Instance(0, 4), Instance(4, 2)])
    said = stage.follow(0.0, (A4, B3))
    assert said == ["warm 4g@0 a", "destroy 2g@4", "create 3g@4", "warm 3g@4 b"]


def test_an_instance_for_nobody_exists_and_idles() -> None:
    stage = Stage()
    assert stage.follow(0.0, (A4, Instance(4, 3))) == ["create 4g@0", "create 3g@4", "warm 4g@0 a"]
    assert stage.states()["3g@4"] == "idle"


def test_events_that_fit_nothing_are_ignored() -> None:
    stage = Stage()
    stage.follow(0.0, (A4,))
    before = stage.executor.units
    for event in (Created(A4), Drained(A4), Stopped(A4), Ready(A4, 1.0), WorkerLost(B3, "killed")):
        assert stage.on(1.0, event) == []
    assert stage.executor.units == before


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
