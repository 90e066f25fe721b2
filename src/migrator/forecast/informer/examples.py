"""What the network is shown: deviations from the level, over the scale, with known answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts
from migrator.forecast.residuals import Origins
from migrator.forecast.ridge import Ridge, level_and_scale, over_scale

_MOST = 8.0
"""Deviations beyond so many levels look alike: one burst must not drown the rest."""


class Examples(NamedTuple):
    """One row per origin."""

    past: NDArray[np.float32]
    wanted: NDArray[np.float32]
    """What came less what the ridge regression foretold, over the scale."""
    scale: NDArray[np.float64]
    base: NDArray[np.float64]
    came: NDArray[np.float64]

    def rows(self, wanted: slice) -> Examples:
        """Some of them."""
        return Examples(
            self.past[wanted],
            self.wanted[wanted],
            self.scale[wanted],
            self.base[wanted],
            self.came[wanted],
        )


def past_of(
    history: Counts, origins: Origins, lookback: int, window_slots: int
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Per origin the lookback about its level, and the scale it is measured in."""
    level, scale = level_and_scale(history, origins, window_slots)
    seen = history[origins[:, None] - lookback + np.arange(lookback)] - level[:, None]
    return np.minimum(over_scale(seen, scale), _MOST).astype(np.float32), scale


def examples_of(history: Counts, origins: Origins, lookback: int, ahead: int) -> Examples:
    """The examples at these origins; their answers are in the history."""
    past, scale = past_of(history, origins, lookback, ahead)
    base = Ridge().points(history, origins, ahead, ahead)
    came: Counts = history[origins[:, None] + np.arange(ahead)]
    wanted = over_scale(came - base, scale).astype(np.float32)
    return Examples(past, wanted, scale, base, came)
