"""A period found in the history carried on, else the level.

The shape of a cycle is the mean of the last few; it is trusted as far as slots one period
apart were alike, and set on the level of the last whole cycles. Without a clear period this is
the mean of the last window.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts
from migrator.forecast.level import last_window_mean
from migrator.forecast.period import Period, find_period
from migrator.forecast.residuals import Origins, scenarios

_MOST_CYCLES = 8
"""More of them blur a period that is not a whole number of slots."""


class Seasonal:
    """For arrivals by the clock: jobs every few minutes, polling, batches."""

    name = "seasonal"
    summary = "a period found by autocorrelation, else the mean of the last window"

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots."""
        return scenarios(self.points, history, slots, window_slots)

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the level plus the shape of the period found before it, if any."""
        level = last_window_mean(history, origins, window_slots)
        points = np.repeat(level[:, None], slots, axis=1)
        # one origin at a time: a transform that fits the cache is faster than all at once
        for row, origin in enumerate(origins):
            period = find_period(history[:origin])
            if period.slots:
                points[row] = _carried_on(history[:origin], period, slots, window_slots)
        return points


def _carried_on(
    history: Counts, period: Period, slots: int, window_slots: int
) -> NDArray[np.float64]:
    """The level plus the shape of the last cycles, from the phase of now on."""
    seen = len(history) // period.slots
    number = min(seen, _MOST_CYCLES)
    cycles = history[-number * period.slots :].reshape(number, period.slots)
    cycle = cycles.mean(axis=0)
    # the part of the variance of a mean of so many cycles that is the shape and not noise
    trust = number * period.correlation / (1 + (number - 1) * period.correlation)
    # whole cycles, so that the level does not depend on the phase
    recent = min(seen, max(1, window_slots // period.slots))
    level = history[-recent * period.slots :].mean()
    shape = trust * (cycle - cycle.mean())
    carried_on: Counts = np.maximum(level + shape, 0.0)[np.arange(slots) % period.slots]
    return carried_on


FORECASTERS = (Seasonal(),)
