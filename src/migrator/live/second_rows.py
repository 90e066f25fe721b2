"""A row of the records for every second of every tenant."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from migrator.control.window_clock import WindowClock
from migrator.live.goodput_counter import Goodput
from migrator.records.expected_arrivals import ExpectedArrivals
from migrator.records.rows import SecondRecord
from migrator.records.store import Records
from migrator.serving.queue import Second
from migrator.serving.router import Router

_SETTLED_S = 10
"""Seconds after which a request's answer is not waited for."""
_TenantSecond = tuple[str, int]
"""A tenant and a second of the router's clock."""


@dataclass
class SecondRows:
    """Writes a row for every second of every tenant: requests, outcomes, forecast.

    A second is written when it is over, and again when its last requests are answered.
    """

    records: Records
    router: Router
    clock: WindowClock
    goodput: Goodput
    forecasts: ExpectedArrivals
    reconfiguring: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Requests of this window lost while an instance of their tenant was not warm, by tenant."""
    _unsettled: dict[_TenantSecond, SecondRecord] = field(default_factory=dict)
    """Seconds that were written before all their requests were answered."""
    _cold: set[_TenantSecond] = field(default_factory=set)
    """Unsettled seconds in which an instance of the tenant was not warm."""

    def put(self, name: str, each: Second, *, warming: bool) -> None:
        if warming:
            self._cold.add((name, each.second))
        mean, low, high = self.forecasts.band(name, each.second)
        second = each.second - int(self.clock.started_s)
        row = SecondRecord(name, second, forecast_mean=mean, forecast_low=low, forecast_high=high)
        self._write(name, each, row)

    def settle(self, before: int) -> None:
        """Write earlier seconds again if requests were missing."""
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
        self.reconfiguring[name] += lost - row.reconfiguring
        written = replace(
            row,
            received=each.received,
            in_time=each.in_time,
            late=each.late,
            dropped=each.dropped,
            failed=each.failed,
            wrong=round(each.in_time * (1 - self.goodput.correct_now(name)), 3),
            reconfiguring=lost,
        )
        self.records.put(written)
        if each.open > 0:
            self._unsettled[name, each.second] = written
        else:
            self._cold.discard((name, each.second))
