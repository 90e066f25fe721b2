"""What the executor makes of refusals, losses and retrainings that do not go as planned."""

from support.executor_stage import Stage, serves, trains

from migrator.control.events import (
    CreateFailed,
    DestroyFailed,
    Drained,
    Ready,
    TrainingEnded,
    WorkerLost,
)
from migrator.control.units import AVOIDED_SLOTS, LOSSES, LOST_WAIT_SLOTS

A4, B3 = serves("a", 4, 0), serves("b", 3, 4)
A_TRAINS = trains("a", 3, 4)


def _told(said: list[str]) -> list[str]:
    return [line for line in said if line.startswith("replan")]


def test_a_refused_creation_is_tried_again_later_and_later() -> None:
    stage = Stage()
    stage.held_back = {"create 4g@0"}
    stage.follow(0.0, (A4,))
    said = stage.on(1.0, CreateFailed(A4, "no room"))
    assert said == ["replan: 4g@0 could not be created: no room"]
    assert stage.tick(2.9) == []
    assert stage.tick(3.0) == ["create 4g@0"]
    stage.on(3.0, CreateFailed(A4, "no room"))
    assert "create 4g@0" not in stage.tick(6.9)
    assert "create 4g@0" in stage.tick(7.0)


def test_while_creation_is_refused_the_old_instance_serves() -> None:
    stage = Stage()
    stage.follow(0.0, (serves("a", 2, 0),))
    stage.held_back = {"create 2g@2"}
    new = serves("a", 2, 2)
    stage.follow(1.0, (new, serves("b", 2, 0)))
    stage.on(1.2, CreateFailed(new, "refused"))
    assert stage.states() == {"2g@0": "ready a"}


def test_a_lost_worker_is_replaced_then_the_instance_then_the_place_rests() -> None:
    stage = Stage()
    stage.follow(0.0, (A4,))
    lost = WorkerLost(A4, "killed")
    for _ in range(LOSSES):
        assert stage.on(1.0, lost) == ["warm 4g@0 a"]
    assert stage.on(1.0, lost) == ["destroy 4g@0", "create 4g@0", "warm 4g@0 a"]
    for _ in range(LOSSES):
        assert stage.on(1.0, lost) == ["warm 4g@0 a"]
    assert stage.on(1.0, lost) == ["replan: 4g@0 keeps losing the workers of a/inference: killed"]
    assert [e for e in stage.tick(0.9 + LOST_WAIT_SLOTS) if not e.startswith("replan")] == []
    assert stage.tick(1.0 + LOST_WAIT_SLOTS) == ["warm 4g@0 a"]


def test_a_worker_lost_while_it_drains_is_stopped_all_the_same() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, B3))
    stage.held_back = {"drain 4g@0 a", "stopworker 4g@0"}
    stage.follow(1.0, (serves("b", 4, 0), serves("a", 3, 4)))
    assert stage.on(1.1, WorkerLost(A4, "killed")) == ["stopworker 4g@0"]
    assert stage.on(1.2, Drained(A4)) == []


def test_an_instance_that_cannot_be_destroyed_is_tried_then_avoided() -> None:
    stage = Stage()
    stage.executor.adopt(0.0, [B3])
    stage.held_back = {"destroy 3g@4"}
    failed = DestroyFailed(B3, "in use")
    assert "destroy 3g@4" in stage.follow(0.0, (A4,))
    assert stage.on(0.0, failed) == []
    assert stage.tick(2.0) == ["destroy 3g@4"]
    assert stage.on(2.0, failed) == []
    assert stage.tick(4.0) == ["destroy 3g@4"]
    said = stage.on(4.0, failed)
    assert said == ["replan: 3g@4 cannot be destroyed and its place is avoided: in use"]
    assert stage.tick(3.9 + AVOIDED_SLOTS) == []
    assert stage.tick(4.0 + AVOIDED_SLOTS) == ["destroy 3g@4"]


def test_the_plan_yields_to_a_retraining_and_what_served_serves_on() -> None:
    stage = Stage()
    stage.follow(0.0, (serves("a", 4, 0), trains("b", 2, 4), serves("b", 1, 6)))
    said = stage.follow(5.0, (serves("a", 4, 0), serves("b", 3, 4)))
    assert said == [
        "replan: b/retraining still runs on 2g@4, which the plan has for something else"
    ]
    assert stage.states()["1g@6"] == "ready b"
    assert stage.tick(6.0) == []
    ended = stage.on(7.0, TrainingEnded(trains("b", 2, 4), "b", True))
    assert "destroy 2g@4" in ended
    assert ended[-2:] == ["create 3g@4", "warm 3g@4 b"]


def test_a_retraining_that_is_done_is_not_begun_again_in_its_window() -> None:
    stage = Stage()
    decided = (A4, A_TRAINS)
    stage.follow(0.0, decided, window=3)
    assert "train" not in " ".join(stage.on(5.0, TrainingEnded(A_TRAINS, "a", True)))
    assert "train 3g@4 a" not in stage.follow(6.0, decided, window=3)
    assert "train 3g@4 a" in stage.follow(9.0, decided, window=4)


def test_a_retraining_that_outlasts_its_window_is_not_begun_again_in_the_next() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, A_TRAINS), window=3)
    stage.follow(200.0, (A4, A_TRAINS), window=4)
    assert "train" not in " ".join(stage.on(201.0, TrainingEnded(A_TRAINS, "a", True)))
    assert "train 3g@4 a" not in stage.follow(202.0, (A4, A_TRAINS), window=4)
    assert "train 3g@4 a" in stage.follow(400.0, (A4, A_TRAINS), window=5)


def test_a_failed_retraining_is_resumed_on_its_instance_but_not_for_ever() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, A_TRAINS), window=0)
    failed = TrainingEnded(A_TRAINS, "a", False, "killed")
    first = stage.on(10.0, failed)
    assert first == ["replan: a/retraining failed on 3g@4: killed", "train 3g@4 a"]
    assert stage.on(20.0, failed)[-1] == "train 3g@4 a"
    assert "train 3g@4 a" not in stage.on(30.0, failed)


def test_a_tenant_is_not_retrained_twice_at_once() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, A_TRAINS))
    said = stage.follow(5.0, (serves("a", 3, 4), trains("a", 4, 0)))
    assert not [line for line in said if line.startswith(("train", "stop", "destroy 3g@4"))]
    assert stage.states()["3g@4"] == "training a"


def test_what_is_late_is_told_now_and_then() -> None:
    stage = Stage()
    stage.held_back = {"warm 4g@0 a"}
    stage.follow(0.0, (A4,))
    assert stage.tick(5.0) == []
    replans = [_told(stage.tick(now_s)) for now_s in (5.5, 6.0, 10.0, 10.5)]
    assert [len(lines) for lines in replans] == [1, 0, 0, 1]
    assert stage.on(11.0, Ready(A4, 11.0)) == stage.tick(30.0) == []


def test_leaving_frees_everything_but_waits_for_retrainings() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, A_TRAINS))
    stage.carry_out(1.0, stage.executor.leave(1.0))
    assert stage.states() == {"3g@4": "training a"}
    assert stage.on(2.0, TrainingEnded(A_TRAINS, "a", True)) == ["destroy 3g@4"]
    assert stage.executor.units == ()


def test_a_decision_after_leaving_is_followed_again() -> None:
    stage = Stage()
    stage.follow(0.0, (A4,))
    stage.carry_out(1.0, stage.executor.leave(1.0))
    stage.follow(2.0, (A4,))
    assert stage.states() == {"4g@0": "ready a"}
