"""Periods that are there are found, others are not."""

import numpy as np
import pytest
from numpy.typing import NDArray

from migrator.forecast.seasonal import NO_PERIOD, find_period

SLOTS = np.arange(3000)
RNG = np.random.default_rng(11)


@pytest.mark.parametrize("period", [2, 7, 30, 150, 288, 600, 999])
def test_pulses_are_found_exactly(period: int) -> None:
    counts = RNG.poisson(2 + 30 * (SLOTS % period < max(1, period // 50))).astype(float)
    found = find_period(counts)
    assert found.slots == period
    assert 0.2 < found.correlation <= 1


@pytest.mark.parametrize("period", [7, 30, 150, 288, 600])
def test_waves_are_found_nearly(period: int) -> None:
    counts = RNG.poisson(20 + 10 * np.sin(2 * np.pi * SLOTS / period)).astype(float)
    assert find_period(counts).slots == pytest.approx(period, rel=0.05)


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
