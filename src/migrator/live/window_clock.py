"""Which window and which slot it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class WindowClock:
    """Windows of equal length, one after the other, on a monotonic clock."""

    window_s: float
    slot_s: float
    first: int = 0
    """The number of the first window of this life."""
    now_s: Callable[[], float] = time.monotonic
    began_s: float = field(default=0.0)
    number: int = field(default=0)
    started_s: float = field(default=0.0)
    """When the first window began."""

    def start(self) -> None:
        """The first window begins now."""
        self.began_s, self.number = self.now_s(), self.first
        self.started_s = self.began_s

    @property
    def slots(self) -> int:
        """Of a window."""
        return round(self.window_s / self.slot_s)

    @property
    def into_s(self) -> float:
        """Seconds since the window began."""
        return self.now_s() - self.began_s

    @property
    def slot(self) -> int:
        """Now, in this window."""
        return min(self.slots - 1, max(0, int(self.into_s / self.slot_s)))

    @property
    def slot_began_s(self) -> float:
        """When the slot that is now began."""
        return self.began_s + self.slot * self.slot_s

    @property
    def over(self) -> bool:
        """Whether the window has ended and the next is due."""
        return self.into_s >= self.window_s

    def advance(self) -> None:
        """The next window; after a long stop those that nobody saw are passed over."""
        passed = max(1, int(self.into_s / self.window_s))
        self.number += passed
        self.began_s += passed * self.window_s

    def until_next_slot_s(self) -> float:
        """Seconds until a slot begins."""
        return self.slot_s - self.into_s % self.slot_s
