"""The simple forecasters: means of recent slots, and the last window repeated."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts, Origins, PointForecaster

HALF_LIFE_WINDOWS = 0.25
"""Half-life of a slot's weight, in windows. Steady traces like it shorter, bursty ones longer;
over six real ones the mean pinball loss differs by 2% between 1/8 and 1/2."""
_HALVINGS = 16
"""What weighs less than 2 to the minus this is left out."""
LONG_WINDOWS = 5
"""Windows that `long-mean` remembers."""
SPANS = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 5.0)
"""Windows a level may remember: some traces follow the last seconds, some hold for an hour."""


class Ewma(PointForecaster):
    """One level that follows a change within a fraction of a window."""

    name = "ewma"
    summary = "exponentially weighted mean, half-life a quarter of a window"

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the weighted mean of what is before it."""
        half_life = HALF_LIFE_WINDOWS * window_slots
        ago = np.arange(min(len(history), int(np.ceil(_HALVINGS * half_life))))
        slot = origins[:, None] - 1 - ago
        weights = np.where(slot >= 0, 0.5 ** (ago / half_life), 0.0)
        level = (history[np.maximum(slot, 0)] * weights).sum(axis=1) / weights.sum(axis=1)
        return constant(level, slots)


class LastWindow(PointForecaster):
    """Keeps the shape of the last window; noisy where that shape is chance.

    Where it saw no request it expects none, so its intervals are too narrow on traces with
    many empty slots.
    """

    name = "last-window"
    summary = "the last window repeated, slot by slot"

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the window before it, again and again; a shorter history as it is."""
        spans = np.minimum(origins, window_slots)[:, None]
        repeated: Counts = history[origins[:, None] - spans + np.arange(slots) % spans]
        return repeated


class LastMean(PointForecaster):
    """No shape, one level: hard to beat where seconds are noise about a slow rate."""

    name = "last-mean"
    summary = "the mean of the last window"

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the mean of the window before it; of what there is where that is less."""
        level = last_window_mean(history, origins, window_slots)
        return constant(level, slots)


class LongMean(PointForecaster):
    """For arrivals in bursts that are shorter than a window and come at random: how many of them
    fell into the last window says next to nothing about the next one."""

    name = "long-mean"
    summary = f"the mean of the last {LONG_WINDOWS} windows"

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the mean of the windows before it; of what there is where that is less."""
        spans = np.array([LONG_WINDOWS * window_slots])
        return constant(means_before(history, origins, spans)[:, 0], slots)


def constant(level: NDArray[np.float64], slots: int) -> NDArray[np.float64]:
    """Per origin its level in each of `slots` slots."""
    return np.repeat(level[:, None], slots, axis=1)


def last_window_mean(history: Counts, origins: Origins, window_slots: int) -> NDArray[np.float64]:
    """Per origin the mean of the window that ends there, or of what there is of it."""
    return means_before(history, origins, np.array([window_slots]))[:, 0]


def levels(history: Counts, origins: Origins, window_slots: int) -> NDArray[np.float64]:
    """Per origin the means of the latest slots, one for each of `SPANS`."""
    spans = np.maximum(np.rint(np.array(SPANS) * window_slots), 1).astype(np.intp)
    return means_before(history, origins, spans)


def means_before(history: Counts, origins: Origins, spans: NDArray[np.intp]) -> NDArray[np.float64]:
    """Per origin (row) and span the mean of that many slots before it, or of those there are."""
    sums = np.concatenate(([0.0], np.cumsum(history)))
    lengths = np.minimum(origins[:, None], spans)
    before = sums[origins][:, None] - sums[origins[:, None] - lengths]
    # differences of large sums can fall a rounding below nothing
    mean: NDArray[np.float64] = np.maximum(before, 0.0) / lengths
    return mean


FORECASTERS = (LastWindow(), LastMean(), LongMean(), Ewma())
