"""The seconds of a live run as records: what came, what became of it, what was expected.

Part of the recorder. A second is written when it is over and again once its last requests are
answered, which takes as long as they may wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from migrator.core.problem import Problem
from migrator.live.labels import Labels
from migrator.live.tenant_run import FEWEST_LABELS, TenantRun
from migrator.live.window_clock import WindowClock
from migrator.records.rows import SecondRecord
from migrator.records.store import Records
from migrator.serve.counts import Second
from migrator.serve.router import Router

_SETTLED_S = 10
"""Requests that are not answered so long after they came are not waited for."""
_Known = tuple[str, int]
"""A tenant and a second of the router's clock."""


@dataclass
class SecondRows:
    """Every tenant's seconds; nothing here decides anything."""

    records: Records
    router: Router
    labels: Labels
    clock: WindowClock
    tenants: Mapping[str, TenantRun]
    reconfiguring: dict[str, int] = field(default_factory=dict)
    """Per tenant, since the window began: lost while an instance of its own was not yet warm."""
    _forecast: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    _forecast_from_s: float = 0.0
    _unsettled: dict[_Known, SecondRecord] = field(default_factory=dict)
    """Seconds with requests that were not answered when they were written."""
    _accuracy: dict[str, float] = field(default_factory=dict)
    _cold: set[_Known] = field(default_factory=set)
    """Of them, those in which an instance of the tenant was not yet warm."""

    def begin_window(self) -> None:
        """Counting begins anew."""
        self.reconfiguring = dict.fromkeys(self.tenants, 0)

    def foretold(self, problem: Problem) -> None:
        """What a plan was made with is expected from now on."""
        self._forecast = {each.name: np.asarray(each.received) for each in problem.tenants}
        left_s = problem.slots * self.clock.slot_s
        self._forecast_from_s = self.clock.began_s + self.clock.window_s - left_s

    def put(self, name: str, each: Second, *, warming: bool) -> None:
        """A second that is over."""
        if warming:
            self._cold.add((name, each.second))
        mean, low, high = self._band(name, each.second)
        second = each.second - int(self.clock.started_s)
        row = SecondRecord(name, second, forecast_mean=mean, forecast_low=low, forecast_high=high)
        self._write(name, each, row)

    def settle(self, before: int) -> None:
        """Seconds before that one are written again where requests of theirs were open."""
        for (name, second), row in list(self._unsettled.items()):
            if second >= before:
                continue
            del self._unsettled[name, second]
            (each,) = self.router.counts[name].seconds(second, second + 1)
            self._write(name, each, row)
            if second < before - _SETTLED_S:
                self._unsettled.pop((name, second), None)
                self._cold.discard((name, second))

    def _write(self, name: str, each: Second, row: SecondRecord) -> None:
        lost = each.late + each.dropped if (name, each.second) in self._cold else 0
        self.reconfiguring[name] = self.reconfiguring.get(name, 0) + lost - row.reconfiguring
        written = replace(
            row,
            received=each.received,
            in_time=each.in_time,
            late=each.late,
            dropped=each.dropped,
            failed=each.failed,
            wrong=round(each.in_time * (1 - self._right(name)), 3),
            reconfiguring=lost,
        )
        self.records.put(written)
        if each.open > 0:
            self._unsettled[name, each.second] = written
        else:
            self._cold.discard((name, each.second))

    def _right(self, name: str) -> float:
        """The share of a tenant's answers that are right, as far as this window's labels tell."""
        counts = self.labels.counts(name, self.clock.number)
        if counts.judged >= FEWEST_LABELS:
            return 1 - counts.wrong / counts.judged
        tenant = self.tenants.get(name)
        if tenant is not None:
            self._accuracy[name] = tenant.accuracy
        return self._accuracy[name]  # of one that has gone, as it was

    def _band(self, name: str, second: int) -> tuple[float | None, float | None, float | None]:
        """Mean, low and high of what a second was expected to bring."""
        at = int((second - self._forecast_from_s) / self.clock.slot_s)
        ahead = self._forecast.get(name)
        if ahead is None or not 0 <= at < ahead.shape[1]:
            return None, None, None
        values = ahead[:, at] / self.clock.slot_s
        low, high = np.quantile(values, (0.1, 0.9))
        return float(values.mean()), float(low), float(high)
