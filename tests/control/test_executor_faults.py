"""What the executor makes of refusals, losses and retrainings that do not go as planned."""

from support.executor_stage import Stage, serves, trains

from migrator.control.events import (
    Created,
    CreateFailed,
    Destroyed,
    DestroyFailed,
    Drained,
    Ready,
    TrainingEnded,
    WorkerLost,
)
from migrator.control.units import AVOIDED_SLOTS, LOSSES, LOST_WAIT_SLOTS, STEADY_SLOTS
from migrator.core.problem import Instance

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


def test_a_creation_that_worked_ends_the_count() -> None:
    stage = Stage()
    stage.held_back = {"create 4g@0"}
    stage.follow(0.0, (A4,))
    stage.on(0.0, CreateFailed(A4, "no room"))
    stage.tick(2.0)
    stage.on(2.0, Created(A4))
    stage.on(3.0, Destroyed(A4))
    stage.on(3.0, CreateFailed(A4, "no room"))
    assert "create 4g@0" in stage.tick(5.0)


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


def test_losses_long_apart_are_not_counted_together() -> None:
    stage = Stage()
    stage.follow(0.0, (A4,))
    for number in range(1, 4 * LOSSES):
        assert stage.on(number * STEADY_SLOTS, WorkerLost(A4, "killed")) == ["warm 4g@0 a"]


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


def test_an_instance_that_cannot_be_destroyed_serves_where_it_is_wanted() -> None:
    stage = Stage()
    stage.executor.adopt(0.0, [B3])
    stage.held_back = {"destroy 3g@4"}
    stage.follow(0.0, (A4,))
    for tried_s in (0.0, 2.0, 4.0):
        stage.tick(tried_s)
        stage.on(tried_s, DestroyFailed(B3, "in use"))
    assert stage.follow(5.0, (A4, B3)) == ["warm 3g@4 b"]
    assert stage.states()["3g@4"] == "ready b"


def test_an_instance_that_could_be_destroyed_ends_the_count() -> None:
    stage = Stage()
    stage.held_back = {"destroy 3g@4"}
    for begin_s in (0.0, 10.0):
        stage.executor.adopt(begin_s, [B3])
        stage.follow(begin_s, (A4,))
        for tried_s in (begin_s, begin_s + 2.0):
            assert stage.on(tried_s, DestroyFailed(B3, "in use")) == []
            assert stage.tick(tried_s + 2.0) == ["destroy 3g@4"]
        assert stage.on(begin_s + 4.0, Destroyed(B3)) == []


def test_nobody_makes_room_for_what_cannot_come() -> None:
    stage = Stage()
    stage.executor.adopt(0.0, [Instance(6, 1)])
    stage.held_back = {"destroy 1g@6"}
    extra = serves("a", 2, 4)
    stage.follow(0.0, (A4, extra))
    stage.on(0.5, DestroyFailed(Instance(6, 1), "in use"))
    assert stage.follow(1.0, (A4, B3)) == []
    assert stage.states()["2g@4"] == "ready a"
    said = stage.tick(2.5)
    assert said[:2] == ["drain 2g@4 a", "destroy 1g@6"]


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


def test_another_tenant_serves_on_where_a_retraining_blocks_its_successor() -> None:
    stage = Stage()
    extra = serves("a", 1, 6)
    stage.follow(0.0, (A4, trains("b", 2, 4), extra))
    said = stage.follow(5.0, (A4, B3))
    assert len(_told(said)) == len(said) == 1
    assert stage.states()["1g@6"] == "ready a"
    ended = stage.on(7.0, TrainingEnded(trains("b", 2, 4), "b", True))
    assert "drain 1g@6 a" in ended


def test_a_tenant_serves_on_where_its_late_retraining_blocks_only_one_of_its_successors() -> None:
    """The plan has its retraining's instance serve before the present one is replaced."""
    stage = Stage()
    others = (serves("b", 1, 0), trains("c", 1, 1), serves("c", 1, 6))
    stage.follow(0.0, (*others, trains("a", 2, 2), serves("a", 2, 4)))
    said = stage.follow(
        5.0, (*others, serves("a", 2, 2), serves("a", 1, 4), trains("b", 1, 5)), window=0
    )
    assert len(_told(said)) == len(said) == 1
    assert stage.states()["2g@4"] == "ready a"
    ended = stage.on(7.0, TrainingEnded(trains("a", 2, 2), "a", True))
    assert ended.index("warm 2g@2 a") < ended.index("drain 2g@4 a")
    assert {"2g@2": "ready a", "1g@4": "ready a"}.items() <= stage.states().items()


def test_two_instances_for_one_retraining_are_one_retraining() -> None:
    stage = Stage()
    stage.executor.adopt(0.0, [Instance(0, 4), Instance(4, 3)])
    said = stage.follow(0.0, (trains("a", 4, 0), A_TRAINS))
    assert said == ["train 4g@0 a"]


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


def test_what_is_to_be_learned_after_a_late_retraining_waits_for_the_next_decision() -> None:
    stage = Stage()
    stage.follow(0.0, (A4, A_TRAINS), window=3)
    stage.follow(200.0, (A4, A_TRAINS), window=4)
    stage.executor.renew("a")
    assert "train" not in " ".join(stage.on(201.0, TrainingEnded(A_TRAINS, "a", True)))
    assert "train 3g@4 a" in stage.follow(202.0, (A4, A_TRAINS), window=4)
    stage.on(203.0, TrainingEnded(A_TRAINS, "a", True))
    assert "train 3g@4 a" not in stage.follow(204.0, (A4, A_TRAINS), window=4)


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
