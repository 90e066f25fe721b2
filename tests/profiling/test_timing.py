"""Times of a repeated step: on a clock that only it moves, and by what happened beside it."""

from __future__ import annotations

import pytest

from migrator.profiling import worker
from migrator.profiling.changes import ChangeKind, ShareChange, figures_by_change
from migrator.profiling.measurements import Repetition
from migrator.profiling.worker import percentiles, time_steps


class Clock:
    """A monotonic clock that stands still between steps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.steps = 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def take(self, seconds: float) -> None:
        self.now += seconds
        self.steps += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    stopped = Clock()
    monkeypatch.setattr(worker, "time", stopped)
    return stopped


def test_only_whole_steps_of_the_interval_count(clock: Clock) -> None:
    times = time_steps(lambda: clock.take(0.25), 101.0, Repetition(0.5, 1.0, 0.5))
    assert times == [0.25] * 4
    assert clock.steps == 8  # two to warm up, four measured, two after


def test_a_step_longer_than_the_interval_still_counts(clock: Clock) -> None:
    assert time_steps(lambda: clock.take(7.0), 100.0, Repetition(0.1, 0.5)) == [7.0]


def test_percentiles_are_of_the_steps() -> None:
    figures = percentiles([ms / 1e3 for ms in range(1, 101)])
    assert figures == {
        "p50_ms": 50.5,
        "p95_ms": 95.0,
        "p99_ms": 99.0,
        "mean_ms": 50.5,
        "steps": 100,
    }


def test_a_step_counts_for_every_change_during_which_it_ran() -> None:
    began_s = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    took_s = [0.5, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7]
    changes = [
        ShareChange(ChangeKind.CREATE, 3.2, 4.1),
        ShareChange(ChangeKind.START, 4.2, 4.3),
        ShareChange(ChangeKind.STOP, 4.9, 4.95),
        ShareChange(ChangeKind.CREATE, 6.1, 9.0),
    ]
    figures = figures_by_change(began_s, took_s, 0.9, changes)
    # neither the first, which warms up, nor any that a change touches
    assert (figures["steps"], figures["longest_ms"]) == (2, 200.0)
    during = figures["during"]
    assert list(during) == ["create", "start"]
    assert (during["create"]["changes"], during["create"]["steps"]) == (2, 3)
    assert (during["create"]["p50_ms"], during["create"]["longest_ms"]) == (400.0, 700.0)
    assert (during["start"]["steps"], during["start"]["p50_ms"]) == (1, 400.0)


def test_a_step_longer_than_the_quiet_time_counts_as_quiet() -> None:
    figures = figures_by_change([0.0], [5.0], 0.1, [ShareChange(ChangeKind.START, 1.0, 2.0)])
    assert (figures["steps"], figures["p50_ms"]) == (1, 5000.0)
