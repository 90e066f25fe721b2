"""The level of a history before each of many origins, for forecasters that stand on one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts
from migrator.forecast.residuals import Origins

SPANS = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 5.0)
"""Windows a level may remember: some traces follow the last seconds, some hold for an hour."""


def last_window_mean(history: Counts, origins: Origins, window_slots: int) -> NDArray[np.float64]:
    """Per origin the mean of the window that ends there, or of what there is of it."""
    return means_before(history, origins, np.array([window_slots]))[:, 0]


def levels(history: Counts, origins: Origins, window_slots: int) -> NDArray[np.float64]:
    """Per origin the means of the latest slots, one for each of `SPANS`."""
    spans = np.maximum(np.rint(np.array(SPANS) * window_slots), 1).astype(np.intp)
    return means_before(history, origins, spans)


def means_before(history: Counts, origins: Origins, spans: NDArray[np.intp]) -> NDArray[np.float64]:
    """Per origin (row) and span the mean of so many slots before it, or of what there is."""
    sums = np.concatenate(([0.0], np.cumsum(history)))
    lengths = np.minimum(origins[:, None], spans)
    before = sums[origins][:, None] - sums[origins[:, None] - lengths]
    # differences of large sums can fall a rounding below nothing
    mean: NDArray[np.float64] = np.maximum(before, 0.0) / lengths
    return mean
