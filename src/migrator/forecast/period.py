"""The period of a history, found by autocorrelation.

A trend or a shift of the level makes near slots alike too, and every multiple of a period is
one. So a lag counts by how far its correlation rises above the lowest at a smaller lag, and of
the lags that rise nearly as high as any the first hump is taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts

MIN_CYCLES = 3
"""A period must have been seen so often."""

_CLEAR = 0.2
"""A weaker correlation is worth less than what a wrong period costs."""

_SIGMAS = 6.0
"""In standard errors of a correlation of noise: the highest of a thousand reaches 3 to 4."""

_NEARLY = 0.8
_HUMP = 1.5
"""The hump that begins at lag L lies before 1.5 L, its first multiple after."""


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
