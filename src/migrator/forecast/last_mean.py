"""The mean of the last window, the same for every slot ahead."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts
from migrator.forecast.level import last_window_mean
from migrator.forecast.residuals import Origins, scenarios


class LastMean:
    """No shape, one level: hard to beat where seconds are noise about a slow rate."""

    name = "last-mean"
    summary = "the mean of the last window"

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots."""
        return scenarios(self.points, history, slots, window_slots)

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the mean of the window before it; of what there is where that is less."""
        level = last_window_mean(history, origins, window_slots)
        return np.repeat(level[:, None], slots, axis=1)


FORECASTERS = (LastMean(),)
