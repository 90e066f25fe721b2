"""Shares of MPS: no slices, so there is room for them beside everything."""

from support.executor_stage import Stage

from migrator.control.events import Ready, TrainingEnded
from migrator.core.problem import Kind, Share, Task


def serves(tenant: str, percent: float, number: int = 0) -> Share:
    return Share(number, percent, Task(tenant, Kind.INFERENCE))


def trains(tenant: str, percent: float) -> Share:
    return Share(0, percent, Task(tenant, Kind.RETRAINING))


def test_a_share_is_made_warmed_and_then_left_alone() -> None:
    stage = Stage()
    said = stage.follow(0.0, (serves("a", 60), serves("b", 40)))
    assert said == ["create 40%", "create 60%", "warm 40% b", "warm 60% a"]
    assert stage.tick(5.0) == []
    assert stage.follow(6.0, (serves("a", 60), serves("b", 40))) == []


def test_another_percentage_is_another_process_and_the_old_one_serves_until_then() -> None:
    stage = Stage()
    stage.follow(0.0, (serves("a", 60), serves("b", 40)))
    stage.held_back = {"warm 80% a"}
    assert stage.follow(5.0, (serves("a", 80), serves("b", 20)))[:2] == ["create 80%", "create 20%"]
    assert "60% of a/inference" in stage.states()
    said = stage.on(6.0, Ready(serves("a", 80), 1.0))
    assert said == ["drain 60% a", "stopworker 60%", "destroy 60%"]
    assert set(stage.states()) == {"80% of a/inference", "20% of b/inference"}


def test_equal_shares_of_one_task_are_told_apart() -> None:
    stage = Stage()
    stage.follow(0.0, (serves("a", 30, 0), serves("a", 30, 1)))
    assert len(stage.executor.units) == 2


def test_a_retraining_with_another_share_is_stopped_and_continues_there() -> None:
    stage = Stage()
    stage.follow(0.0, (serves("a", 50), trains("a", 50)))
    assert stage.follow(3.0, (serves("a", 75), trains("a", 25)))[0] == "stoptraining 50% a"
    assert "train 25% a" not in stage.tick(4.0)
    said = stage.on(5.0, TrainingEnded(trains("a", 50), "a", False, "ended on request"))
    assert "train 25% a" in said
    assert "destroy 50%" in said
    for _ in range(3):  # a stop is no failure, so it may happen often
        stage.follow(6.0, (serves("a", 75), trains("a", 50)))
        stage.on(6.0, TrainingEnded(trains("a", 25), "a", False, "ended on request"))
        stage.follow(6.0, (serves("a", 75), trains("a", 25)))
        said = stage.on(6.0, TrainingEnded(trains("a", 50), "a", False, "ended on request"))
        assert "train 25% a" in said


def test_a_retraining_keeps_its_share_while_no_process_can_be_started_to_continue_it() -> None:
    stage = Stage()
    stage.follow(0.0, (serves("a", 50), trains("a", 50)))
    stage.carry_out(1.0, stage.executor.hold(1.0, frozenset({"a"})))
    assert stage.follow(3.0, (serves("a", 75), trains("a", 25))) == []
    assert [stage.tick(now_s) for now_s in (10.0, 60.0)] == [[], []]
    said = stage.carry_out(61.0, stage.executor.hold(61.0, frozenset()))
    assert said[0] == "stoptraining 50% a"


def test_a_retraining_that_ends_while_it_is_stopped_has_ended() -> None:
    stage = Stage()
    stage.follow(0.0, (trains("a", 50),), window=0)
    stage.follow(3.0, (trains("a", 25),), window=0)
    said = stage.on(4.0, TrainingEnded(trains("a", 50), "a", True))
    assert not [line for line in said if line.startswith("train")]


def test_a_retraining_runs_on_its_share_to_its_end() -> None:
    stage = Stage(resizes=False)
    stage.held_back = {"train 50% a"}
    said = stage.follow(0.0, (serves("a", 50), trains("a", 50)))
    assert said[-1] == "train 50% a" or "train 50% a" in said
    assert not [line for line in stage.follow(3.0, (serves("a", 50),)) if "destroy" in line]
    assert "50% of a/retraining" in stage.states()
