"""Every decision has a line that says why, a count and a time."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from support.watched_run import PHOTOS, Run, decision, watched_run

from migrator.control.events import (
    Create,
    Created,
    CreateFailed,
    Destroy,
    Destroyed,
    DestroyFailed,
    Drain,
    Drained,
    Ready,
    Replan,
    Stopped,
    StopWorker,
    Train,
    TrainingEnded,
    Warm,
    WorkerLost,
)
from migrator.control.executor import Executor
from migrator.core.instance import Instance, Kind, Task
from migrator.core.share import Share

AT = Instance(0, 4)


@pytest.fixture
def run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Run:
    caplog.set_level(logging.INFO, "migrator")
    return watched_run(tmp_path)


def test_a_life_of_an_instance_is_counted_and_timed(run: Run) -> None:
    decisions = run.recorder.decisions
    for said, heard in (
        (Create(AT), Created(AT)),
        (Warm(AT, "photos"), Ready(Instance(0, 4, PHOTOS), 1.0)),
        (Drain(AT, "photos"), Drained(AT)),
        (StopWorker(AT), Stopped(AT)),
        (Train(AT, "photos"), TrainingEnded(AT, "photos", True)),
        (Destroy(AT), Destroyed(AT)),
    ):
        decisions.told(said)
        run.now_s[0] += 2.0
        decisions.heard(heard)
    done = ("create", "warm", "drain", "stop", "train", "destroy")
    assert run.counted("migrator_reconfigurations_total") == {(each, "done"): 1 for each in done}
    for part in ("create", "warm", "drain", "stop", "destroy"):
        assert run.value("migrator_reconfiguration_seconds_sum", part=part) == 2.0
    assert run.value("migrator_retraining_seconds_sum") == 2.0
    assert not run.counted("migrator_worker_losses_total")


def test_what_fails_is_counted_as_failed_and_is_the_reason_for_the_next(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    decisions = run.recorder.decisions
    decisions.told(Create(AT))
    decisions.heard(CreateFailed(AT, "no room"))
    decisions.told(Create(AT))
    decisions.heard(Created(AT))
    decisions.told(Warm(AT, "photos"))
    decisions.heard(WorkerLost(AT, "it died"))
    decisions.told(Warm(AT, "photos"))
    decisions.heard(Ready(AT, 1.0))
    decisions.heard(WorkerLost(AT, "it died while it served"))
    decisions.told(Warm(AT, "photos"))
    decisions.told(StopWorker(AT))
    decisions.told(Destroy(AT))
    decisions.heard(DestroyFailed(AT, "in use"))
    decisions.told(Train(AT, "photos"))
    decisions.heard(TrainingEnded(AT, "photos", False, "lost"))
    assert run.counted("migrator_reconfigurations_total") == {
        ("create", "failed"): 1,
        ("create", "done"): 1,
        ("warm", "failed"): 1,
        ("warm", "done"): 1,
        ("warm", "stopped"): 1,
        ("destroy", "failed"): 1,
        ("train", "failed"): 1,
    }
    assert run.counted("migrator_worker_losses_total") == {("photos",): 2}
    assert run.counted("migrator_retrainings_total") == {("failed", "photos"): 1}
    because = [each.__dict__["because"] for each in caplog.records]
    first = "the board is split evenly until the first plan"
    assert because[:2] == [first, "after CreateFailed: no room"]
    assert because[3:5] == [
        "after WorkerLost: it died",
        "after WorkerLost: it died while it served",
    ]


def test_lines_say_what_when_for_whom_and_why(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run.now_s[0] += 3.0
    run.recorder.decisions.asked("the window begins")
    run.recorder.plan_followed(decision(run, [(1.0, 2.0)]), 0.75)
    run.recorder.decisions.told(Warm(AT, "photos"))
    plan, warm = caplog.records
    assert plan.getMessage() == (
        "plan for 2 slots by migrator after 0.75 s, expects goodput 8 with a gap of 25.00%; "
        "because the window begins"
    )
    fields = {"decision": "plan-taken", "window": 0, "slot": 3, "planned_by": "migrator"}
    fields |= {"because": "the window begins", "seconds": 0.75, "gap": 0.25, "solver": "exact"}
    assert fields.items() <= vars(plan).items()
    reason = "the plan taken in slot 3 of window 0, asked for because the window begins"
    assert warm.getMessage() == f"warm 4g@0 for photos: {reason}"
    assert {"instance": "4g@0", "tenant": "photos", "slot": 3}.items() <= vars(warm).items()


def test_reasons_to_plan_are_counted_by_kind(run: Run) -> None:
    decisions = run.recorder.decisions
    for reason in ("the window begins", "it is time", "asked for by an operator", "a is drained"):
        decisions.asked(reason)
    decisions.told(Replan("4g@0 is late by 7 s", "late"))
    decisions.asked("4g@0 is late by 7 s")
    decisions.asked("whatever somebody thinks of next")
    kinds = ("window", "regular", "operator", "drained", "late", "other")
    assert run.counted("migrator_plans_asked_total") == {(each,): 1 for each in kinds}


def test_the_executor_names_the_kind_of_its_reasons(run: Run) -> None:
    executor = Executor(run.context.resources.gpu.board)
    wanted = Instance(0, 4, Task("photos", Kind.INFERENCE))
    executor.follow(0.0, [(wanted,)], 1.0)
    (replan,) = [
        each for each in executor.on(1.0, CreateFailed(AT, "no")) if isinstance(each, Replan)
    ]
    assert replan.about == "create"
    late = [each for each in executor.tick(60.0) if isinstance(each, Replan)]
    assert {each.about for each in late} == {"late"}


def test_shares_are_told_like_instances(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    share = Share(0, 25.0, PHOTOS)
    run.recorder.decisions.told(Create(share))
    run.recorder.decisions.heard(Created(share))
    run.recorder.decisions.told(Warm(share, "photos"))
    run.recorder.decisions.heard(Ready(share, 0.5))
    assert run.counted("migrator_reconfigurations_total") == {
        ("create", "done"): 1,
        ("warm", "done"): 1,
    }
    assert "warm 25% for photos" in caplog.records[-1].getMessage()
