"""The last window repeated: each slot ahead is what came one window before it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts
from migrator.forecast.residuals import Origins, scenarios


class LastWindow:
    """Keeps the shape of the last window; noisy where that shape is chance.

    Where it saw no request it expects none, so its intervals are too narrow on traces with
    many empty slots.
    """

    name = "last-window"
    summary = "the last window repeated, slot by slot"

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots."""
        return scenarios(self.points, history, slots, window_slots)

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the window before it, again and again; a shorter history as it is."""
        spans = np.minimum(origins, window_slots)[:, None]
        repeated: Counts = history[origins[:, None] - spans + np.arange(slots) % spans]
        return repeated


FORECASTERS = (LastWindow(),)
