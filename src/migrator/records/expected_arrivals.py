"""The requests that the plan in force expected, for the records of seconds, and its errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from migrator.control.window_clock import WindowClock
from migrator.core.problem import Problem

LOW, HIGH = 0.1, 0.9
"""Quantiles of the scenarios that bound the band of a forecast."""


class ExpectedArrivals:
    """The forecast of the last plan and its errors. Not every policy forecasts."""

    def __init__(self, clock: WindowClock) -> None:
        self._clock = clock
        self._expected: dict[str, NDArray[np.float64]] = {}
        """Requests by scenario and slot."""
        self._from_s = 0.0
        self._window: dict[str, tuple[float, float]] = {}
        self.absolute: defaultdict[str, float] = defaultdict(float)
        """Sum of absolute errors of the scenarios' mean over all slots, in requests."""
        self.slots: defaultdict[str, int] = defaultdict(int)
        self.received: defaultdict[str, float] = defaultdict(float)
        """Requests received in those slots."""
        self.last: dict[str, float] = {}
        """Absolute errors divided by requests in the last window; absent if there were no
        requests."""

    def expect(self, problem: Problem) -> None:
        """Use the forecast of a plan, from its first slot to the window's end."""
        self.expect_arrivals(
            {tenant.name: np.asarray(tenant.received) for tenant in problem.tenants}
        )

    def expect_arrivals(self, arrivals: Mapping[str, NDArray[np.float64]]) -> None:
        """Use a forecast: per tenant the requests by scenario and slot, to the window's end."""
        clock = self._clock
        self._expected = {name: values.astype(float) for name, values in arrivals.items()}
        slots = max((values.shape[1] for values in self._expected.values()), default=0)
        self._from_s = clock.began_s + clock.window_s - slots * clock.slot_s

    def band(self, tenant: str, at_s: float) -> tuple[float | None, float | None, float | None]:
        """Mean, low and high of the forecast in requests per second, at a time of the clock."""
        values = self._slot(tenant, int((at_s - self._from_s) / self._clock.slot_s))
        if values is None:
            return None, None, None
        low, high = np.quantile(values / self._clock.slot_s, (LOW, HIGH))
        return float(values.mean() / self._clock.slot_s), float(low), float(high)

    def compare(self, received: Mapping[str, float]) -> None:
        """Compare the requests of a slot that has just ended with the forecast."""
        at = round((self._clock.now_s() - self._from_s) / self._clock.slot_s) - 1
        for tenant, count in received.items():
            values = self._slot(tenant, at)
            if values is None:
                continue
            error = abs(float(values.mean()) - count)
            self.absolute[tenant] += error
            self.received[tenant] += count
            self.slots[tenant] += 1
            errors, counts = self._window.get(tenant, (0.0, 0.0))
            self._window[tenant] = (errors + error, counts + count)

    def end_window(self) -> None:
        """Begin to count the errors of another window."""
        self.last = {name: errors / n for name, (errors, n) in self._window.items() if n}
        self._window = {}

    def _slot(self, tenant: str, slot: int) -> NDArray[np.float64] | None:
        values = self._expected.get(tenant)
        return None if values is None or not 0 <= slot < values.shape[1] else values[:, slot]
