"""Statistics of traces."""

import math

import numpy as np
import pytest

from benchmarks.trace_statistics import statistics_of
from migrator.workload.traces.generator import LAGS_S


def test_by_hand() -> None:
    counts = np.array([0, 4] * 150)
    statistics = statistics_of(counts)
    assert (
        statistics.seconds,
        statistics.mean_rps,
        statistics.dispersion,
        statistics.empty_share,
    ) == (300, 2, 2, 0.5)
    # Alternating: every step flips the sign, and the sum misses one term per second of lag.
    expected = [(-1) ** lag * (300 - lag) / 300 for lag in LAGS_S]
    assert statistics.autocorrelation == pytest.approx(expected)


def test_lags_beyond_the_end_are_nan() -> None:
    statistics = statistics_of(np.array([1, 2] * 20))
    assert [math.isnan(value) for value in statistics.autocorrelation] == [False, False, True, True]


def test_a_constant_trace_has_no_autocorrelation() -> None:
    assert all(math.isnan(value) for value in statistics_of(np.full(300, 7)).autocorrelation)
