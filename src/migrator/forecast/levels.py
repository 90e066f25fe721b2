"""Forecasters without a model: the last window repeated, means, a weighted mean, a period."""

from __future__ import annotations

from typing import NamedTuple

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
_MOST_CYCLES = 8
"""More of them blur a period that is not a whole number of slots."""
MIN_CYCLES = 3
"""A period must have been seen so often."""
_CLEAR = 0.2
"""A weaker correlation is worth less than what a wrong period costs."""
_SIGMAS = 6.0
"""In standard errors of a correlation of noise: the highest of a thousand reaches 3 to 4."""
_NEARLY = 0.8
_HUMP = 1.5
"""The hump that begins at lag L lies before 1.5 L, its first multiple after."""


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


class Seasonal(PointForecaster):
    """For arrivals by the clock: jobs every few minutes, polling, batches."""

    name = "seasonal"
    summary = "a period found by autocorrelation, else the mean of the last window"

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the level plus the shape of the period found before it, if any."""
        level = last_window_mean(history, origins, window_slots)
        points = constant(level, slots)
        # one origin at a time: a transform that fits the cache is faster than all at once
        for row, origin in enumerate(origins):
            period = find_period(history[:origin])
            if period.slots:
                points[row] = _carried_on(history[:origin], period, slots, window_slots)
        return points


def _carried_on(
    history: Counts, period: Period, slots: int, window_slots: int
) -> NDArray[np.float64]:
    """The level plus the shape of the last cycles, from the phase of now on."""
    seen = len(history) // period.slots
    number = min(seen, _MOST_CYCLES)
    cycles = history[-number * period.slots :].reshape(number, period.slots)
    cycle = cycles.mean(axis=0)
    # the part of the variance of a mean of these cycles that is the shape and not noise
    trust = number * period.correlation / (1 + (number - 1) * period.correlation)
    # whole cycles, so that the level does not depend on the phase
    recent = min(seen, max(1, window_slots // period.slots))
    level = history[-recent * period.slots :].mean()
    shape = trust * (cycle - cycle.mean())
    carried_on: Counts = np.maximum(level + shape, 0.0)[np.arange(slots) % period.slots]
    return carried_on


class Period(NamedTuple):
    """How long a cycle is, and how far to trust it."""

    slots: int
    """0: there is none."""
    correlation: float
    """Of slots one period apart."""


NO_PERIOD = Period(0, 0.0)


def find_period(history: Counts) -> Period:
    """The period of a history that is not empty."""
    correlations = _autocorrelations(history)
    lowest = np.minimum.accumulate(correlations)
    # the last lag is looked at only to see whether the one before it is a peak
    rises = (correlations - np.maximum(lowest, 0.0))[:-1]
    highest = rises.max()
    if highest < max(_CLEAR, _SIGMAS / np.sqrt(len(history))):
        return NO_PERIOD
    first = int((rises >= _NEARLY * highest).argmax())
    lag = first + int(rises[first : int(_HUMP * first) + 1].argmax())
    if correlations[lag + 1] > correlations[lag]:
        return NO_PERIOD
    return Period(lag, float(correlations[lag]))


def _autocorrelations(history: Counts) -> NDArray[np.float64]:
    """The correlation at each lag up to one past a third of the history, by FFT."""
    lags = len(history) // MIN_CYCLES + 2
    size = 1 << (len(history) + lags).bit_length()
    spectrum = np.fft.rfft(history - history.mean(), size)
    products = np.fft.irfft(spectrum.real**2 + spectrum.imag**2, size)[:lags]
    # a constant history leaves only rounding, in which there is no period
    if products[0] <= 1e-12 * (history**2).sum():
        return np.zeros(lags)
    correlations: NDArray[np.float64] = products / products[0]
    return correlations


FORECASTERS = (LastWindow(), LastMean(), LongMean(), Ewma(), Seasonal())
