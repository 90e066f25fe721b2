"""Every decision has a line that says why, a count and a time."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from support.watched_run import PHOTOS, Run, decision, watched_run

from migrator.control import events
from migrator.control.executor import Executor
from migrator.core.problem import Instance, Kind, Share, Task

AT = Instance(0, 4)


@pytest.fixture
def run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Run:
    caplog.set_level(logging.INFO, "migrator")
    return watched_run(tmp_path)


def test_every_step_of_an_instance_is_counted_and_timed(run: Run) -> None:
    decisions = run.recorder.decisions
    for instruction, event in (
        (events.Create(AT), events.Created(AT)),
        (events.Warm(AT, "photos"), events.Ready(Instance(0, 4, PHOTOS), 1.0)),
        (events.Drain(AT, "photos"), events.Drained(AT)),
        (events.StopWorker(AT), events.Stopped(AT)),
        (events.Train(AT, "photos"), events.TrainingEnded(AT, "photos", True)),
        (events.Destroy(AT), events.Destroyed(AT)),
    ):
        decisions.instructed(instruction)
        run.now_s[0] += 2.0
        decisions.ended(event)
    done = ("create", "warm", "drain", "stop", "train", "destroy")
    assert run.counted("migrator_reconfigurations_total") == {(unit, "done"): 1 for unit in done}
    for part in ("create", "warm", "drain", "stop", "destroy"):
        assert run.value("migrator_reconfiguration_seconds_sum", part=part) == 2.0
    assert run.value("migrator_retraining_seconds_sum") == 2.0
    assert not run.counted("migrator_worker_losses_total")


def test_what_fails_is_counted_as_failed_and_is_the_reason_for_the_next(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    decisions = run.recorder.decisions
    decisions.instructed(events.Create(AT))
    decisions.ended(events.CreateFailed(AT, "no room"))
    decisions.instructed(events.Create(AT))
    decisions.ended(events.Created(AT))
    decisions.instructed(events.Warm(AT, "photos"))
    decisions.ended(events.WorkerLost(AT, "it died"))
    decisions.instructed(events.Warm(AT, "photos"))
    decisions.ended(events.Ready(AT, 1.0))
    decisions.ended(events.WorkerLost(AT, "it died while it served"))
    decisions.instructed(events.Warm(AT, "photos"))
    decisions.instructed(events.StopWorker(AT))
    decisions.instructed(events.Destroy(AT))
    decisions.ended(events.DestroyFailed(AT, "in use"))
    decisions.instructed(events.Train(AT, "photos"))
    decisions.ended(events.TrainingEnded(AT, "photos", False, "lost"))
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
    because = [record.__dict__["because"] for record in caplog.records]
    first = "the board is split evenly until the first plan"
    assert because[:2] == [first, "after CreateFailed: no room"]
    assert because[3:5] == [
        "after WorkerLost: it died",
        "after WorkerLost: it died while it served",
    ]


def test_log_lines_have_instruction_time_tenant_and_reason(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.now_s[0] += 3.0
    run.recorder.decisions.plan_requested("the window begins")
    run.recorder.plan_followed(decision(run, [(1.0, 2.0)]), 0.75)
    run.recorder.decisions.instructed(events.Warm(AT, "photos"))
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
        decisions.plan_requested(reason)
    counted = {("window",): 1, ("regular",): 1, ("operator",): 1, ("other",): 1}
    assert run.counted("migrator_plans_asked_total") == counted


def test_the_executor_names_the_kind_of_its_reasons(run: Run) -> None:
    executor = Executor(run.context.gpu.board)
    wanted = Instance(0, 4, Task("photos", Kind.INFERENCE))
    executor.follow(0.0, [(wanted,)], 1.0)
    (replan,) = [
        instruction
        for instruction in executor.on(1.0, events.CreateFailed(AT, "no"))
        if isinstance(instruction, events.Replan)
    ]
    assert replan.about == "create"
    late = [replan for replan in executor.tick(60.0) if isinstance(replan, events.Replan)]
    assert {instruction.about for instruction in late} == {"late"}


def test_shares_are_recorded_like_instances(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    share = Share(0, 25.0, PHOTOS)
    run.recorder.decisions.instructed(events.Create(share))
    run.recorder.decisions.ended(events.Created(share))
    run.recorder.decisions.instructed(events.Warm(share, "photos"))
    run.recorder.decisions.ended(events.Ready(share, 0.5))
    assert run.counted("migrator_reconfigurations_total") == {
        ("create", "done"): 1,
        ("warm", "done"): 1,
    }
    assert "warm 25% for photos" in caplog.records[-1].getMessage()
