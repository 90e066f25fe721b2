"""When a checkpoint pays: a large model's take seconds each, and a training must not wait for them.

What a checkpoint saves is the time since the one before it, should the process die. Small ones
are written after every epoch; large ones so seldom that they cost a small part of the training.
"""

from __future__ import annotations

import time
from collections.abc import Callable

FREE_S = 0.2
"""What takes no longer is always written."""
PART = 0.05
"""Of the training's time: what checkpoints may take."""
_BYTES_PER_S = 300e6
"""How fast one is written, judged and put on disk, before one has been."""


class Thrift:
    """Tells when the next checkpoint is due."""

    def __init__(self, size_bytes: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`size_bytes`: about what one takes; 0: nobody knows, the first will tell."""
        self._clock = clock
        self._costs_s, self._last_s = size_bytes / _BYTES_PER_S, clock()

    @property
    def due(self) -> bool:
        """Whether one is worth its time now."""
        gone_s = self._clock() - self._last_s
        return self._costs_s <= FREE_S or gone_s * PART >= self._costs_s

    def wrote(self, began_s: float) -> None:
        """One was written; it was begun at `began_s` of the clock."""
        self._last_s = self._clock()
        self._costs_s = self._last_s - began_s

    def now_s(self) -> float:
        """Of its clock."""
        return self._clock()
