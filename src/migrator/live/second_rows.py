"""A row of the records for every second of every tenant."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from migrator.control.window_clock import WindowClock
from migrator.live.goodput import measured_share
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

    A second is written when it is over, and again when its last requests are answered or the
    labels of its window tell how many answers are correct.
    """

    records: Records
    router: Router
    clock: WindowClock
    forecasts: ExpectedArrivals
    reconfiguring: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Requests of this window lost while an instance of their tenant was not warm, by tenant."""
    _unsettled: dict[_TenantSecond, SecondRecord] = field(default_factory=dict)
    """Seconds that were written before all their requests were answered."""
    _cold: set[_TenantSecond] = field(default_factory=set)
    """Unsettled seconds in which an instance of the tenant was not warm."""

    def put(self, name: str, second: Second, *, warming: bool) -> None:
        if warming:
            self._cold.add((name, second.second))
        mean, low, high = self.forecasts.band(name, second.second)
        since_start = second.second - int(self.clock.started_s)
        row = SecondRecord(
            name, since_start, forecast_mean=mean, forecast_low=low, forecast_high=high
        )
        self._write(name, second, row)

    def settle(self, before: int) -> None:
        """Write earlier seconds again if requests were missing."""
        for (name, number), row in list(self._unsettled.items()):
            if number >= before:
                continue
            del self._unsettled[name, number]
            (second,) = self.router.counts[name].seconds(number, number + 1)
            self._write(name, second, row)
            if number < before - _SETTLED_S:
                self._unsettled.pop((name, number), None)
                self._cold.discard((name, number))

    def _write(self, name: str, second: Second, row: SecondRecord) -> None:
        measured = measured_share(second.window)
        lost = second.late + second.dropped if (name, second.second) in self._cold else 0
        self.reconfiguring[name] += lost - row.reconfiguring
        written = replace(
            row,
            received=second.received,
            in_time=second.in_time,
            late=second.late,
            dropped=second.dropped,
            failed=second.failed,
            wrong=None if measured is None else round(second.in_time * (1 - measured), 3),
            reconfiguring=lost,
        )
        self.records.put(written)
        if second.open > 0 or (measured is None and second.in_time):
            self._unsettled[name, second.second] = written
        else:
            self._cold.discard((name, second.second))
