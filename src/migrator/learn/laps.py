"""The seconds of a retraining, part by part."""

from __future__ import annotations

import time
from collections.abc import Callable

START, DATA, FIRST, EPOCHS = "start_s", "data_s", "first_s", "epochs_s"
EVALUATION, CHECKPOINTS, SAVE, HAND_OVER = "evaluation_s", "checkpoints_s", "save_s", "hand_over_s"
"""Names of the parts. Start: process and model on its instance. First: the steps in which a GPU
chooses kernels and captures the step; epochs: the other steps. Handing over: after the
retraining, until the workers have the new model."""


class Laps:
    """Divides the time since its beginning into parts, so that they add up to the whole."""

    def __init__(
        self, began_s: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`began_s`: a time of the clock; by default now."""
        self._clock = clock
        self._last_s = clock() if began_s is None else began_s
        self.parts_s: dict[str, float] = {}

    def end(self, part: str) -> None:
        """Add the time since the previous call to a part."""
        now_s = self._clock()
        self.parts_s[part] = self.parts_s.get(part, 0.0) + now_s - self._last_s
        self._last_s = now_s
