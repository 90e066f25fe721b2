"""How far forecasts were off: slot by slot what a plan expected beside what came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from migrator.core.problem import Problem
from migrator.live.window_clock import WindowClock


class ForecastError:
    """Errors of the mean over a plan's scenarios; tenants that no plan foretold have none."""

    def __init__(self, clock: WindowClock) -> None:
        self._clock = clock
        self._ahead: dict[str, NDArray[np.float64]] = {}
        self._first = 0
        self._window: dict[str, tuple[float, float]] = {}
        self.absolute: dict[str, float] = {}
        """Requests, of all slots so far."""
        self.slots: Counter[str] = Counter()
        self.received: dict[str, float] = {}
        """In those slots."""
        self.last: dict[str, float] = {}
        """Of the last window: absolute errors over requests; absent where none came."""

    def foretold(self, problem: Problem) -> None:
        """What a plan expects from its first slot to the window's end."""
        self._ahead = {
            each.name: np.asarray(each.received, float).mean(axis=0) for each in problem.tenants
        }
        self._first = self._clock.slots - problem.slots

    def slot(self, came: Mapping[str, float]) -> None:
        """A slot has just ended, and so many came in it."""
        at = round(self._clock.into_s / self._clock.slot_s) - 1 - self._first
        for tenant, ahead in self._ahead.items():
            if tenant in came and 0 <= at < len(ahead):
                self._add(tenant, abs(float(ahead[at]) - came[tenant]), came[tenant])

    def end_window(self) -> None:
        """The window is over: nothing is foretold until the next plan."""
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
