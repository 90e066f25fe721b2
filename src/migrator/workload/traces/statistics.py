"""What a trace looks like in a few numbers: how much, how bursty, how long it remembers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LAGS_S = (1, 10, 60, 200)
"""The lags at which autocorrelation is told."""


@dataclass(frozen=True)
class Statistics:
    """Of the requests in each second."""

    seconds: int
    mean_rps: float
    dispersion: float
    """Variance over mean: 1 for a Poisson process."""
    autocorrelation: tuple[float, ...]
    """At each of LAGS_S; NaN where the trace is too short or constant."""
    empty_share: float
    """Of the seconds, those without a request."""


def statistics_of(counts: NDArray[np.int64]) -> Statistics:
    """Measured over the whole trace, which has at least one request."""
    mean = float(counts.mean())
    around = counts.astype(np.float64) - mean
    return Statistics(
        seconds=len(counts),
        mean_rps=mean,
        dispersion=float(around @ around) / len(counts) / mean,
        autocorrelation=tuple(_autocorrelation(around, lag) for lag in LAGS_S),
        empty_share=float((counts == 0).mean()),
    )


def _autocorrelation(around: NDArray[np.float64], lag: int) -> float:
    power = float(around @ around)
    if len(around) <= lag or power == 0.0:
        return float("nan")
    return float(around[:-lag] @ around[lag:]) / power
