"""Forecast errors: the requests that a plan expected in each slot against those received."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from migrator.control.window_clock import WindowClock
from migrator.core.problem import Problem


class ForecastError:
    """Errors of the mean over a plan's scenarios. Tenants without a forecast have none."""

    def __init__(self, clock: WindowClock) -> None:
        self._clock = clock
        self._ahead: dict[str, NDArray[np.float64]] = {}
        self._first = 0
        self._window: dict[str, tuple[float, float]] = {}
        self.absolute: dict[str, float] = {}
        """Sum of absolute errors over all slots, in requests."""
        self.slots: Counter[str] = Counter()
        self.received: dict[str, float] = {}
        """Requests received in those slots."""
        self.last: dict[str, float] = {}
        """Absolute errors divided by requests in the last window; absent if there were no
        requests."""

    def foretold(self, problem: Problem) -> None:
        """Set the forecast of a plan, from its first slot to the window's end."""
        self._ahead = {
            each.name: np.asarray(each.received, float).mean(axis=0) for each in problem.tenants
        }
        self._first = self._clock.slots - problem.slots

    def slot(self, came: Mapping[str, float]) -> None:
        """Compare a slot that has just ended with the forecast. `came`: its requests by tenant."""
        at = round(self._clock.into_s / self._clock.slot_s) - 1 - self._first
        for tenant, ahead in self._ahead.items():
            if tenant in came and 0 <= at < len(ahead):
                self._add(tenant, abs(float(ahead[at]) - came[tenant]), came[tenant])

    def end_window(self) -> None:
        """End the window. There is no forecast until the next plan."""
        self.last = {
            tenant: error / received
            for tenant, (error, received) in self._window.items()
            if received
        }
        self._window, self._ahead = {}, {}

    def _add(self, tenant: str, error: float, received: float) -> None:
        self.absolute[tenant] = self.absolute.get(tenant, 0.0) + error
        self.received[tenant] = self.received.get(tenant, 0.0) + received
        self.slots[tenant] += 1
        before = self._window.get(tenant, (0.0, 0.0))
        self._window[tenant] = (before[0] + error, before[1] + received)
