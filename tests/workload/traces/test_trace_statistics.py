import math

import numpy as np
import pytest

from migrator.workload.traces.statistics import LAGS_S, statistics_of


def test_by_hand() -> None:
    counts = np.array([0, 4] * 150)
    found = statistics_of(counts)
    assert (found.seconds, found.mean_rps, found.dispersion, found.empty_share) == (300, 2, 2, 0.5)
    # Alternating: every step flips the sign, and the sum misses one term per second of lag.
    expected = [(-1) ** lag * (300 - lag) / 300 for lag in LAGS_S]
    assert found.autocorrelation == pytest.approx(expected)


def test_lags_beyond_the_end_are_not_told() -> None:
    found = statistics_of(np.array([1, 2] * 20))
    assert [math.isnan(each) for each in found.autocorrelation] == [False, False, True, True]


def test_a_constant_trace_has_no_autocorrelation() -> None:
    assert all(math.isnan(each) for each in statistics_of(np.full(300, 7)).autocorrelation)
