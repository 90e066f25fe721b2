"""The seasonal forecaster: periods that are found, and what is forecast from them."""

import numpy as np
import pytest
from numpy.typing import NDArray

from migrator.forecast.seasonal import NO_PERIOD, Seasonal, find_period
from migrator.forecast.simple import LastMean

SLOTS = np.arange(3000)


RNG = np.random.default_rng(11)


def test_seasonal_without_a_period_is_the_last_mean() -> None:
    counts = np.random.default_rng(5).poisson(5, 900).astype(float)
    origins = np.array([10, 300, 899])
    expected = LastMean().points(counts, origins, 20, 200)
    np.testing.assert_array_equal(Seasonal().points(counts, origins, 20, 200), expected)


def test_seasonal_carries_a_period_on() -> None:
    # every 10th slot 8 requests, else none: the level is 0.8
    counts = np.where(np.arange(1000) % 10 == 3, 8.0, 0.0)
    row = Seasonal().points(counts, np.array([1000]), 20, 200)[0]
    assert row.mean() == pytest.approx(0.8, abs=0.05)
    assert sorted(np.argsort(row)[-2:]) == [3, 13]
    assert row[3] > 7.5
    assert row[4] < 0.1


def test_seasonal_stands_on_the_level_of_now() -> None:
    counts = 20 + 5 * np.sin(2 * np.pi * np.arange(1500) / 50)
    counts[1300:] += 40
    row = Seasonal().points(counts, np.array([1500]), 50, 200)[0]
    assert row.mean() == pytest.approx(60, abs=0.5)


@pytest.mark.parametrize("period", [2, 30, 288, 999])
def test_pulses_are_found_exactly(period: int) -> None:
    counts = RNG.poisson(2 + 30 * (SLOTS % period < max(1, period // 50))).astype(float)
    season = find_period(counts)
    assert season.slots == period
    assert 0.2 < season.correlation <= 1


def test_three_cycles_must_have_been_seen() -> None:
    counts = np.where(SLOTS % 300 < 10, 30.0, 1.0)
    seen = [find_period(counts[:slots]).slots for slots in (500, 899, 901, 2000)]
    assert seen == [0, 0, 300, 300]


@pytest.mark.parametrize(
    "counts",
    [
        np.zeros(3000),
        np.full(3000, 5.3),
        SLOTS.astype(float),
        np.where(SLOTS < 1700, 3.0, 40.0),
        20 + 10 * np.sin(2 * np.pi * SLOTS / 1200),
        RNG.poisson(5, 3000).astype(float),
        RNG.poisson(np.where(SLOTS < 2500, 3.0, 40.0)).astype(float),
    ],
    ids=["none", "constant", "trend", "shift", "too long", "noise", "noisy shift"],
)
def test_no_period_where_there_is_none(counts: NDArray[np.float64]) -> None:
    for slots in (1, 2, 3, 50, 400, 1500, 3000):
        assert find_period(counts[:slots]) == NO_PERIOD
