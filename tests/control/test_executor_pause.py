"""Pausing: what serves goes on, what is lost is replaced, nothing is changed for a plan."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from support.amount import amount
from support.executor_plans import random_slots
from support.executor_stage import Stage, serves, trains
from support.executor_world import Faults, World

from migrator.control.events import Created, Destroyed, Drained, Stopped, TrainingEnded, WorkerLost
from migrator.control.executor import Executor
from migrator.control.memory import GpuMemory
from migrator.control.units import LOSSES
from migrator.core.catalogue import board
from migrator.core.problem import Instance, Kind, Share, Task

A4, B3 = serves("a", 4, 0), serves("b", 3, 4)
A2, A2_HIGH, B2 = serves("a", 2, 0), serves("a", 2, 2), serves("b", 2, 4)


def _pause(stage: Stage, now_s: float) -> list[str]:
    return stage.carry_out(now_s, stage.executor.pause(now_s))


def _resume(stage: Stage, now_s: float) -> list[str]:
    return stage.carry_out(now_s, stage.executor.resume(now_s))


def test_a_decision_is_kept_until_the_pause_is_over() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, B3))
    assert _pause(stage, 1.0) == []
    assert stage.executor.paused
    assert stage.follow(2.0, (A4, B2)) == []
    assert stage.tick(50.0) == []
    assert stage.states() == {"4g@0": "ready a", "3g@4": "ready b"}
    assert _resume(stage, 60.0)[:2] == ["drain 3g@4 b", "stopworker 3g@4"]
    assert stage.states() == {"4g@0": "ready a", "2g@4": "ready b"}
    assert not stage.executor.paused


def _hold(stage: Stage, now_s: float, *tenants: str) -> list[str]:
    return stage.carry_out(now_s, stage.executor.hold(now_s, frozenset(tenants)))


def test_plans_are_applied_once_neither_an_operator_nor_a_missing_process_holds_them() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, B3))
    assert _hold(stage, 1.0, "a", "b") == []
    assert not stage.executor.paused
    assert _pause(stage, 2.0) == []
    assert stage.follow(3.0, (A4, B2)) == []
    assert _hold(stage, 4.0) == []
    assert stage.executor.paused
    assert _hold(stage, 5.0, "a", "b") == []
    assert _resume(stage, 6.0) == []
    assert stage.states() == {"4g@0": "ready a", "3g@4": "ready b"}
    _hold(stage, 7.0)
    assert stage.states() == {"4g@0": "ready a", "2g@4": "ready b"}


def test_only_the_tenants_without_processes_keep_their_instances() -> None:
    stage = Stage()
    stage.follow(0.0, (A2, A2_HIGH, B3))
    assert _hold(stage, 1.0, "b") == []
    assert stage.executor.may_retrain("a")
    assert not stage.executor.may_retrain("b")
    stage.follow(2.0, (A4, B2))
    assert stage.states() == {"4g@0": "ready a", "3g@4": "ready b"}
    assert stage.tick(60.0) == [], "another plan would change nothing"
    retrained = serves("a", 1, 0), trains("b", 2, 2), B3
    stage.follow(61.0, retrained)
    assert stage.states() == {"1g@0": "ready a", "3g@4": "ready b"}
    _hold(stage, 62.0)
    assert stage.states() == {"1g@0": "ready a", "2g@2": "training b", "3g@4": "ready b"}


def test_a_held_tenant_never_takes_the_last_instance_of_another_one() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, B3))
    _hold(stage, 1.0, "b")
    stage.follow(2.0, (serves("b", 4, 0), serves("a", 3, 4)))
    assert stage.states() == {"4g@0": "ready a", "3g@4": "ready b"}


def test_no_plan_is_asked_for_where_a_held_worker_stays_on_the_place_of_another() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, B3))
    _hold(stage, 1.0, "a")
    assert stage.follow(2.0, (serves("b", 4, 0), serves("a", 3, 4))) == []
    assert [stage.tick(now_s) for now_s in (10.0, 60.0)] == [[], []]
    _hold(stage, 61.0)
    assert stage.states() == {"4g@0": "ready b", "3g@4": "ready a"}


def test_a_held_tenant_that_loses_its_workers_gets_one_that_waits_where_the_plan_has_it() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, B3))
    _hold(stage, 1.0, "b")
    stage.follow(2.0, (A4, B2))
    assert stage.on(3.0, WorkerLost(B3, "killed")) == ["destroy 3g@4", "create 2g@4", "warm 2g@4 b"]
    stage.carry_out(4.0, stage.executor.leave(4.0))
    assert stage.states() == {}


def test_the_newest_decision_is_followed_where_it_is_by_then() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, B3))
    _pause(stage, 1.0)
    stage.follow(2.0, (A2, B3), (A4, B2))
    _resume(stage, 10.0)
    assert stage.states() == {"4g@0": "ready a", "2g@4": "ready b"}


def test_a_lost_worker_is_replaced_and_an_instance_that_loses_them_is_made_anew() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, B3))
    _pause(stage, 1.0)
    lost = WorkerLost(A4, "killed")
    for number in range(LOSSES):
        assert stage.on(2.0 + number, lost) == ["warm 4g@0 a"]
    assert stage.on(9.0, lost) == ["destroy 4g@0", "create 4g@0", "warm 4g@0 a"]
    assert stage.on(10.0, Destroyed(B3)) == ["create 3g@4", "warm 3g@4 b"]


def test_a_retraining_goes_on_to_its_end_and_none_is_begun() -> None:
    stage = Stage()
    trained = trains("a", 3, 4)
    stage.follow(0.0, (A4, trained), window=0)
    _pause(stage, 1.0)
    assert stage.states()["3g@4"] == "training a"
    assert stage.on(2.0, TrainingEnded(trained, "a", ok=True)) == []
    assert stage.follow(3.0, (A4, trains("b", 3, 4)), window=1) == []
    assert stage.states() == {"4g@0": "ready a", "3g@4": "idle"}
    assert _resume(stage, 4.0) == ["train 3g@4 b"]


def test_what_was_being_made_stays_as_it_is() -> None:
    stage = Stage()
    stage.follow(0.0, (A2,))
    stage.held_back = {"create 2g@2"}
    assert stage.follow(1.0, (A2, A2_HIGH)) == ["create 2g@2"]
    _pause(stage, 1.0)
    assert stage.on(2.0, Created(A2_HIGH)) == []
    assert stage.states() == {"2g@0": "ready a", "2g@2": "idle"}
    assert _resume(stage, 3.0) == ["warm 2g@2 a"]


def test_who_is_being_emptied_of_its_last_instance_gets_it_back() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, B3))
    stage.held_back = {"drain 4g@0 a"}
    assert stage.follow(1.0, (A2, B3)) == ["drain 4g@0 a"]
    assert _pause(stage, 1.0) == []
    assert stage.on(2.0, Drained(A4)) == ["stopworker 4g@0", "warm 4g@0 a"]
    assert stage.states() == {"4g@0": "ready a", "3g@4": "ready b"}


def test_who_has_nothing_gets_what_the_plan_has_for_it() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, B3))
    stage.held_back = {"stopworker 4g@0", "destroy 4g@0"}
    stage.follow(1.0, (A2, B3))
    stage.on(1.5, Stopped(A4))
    assert stage.states()["4g@0"] == "destroying"
    assert _pause(stage, 2.0) == []
    assert stage.on(3.0, Destroyed(A4)) == ["create 2g@0", "warm 2g@0 a"]


def test_what_nobody_uses_makes_room_for_who_has_nothing() -> None:
    stage = Stage()
    stage.held_back = {"create 4g@0"}
    stage.follow(0.0, (serves("b", 4, 0),))
    assert stage.follow(1.0, (A2,)) == []
    assert _pause(stage, 2.0) == []
    assert stage.on(3.0, Created(A4)) == ["destroy 4g@0", "create 2g@0", "warm 2g@0 a"]


def test_leaving_ends_a_pause_and_begins_none() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, B3))
    _pause(stage, 1.0)
    stage.carry_out(2.0, stage.executor.leave(2.0))
    assert stage.states() == {}
    stage.executor.pause(3.0)
    assert not stage.executor.paused


def test_what_waited_for_the_pause_is_not_late_by_its_length() -> None:
    stage = Stage()
    stage.held_back = {"create 4g@0"}
    stage.follow(0.0, (A4,))
    stage.tick(1.0)
    assert stage.executor.late_s(3.0, A4) == 3.0
    stage.executor.pause(3.0)
    assert stage.executor.late_s(90.0, A4) == 0.0
    stage.executor.resume(100.0)
    assert stage.executor.late_s(101.0, A4) == 1.0


def test_shares_stand_still_too() -> None:
    stage = Stage()
    half = Share(0, 50.0, Task("a", Kind.INFERENCE))
    more = Share(0, 80.0, Task("a", Kind.INFERENCE))
    before = stage.carry_out(0.0, stage.executor.follow(0.0, [(half,)], 1.0))
    assert before[-1].startswith("warm")
    _pause(stage, 1.0)
    assert stage.carry_out(2.0, stage.executor.follow(2.0, [(more,)], 1.0)) == []
    assert stage.on(3.0, WorkerLost(half, "killed")) == [before[-1]]
    assert _resume(stage, 4.0) != []


@settings(deadline=None, max_examples=amount(15, 80))
@given(st.integers(0, 2**32 - 1), st.sampled_from(("A100-40GB", "A30-24GB", "H200-141GB-MPS")))
def test_random_pauses_touch_nothing_that_serves_and_all_is_reached_after_them(
    seed: int, name: str
) -> None:
    chance = random.Random(seed)
    create, destroy, warm, serve, train = (chance.choice([0.0, 0.1, 0.5]) for _ in range(5))
    faults = Faults(create, destroy, warm, serve, train, until_s=60.0)
    most = 4 if board(name).is_of_shares else 0
    executor = Executor(
        board(name), 4.0, {"a": 1.5, "b": 3.0}, memory=GpuMemory(most_standbys=most)
    )
    world = World(board(name), executor, seed, faults)
    while world.now_s < 80.0:
        world.follow(random_slots(chance, board(name)), window=0)
        world.run(chance.uniform(0.1, 10.0))
        world.pause()
        world.run(chance.uniform(0.1, 6.0))
        world.follow(random_slots(chance, board(name)), window=0)
        world.run(chance.uniform(0.1, 6.0))
        world.resume()
    world.run(200.0)
    assert world.missing() == []


def test_a_pause_with_nothing_there_changes_nothing() -> None:
    executor = Executor(board("A100-40GB"))
    assert executor.pause(0.0) == []
    executor.adopt(0.0, [Instance(0, 4)])
    assert executor.tick(1.0) == []
