"""Goodput by the labels of answers, and forecast errors: what they count, and what is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from support.watched_run import Run, came, decision, judge, watched_run

from migrator.core.evidence import Accuracy, Evidence
from migrator.records.rows import TenantWindowRecord


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return watched_run(tmp_path)


def next_window(run: Run) -> None:
    run.recorder.end_window()
    run.now_s[0] = run.context.clock.began_s + run.context.clock.window_s
    run.context.clock.advance()


def rows(run: Run) -> list[TenantWindowRecord]:
    """The rows that were put for the windows of photos."""
    calls = cast(Any, run.context.records.put).call_args_list
    put = [call.args[0] for call in calls]
    return [row for row in put if isinstance(row, TenantWindowRecord) and row.tenant == "photos"]


def test_an_accuracy_says_what_it_rests_on(run: Run) -> None:
    recorder, tenant = run.recorder, run.context.tenants["photos"]
    assert recorder.accuracy("photos") == Accuracy(1.0, Evidence.NONE)
    tenant.model.measure(0.5)
    assert recorder.accuracy("photos") == Accuracy(0.5, Evidence.SAMPLES)
    judge(run, came(run, "photos", 100), 16, 3)
    assert recorder.accuracy("photos").evidence is Evidence.SAMPLES, "19 labels say little"
    judge(run, came(run, "photos", 100), 0, 1)
    assert recorder.accuracy("photos") == Accuracy(0.8, Evidence.ANSWERS)
    next_window(run)
    assert recorder.accuracy("photos").evidence is Evidence.SAMPLES


def test_without_labels_the_goodput_of_a_window_is_unknown_whatever_is_believed(run: Run) -> None:
    run.context.tenants["photos"].model.measure(0.997)
    came(run, "photos", 100)
    next_window(run)
    (row,) = rows(run)
    assert (row.in_time, row.goodput, row.wrong) == (100, None, None)
    assert row.evidence is Evidence.SAMPLES


def test_labels_that_come_after_a_window_count_for_its_answers(run: Run) -> None:
    second = came(run, "photos", 10)
    next_window(run)
    judge(run, came(run, "photos", 10), 0, 10)
    judge(run, second, 9, 1)
    run.recorder.settle()
    assert [row.goodput for row in rows(run)] == [None, 9]
    run.recorder.settle()
    assert len(rows(run)) == 2, "nothing has changed"
    next_window(run)
    assert [row.goodput for row in rows(run)] == [None, 9, 0]


def test_answers_that_come_after_a_window_count_for_it(run: Run) -> None:
    counts = run.context.router.counts["photos"]
    second = counts.receive(run.now_s[0], 4)
    next_window(run)
    counts.answer(second, 3, 0.1, late=False)
    counts.answer(second, 1, 0.3, late=True)
    run.recorder.settle()
    before, after = rows(run)
    assert (before.received, before.in_time, before.late) == (4, 0, 0)
    assert (after.received, after.in_time, after.late) == (4, 3, 1)


def test_forecasts_are_held_to_the_slots_they_were_for(run: Run) -> None:
    errors, clock = run.recorder.forecasts, run.context.clock
    errors.compare({"photos": 9.0, "cameras": 2.0})  # nothing was foretold
    problem = decision(run, [(1.0, 2.0, 3.0), (3.0, 4.0, 5.0)]).problem
    assert problem is not None
    errors.expect(problem)  # the last three of ten slots
    for slot, received in ((6, 50.0), (7, 4.0), (8, 3.0), (9, 4.0)):
        run.now_s[0] = clock.began_s + slot + 1.02
        errors.compare({"photos": received, "cameras": 1.0})
    assert errors.absolute == {"photos": 2.0}
    assert errors.received == {"photos": 11.0}
    assert errors.slots == {"photos": 3}
    assert errors.last == {}
    next_window(run)
    assert errors.last == {"photos": pytest.approx(2 / 11)}
    run.now_s[0] += 1
    errors.compare({"photos": 70.0})  # the plan before says nothing of this window
    assert errors.slots == {"photos": 3}
