"""When `migrator load` sends what: the traces' requests, as the simulator draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.core.scenario import Scenario
from migrator.load.samples import Questions
from migrator.workload.traces.requests import Arrivals


@dataclass(frozen=True, eq=False)
class Schedule:
    """Requests in the order in which they are due, column by column."""

    due_s: NDArray[np.float64]
    """Since the beginning of the first window."""
    tenant: NDArray[np.int64]
    """Its position among those asked for."""
    window: NDArray[np.int64]
    """Which of the run, from 0."""
    row: NDArray[np.intp]
    """The sample."""

    def __len__(self) -> int:
        return len(self.due_s)

    def since(self, second: float) -> Schedule:
        """What is due from a moment on."""
        later = self.due_s >= second
        return Schedule(self.due_s[later], self.tenant[later], self.window[later], self.row[later])


def times_s(scenario: Scenario, index: int, windows: int, speed: float) -> NDArray[np.float64]:
    """When a tenant's requests are due in so many windows, its trace `speed` times as fast."""
    tenant, window_s = scenario.tenants[index], scenario.window_s
    arrivals = Arrivals(tenant.trace, scenario.slot_s, scenario.seed, index)
    parts = []
    for window in range(scenario.windows):
        begin_s = tenant.offset_s + window * window_s
        # window by window, as the simulator asks: the moments drawn depend on where one begins
        parts.append(arrivals.times(begin_s, begin_s + window_s) - tenant.offset_s)
    due_s = np.concatenate(parts) / speed
    return due_s[due_s < windows * window_s]


def schedule(
    scenario: Scenario,
    tenants: Sequence[int],
    questions: Sequence[Questions],
    first: int,
    windows: int,
    speed: float,
) -> Schedule:
    """All requests of some tenants; `first` is the server's number of the first window."""
    parts = []
    for place, (index, asked) in enumerate(zip(tenants, questions, strict=True)):
        due_s = times_s(scenario, index, windows, speed)
        window = (due_s // scenario.window_s).astype(np.int64)
        row = np.concatenate(
            [asked.rows(first + each, int((window == each).sum())) for each in range(windows)]
        )
        parts.append((due_s, np.full(len(due_s), place), window, row))
    due_s, tenant, window, row = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(due_s, kind="stable")
    return Schedule(due_s[order], tenant[order], window[order], row[order])
