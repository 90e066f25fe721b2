"""A forecaster of your own around a public library, here pandas.

Run it in this folder, after `pip install 'migrator-gpu[pandas]'`:

    migrator simulate quickstart.yaml --forecaster pandas_forecaster:SmoothedWindows
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts, Origins, PointForecaster


class SmoothedWindows(PointForecaster):
    """An exponentially weighted mean of the windows before, slot by slot (pandas).

    `PointForecaster` makes scenarios of it with the errors that it made in the past. A class with a
    method `ahead(history, slots, window_slots)` may return scenarios of its own instead.
    """

    name = "smoothed-windows"
    summary = "an exponentially weighted mean of the windows before"

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin (row) the next `slots` slots, from `history[:origin]` alone."""
        series = pd.Series(history)
        level = series.ewm(halflife=window_slots).mean()
        # how each slot of a window differs from the level, by its place in the window
        place = pd.Series(np.arange(len(series)) % window_slots)
        shape = (
            (series - level).groupby(place).transform(lambda values: values.ewm(halflife=2).mean())
        )
        rows = []
        for origin in map(int, origins):
            latest = shape[max(0, origin - window_slots) : origin]
            by_place = dict(zip(latest.index % window_slots, latest, strict=True))
            ahead = [by_place.get((origin + slot) % window_slots, 0.0) for slot in range(slots)]
            rows.append(level[origin - 1] + np.array(ahead))
        return np.maximum(np.array(rows), 0.0)
