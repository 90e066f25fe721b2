"""Pausing: what serves goes on, what is lost is replaced, nothing is changed for a plan."""

from support.executor_stage import Stage, serves, trains

from migrator.control.events import Destroyed, Drained, TrainingEnded, WorkerLost
from migrator.control.units import LOSSES

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


def test_who_is_being_emptied_of_its_last_instance_gets_it_back() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, B3))
    stage.held_back = {"drain 4g@0 a"}
    assert stage.follow(1.0, (A2, B3)) == ["drain 4g@0 a"]
    assert _pause(stage, 1.0) == []
    assert stage.on(2.0, Drained(A4)) == ["stopworker 4g@0", "warm 4g@0 a"]
    assert stage.states() == {"4g@0": "ready a", "3g@4": "ready b"}


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
