"""Outcomes of a tenant's requests, in total and by the second in which they arrived.

The path of a request only adds; shares and rates are computed when they are read. A request with
several rows of inputs counts once per row, as that is the work it causes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, replace

KEPT_S = 900
LATENCY_BOUNDS_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.2,
    0.3,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
"""Upper bounds of the latency histogram."""


@dataclass(slots=True)
class Counted:
    """Requests by outcome."""

    received: int = 0
    in_time: int = 0
    late: int = 0
    """Answered after the deadline."""
    dropped: int = 0
    """Refused, or its client left."""
    failed: int = 0

    @property
    def open(self) -> int:
        """Requests without an outcome yet."""
        return self.received - self.in_time - self.late - self.dropped - self.failed


@dataclass(slots=True)
class Second(Counted):
    """The requests that arrived in one second of the router's clock."""

    second: int = 0


class Counts:
    """One tenant's counters; `total` only grows."""

    def __init__(self) -> None:
        self.total = Counted()
        self.latencies = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.latency_sum_s = 0.0
        self._seconds: deque[Second] = deque(maxlen=KEPT_S)

    def receive(self, now_s: float, rows: int) -> Second:
        """Count an arrival; its outcome is counted on the second that is returned."""
        second = int(now_s)
        if not self._seconds or self._seconds[-1].second < second:
            self._seconds.append(Second(second=second))
        current = self._seconds[-1]
        current.received += rows
        self.total.received += rows
        return current

    def answer(self, came: Second, rows: int, latency_s: float, *, late: bool) -> None:
        """Count an answer."""
        if late:
            came.late += rows
            self.total.late += rows
        else:
            came.in_time += rows
            self.total.in_time += rows
        self.latencies[bisect_left(LATENCY_BOUNDS_S, latency_s)] += rows
        self.latency_sum_s += latency_s * rows

    def drop(self, came: Second, rows: int) -> None:
        """Count one that was refused."""
        came.dropped += rows
        self.total.dropped += rows

    def fail(self, came: Second, rows: int) -> None:
        """Count one that a worker or the model failed on."""
        came.failed += rows
        self.total.failed += rows

    def seconds(self, first: int, last: int) -> list[Second]:
        """Copies of every second from `first` to before `last`, also of those without requests."""
        known = {each.second: each for each in self._seconds if first <= each.second < last}
        return [replace(known.get(each, Second(second=each))) for each in range(first, last)]
