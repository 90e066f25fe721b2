"""How long an emulated retraining takes: at least what it would on the instance it stands for.

The time is spread over the steps, so that its progress looks as it would there.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Called after every step: waits until that step would be done."""

    def __init__(
        self,
        seconds: float | None,
        steps: int,
        began_s: float,
        *,
        done: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`began_s`: when, by the clock, its time began; `done`: steps of an earlier process."""
        now = clock()
        left = 0.0 if seconds is None else seconds * (1 - done / max(1, steps))
        self._first_s, self._steps, self.done = now, max(1, steps), done
        self._each_s = max(0.0, left - (now - began_s)) / max(1, steps - done)
        self._begun, self._clock, self._sleep = done, clock, sleep

    @property
    def part(self) -> float:
        """Of the steps that are done."""
        return min(1.0, self.done / self._steps)

    def step(self) -> None:
        """One more step is done."""
        self.done += 1
        until_s = self._first_s + self._each_s * (self.done - self._begun)
        left_s = until_s - self._clock()
        if left_s > 0:
            self._sleep(left_s)
