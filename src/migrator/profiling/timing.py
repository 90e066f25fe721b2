"""Duration of a step: repeated over a measured interval, summarised as percentiles."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Step = Callable[[], None]


@dataclass(frozen=True)
class Pace:
    """Seconds that a step is repeated before, during and after its measurement."""

    warm_s: float
    measured_s: float
    after_s: float = 0.0
    """Continues so that neighbours are not measured alone."""

    def times(self, factor: float) -> Pace:
        """The durations multiplied by a factor."""
        return Pace(self.warm_s * factor, self.measured_s * factor, self.after_s * factor)

    @property
    def total_s(self) -> float:
        """Sum of the three durations in seconds."""
        return self.warm_s + self.measured_s + self.after_s


def timed(step: Step, start_s: float, pace: Pace) -> list[float]:
    """Seconds of each step that began and ended in the measured interval.

    `start_s` is on the monotonic clock, which all processes of a machine share.
    """
    begin_s = start_s + pace.warm_s
    end_s = begin_s + pace.measured_s
    times: list[float] = []
    time.sleep(max(0.0, start_s - time.monotonic()))
    now = time.monotonic()
    # A step that is longer than the interval would give no result, so continue until there is one.
    while now < end_s + pace.after_s or not times:
        began = now
        step()
        now = time.monotonic()
        if began >= begin_s and (now <= end_s or not times):
            times.append(now - began)
    return times


def percentiles(times_s: Sequence[float]) -> dict[str, float]:
    """Median, 95th and 99th percentile and mean in milliseconds, and the number of steps."""
    ordered = sorted(times_s)
    return {
        "p50_ms": _ms(statistics.median(ordered)),
        "p95_ms": _ms(ordered[math.ceil(0.95 * len(ordered)) - 1]),
        "p99_ms": _ms(ordered[math.ceil(0.99 * len(ordered)) - 1]),
        "mean_ms": _ms(statistics.fmean(ordered)),
        "steps": len(ordered),
    }


def _ms(seconds: float) -> float:
    # Nanosecond precision, because a step on a fast CPU takes a few microseconds.
    return round(seconds * 1e3, 6)
