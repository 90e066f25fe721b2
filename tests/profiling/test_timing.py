"""Times of a repeated step, on a clock that only the step moves."""

from __future__ import annotations

import pytest

from migrator.profiling import worker
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
