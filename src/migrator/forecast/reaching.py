"""Points that look further back than the recent windows in which `scenarios` seeks past errors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts
from migrator.forecast.residuals import Origins, Points, mended


class Reaching:
    """`points` with the whole history at hand: what it is asked of is the end of that history."""

    def __init__(self, points: Points, whole: Counts) -> None:
        self.points, self.whole = points, mended(whole)

    def __call__(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the next `slots` slots, from everything before that origin."""
        before = len(self.whole) - len(history)
        return self.points(self.whole, origins + before, slots, window_slots)
