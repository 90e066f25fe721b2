"""Goodput so far, for a counter that must never fall.

Requests answered in time, times the part of them that was right: of the window's labels that
have an answer to compare with, or, while there are few, of the labels before, as the model's
accuracy. When a window is over it is reckoned as the records have it: by its labels, if any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from migrator.live.label_rows import LabelCounts
from migrator.live.tenant_run import FEWEST_LABELS, TenantRun
from migrator.live.window_clock import WindowClock
from migrator.serve.counts import Counts


class Goodput:
    """All tenants' goodput in this life of the daemon."""

    def __init__(
        self,
        counts: Mapping[str, Counts],
        tenants: Mapping[str, TenantRun],
        clock: WindowClock,
        labels: Callable[[str, int], LabelCounts],
    ) -> None:
        """`labels`: of a tenant in a window so far."""
        self._counts, self._tenants, self._clock, self._labels = counts, tenants, clock, labels
        # tenants come and go while the daemon runs
        self._before: defaultdict[str, float] = defaultdict(float)
        self._in_time: defaultdict[str, int] = defaultdict(int)
        self._told: defaultdict[str, float] = defaultdict(float)

    def measured(self, tenant: str) -> float | None:
        """The part of this window's labels that its answers hit; None: no label has an answer."""
        counts = self._labels(tenant, self._clock.number)
        return 1 - counts.wrong / counts.judged if counts.judged else None

    def end_window(self) -> None:
        """To be called before the clock goes on to the next."""
        for tenant in self._tenants:
            self._before[tenant] = self._now(tenant, fewest=1)
            self._in_time[tenant] = self._counts[tenant].total.in_time

    def so_far(self, tenant: str) -> float:
        """Where labels prove worse than what was told before, it stays until that is made up."""
        self._told[tenant] = max(self._told[tenant], self._now(tenant))
        return self._told[tenant]

    def _now(self, tenant: str, fewest: int = FEWEST_LABELS) -> float:
        counts = self._labels(tenant, self._clock.number)
        if counts.judged >= fewest:
            right = 1 - counts.wrong / counts.judged
        else:
            right = self._tenants[tenant].accuracy
        in_window = self._counts[tenant].total.in_time - self._in_time[tenant]
        return self._before[tenant] + in_window * right
