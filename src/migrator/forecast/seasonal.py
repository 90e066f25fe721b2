"""Arrivals by the clock: a period found by autocorrelation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts, Origins, PointForecaster
from migrator.forecast.simple import constant, last_window_mean

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


FORECASTERS = (Seasonal(),)
