"""Goodput and forecast errors as counters: what they count, and that they never fall."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.watched_run import Run, came, decision, watched_run

from migrator.live.labels import LabelCounts


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return watched_run(tmp_path)


def next_window(run: Run) -> None:
    run.recorder.goodput.end_window()
    run.recorder.forecasts.end_window()
    run.now_s[0] = run.context.clock.began_s + run.context.clock.window_s
    run.context.clock.advance()


def test_few_labels_leave_it_to_the_accuracy_of_plans_many_decide(run: Run) -> None:
    goodput = run.recorder.goodput
    run.context.tenants["photos"].measure_accuracy(0.5)
    came(run, "photos", 100)
    run.labels["photos", 0] = LabelCounts(19, 19, 0)
    assert goodput.so_far("photos") == 50
    run.labels["photos", 0] = LabelCounts(40, 20, 2)
    assert goodput.so_far("photos") == pytest.approx(90)
    assert goodput.measured("photos") == pytest.approx(0.9)
    assert goodput.measured("cameras") is None
    assert goodput.so_far("cameras") == 0


def test_without_labels_answers_count_by_the_accuracy_of_the_model_that_gave_them(
    run: Run,
) -> None:
    goodput, tenant = run.recorder.goodput, run.context.tenants["photos"]
    tenant.measure_accuracy(0.4)
    came(run, "photos", 100)
    assert goodput.correct_now("photos") == 0.4
    tenant.adopt(None, 0.9)  # a retraining has ended
    came(run, "photos", 100)
    assert goodput.correct_now("photos") == 0.9
    assert goodput.so_far("photos") == pytest.approx(130)
    assert goodput.correct("photos") == pytest.approx(0.65)
    next_window(run)
    came(run, "photos", 10)
    assert goodput.correct("photos") == pytest.approx(0.9)
    assert goodput.so_far("photos") == pytest.approx(139)


def test_a_retraining_tells_how_good_the_answers_before_it_were(run: Run) -> None:
    goodput, tenant = run.recorder.goodput, run.context.tenants["photos"]
    tenant.measure_accuracy(0.8)
    came(run, "photos", 100)
    next_window(run)
    came(run, "photos", 100)
    assert goodput.correct("photos") == pytest.approx(0.8)
    goodput.settle("photos", 0.5)
    tenant.adopt(None, 0.9)
    came(run, "photos", 100)
    goodput.settle("photos", 0.7)
    assert goodput.correct("photos") == pytest.approx(0.6)
    next_window(run)
    assert goodput.so_far("photos") == pytest.approx(80 + 50 + 70)


def test_a_window_that_is_over_counts_by_all_its_labels(run: Run) -> None:
    goodput = run.recorder.goodput
    run.context.tenants["photos"].measure_accuracy(0.5)
    came(run, "photos", 100)
    run.labels["photos", 0] = LabelCounts(4, 4, 1)  # few, and yet all that is known of it
    next_window(run)
    came(run, "photos", 10)
    assert goodput.so_far("photos") == pytest.approx(75 + 5)


def test_it_never_falls_and_makes_up_what_labels_took_back(run: Run) -> None:
    goodput = run.recorder.goodput
    came(run, "photos", 100)
    assert goodput.so_far("photos") == 100
    run.labels["photos", 0] = LabelCounts(20, 20, 10)
    assert goodput.so_far("photos") == 100
    came(run, "photos", 60)
    assert goodput.so_far("photos") == 100
    came(run, "photos", 60)
    assert goodput.so_far("photos") == 110


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60), st.integers(0, 60), st.booleans()))
)
def test_whatever_comes_it_only_grows_and_never_passes_what_was_in_time(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, int, bool]]
) -> None:
    run = watched_run(tmp_path_factory.mktemp("run"), "photos")
    before = total = 0.0
    for in_time, judged, wrong, over in steps:
        came(run, "photos", in_time)
        total += in_time
        window = run.context.clock.number
        run.labels["photos", window] = LabelCounts(judged, judged, min(wrong, judged))
        now = run.recorder.goodput.so_far("photos")
        assert before <= now <= total
        before = now
        if over:
            next_window(run)


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
