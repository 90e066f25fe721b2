"""The level of a history before each of many origins, for forecasters that stand on one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts
from migrator.forecast.residuals import Origins


def last_window_mean(history: Counts, origins: Origins, window_slots: int) -> NDArray[np.float64]:
    """Per origin the mean of the window that ends there, or of what there is of it."""
    spans = np.minimum(origins, window_slots)
    sums = np.concatenate(([0.0], np.cumsum(history)))
    mean: NDArray[np.float64] = (sums[origins] - sums[origins - spans]) / spans
    return mean
