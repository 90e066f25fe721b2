"""The clock of one run: which window and which slot it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

_TOLERANCE_S = 1e-6
"""Tolerance before a boundary, because sums of floats are not exact."""


@dataclass
class WindowClock:
    """Consecutive windows of equal length on a monotonic clock."""

    window_s: float
    slot_s: float
    first: int = 0
    """The number of the first window of this run."""
    now_s: Callable[[], float] = time.monotonic
    began_s: float = field(default=0.0)
    number: int = field(default=0)
    started_s: float = field(default=0.0)
    """When the first window began."""

    def start(self) -> None:
        """Begin the first window at the current time."""
        self.began_s, self.number = self.now_s(), self.first
        self.started_s = self.began_s

    @property
    def slots(self) -> int:
        return round(self.window_s / self.slot_s)

    @property
    def into_s(self) -> float:
        """Seconds since the window began."""
        return self.now_s() - self.began_s

    @property
    def slot(self) -> int:
        return min(self.slots - 1, max(0, int((self.into_s + _TOLERANCE_S) / self.slot_s)))

    @property
    def slot_began_s(self) -> float:
        """When the current slot began."""
        return self.began_s + self.slot * self.slot_s

    @property
    def over(self) -> bool:
        """Whether the window has ended and the next is due."""
        return self.into_s + _TOLERANCE_S >= self.window_s

    def advance(self) -> None:
        """Begin the next window. Windows missed during a long pause are skipped."""
        passed = max(1, int((self.into_s + _TOLERANCE_S) / self.window_s))
        self.number += passed
        self.began_s += passed * self.window_s

    def until_next_slot_s(self) -> float:
        return self.slot_s - self.into_s % self.slot_s
