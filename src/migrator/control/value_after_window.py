"""What the accuracy gained by a retraining is worth after its window.

A better model serves on until the next retraining completes, and its gain fades as data drifts.
When the next retraining comes depends on what it costs. A plan knows that cost for its own window
only, so the value is found without it: at some cost, retraining now and leaving it out earn the
same, if every later window decides best at that cost. The gain's value at that cost is the right
one for every other cost too: a plan that uses it retrains exactly if its own cost is lower.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SMOOTHING = 0.5
"""Smoothing factor for measurements."""
_MOST_KEPT = 0.95
"""Largest share of the accuracy assumed to be kept: gains must not be worth infinitely much."""
AHEAD = 20
"""Windows ahead in which a gain counts. No run is assumed to end."""
_LEAST_GAIN = 1e-3
"""Smallest gain, relative to the accuracy after it, that is valued by itself."""
_STEPS = 25
"""Bisections of the cost."""


@dataclass
class ValueAfterWindow:
    """What is known about a tenant's retrainings and the drift of its data."""

    kept: float = 0.7
    """Share of its accuracy that the model keeps from one window to the next."""
    duration: float = 0.0
    """Duration of this window's retraining, as a part of the window."""
    growth: float = 0.0
    """What every later retraining takes longer than the one before, relative to `duration`."""
    _completed: float | None = None
    """When retrainings completed, as a part of the window, divided by their `duration`."""
    _ended_with: float | None = None

    @property
    def completed(self) -> float:
        """The part of the window that has passed when a retraining of `duration` completes.

        Before the first measurement: the middle of what is possible.
        """
        if self._completed is None:
            return (min(1.0, self.duration) + 1) / 2
        return min(1.0, self._completed * self.duration)

    def windows(self, left: float) -> float:
        """The number of later windows that the whole gain equals.

        `left`: the accuracy now divided by the accuracy after the retraining.
        """
        left = min(left, 1 - _LEAST_GAIN)
        return _windows(left, self.kept, self.completed, self.duration, self.growth)

    def plan(self, duration: float, growth: float) -> None:
        """Note how long this window's retraining takes, and what follows it."""
        self.duration, self.growth = duration, max(0.0, growth)

    def complete(self, part: float) -> None:
        """Note that a retraining completed when `part` of the window had passed."""
        if self.duration > 0:
            measured = part / self.duration
            before = measured if self._completed is None else self._completed
            self._completed = before + _SMOOTHING * (measured - before)

    def end_window(self, accuracy: float) -> None:
        """Note the accuracy with which a window ends."""
        self._ended_with = accuracy

    def begin_window(self, accuracy: float) -> None:
        """Learn how much of the accuracy is left on the data of a new window."""
        if self._ended_with:
            kept = min(_MOST_KEPT, accuracy / self._ended_with)
            self.kept += _SMOOTHING * (kept - self.kept)
        self._ended_with = None


@lru_cache(maxsize=256)
def _windows(left: float, kept: float, completed: float, duration: float, growth: float) -> float:
    """The value of a gain, in windows, by bisection of the cost at which it makes no difference."""
    later = np.arange(1, AHEAD + 1)
    longer = 1 + growth * later
    parts = np.minimum(1.0, completed * longer)
    fits = (duration * longer <= 1) | (growth == 0)
    low, high = 0.0, 1.0 + AHEAD
    for _ in range(_STEPS):
        cost = (low + high) / 2
        costs = np.where(fits, cost * longer, np.inf)
        now = left * completed + 1 - completed - cost - left
        if now + _later_goodput(left, kept, parts, costs) >= 0:
            low = cost
        else:
            high = cost
    return max(0.0, low / (1 - left) - (1 - completed))


def _later_goodput(left: float, kept: float, parts: Floats, costs: Floats) -> float:
    """What a retraining now adds to the goodput of later windows if they decide best.

    In units of a window's requests times the accuracy after a retraining. `parts`: when the
    retraining of each later window completes; `costs`: the goodput it costs, infinite where none
    fits.
    """
    fading = kept ** np.arange(len(parts) + 1)
    fresh, stale = np.zeros(len(parts) + 2), 0.0
    for window in range(len(parts), 0, -1):
        part, cost = parts[window - 1], costs[window - 1]
        again = 1 - part - cost + fresh[1]
        old = left * fading[window]
        stale = max(old + stale, again + part * old)
        fresh[:-1] = np.maximum(fading + fresh[1:], again + part * fading)
    return float(fresh[1] - stale)
