"""Statistics of a trace: rate, burstiness and memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.workload.traces.generator import LAGS_S, Statistics


def statistics_of(counts: NDArray[np.int64]) -> Statistics:
    """Statistics over the whole trace, which has at least one request."""
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
