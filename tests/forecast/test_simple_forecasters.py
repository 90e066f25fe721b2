"""Forecasters without a model: their points at each origin, and levels."""

import numpy as np
import pytest
from numpy.typing import NDArray

from migrator.forecast.forecaster import Points
from migrator.forecast.seasonal import Seasonal
from migrator.forecast.simple import Ewma, LastMean, LastWindow, LongMean

HISTORY = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
ALL = [
    forecaster.points for forecaster in (LastWindow(), LastMean(), LongMean(), Ewma(), Seasonal())
]


def _at(points: Points, origin: int, slots: int, window_slots: int) -> list[float]:
    row: list[float] = points(HISTORY, np.array([origin]), slots, window_slots)[0].tolist()
    return row


def test_the_last_window_is_repeated() -> None:
    points = LastWindow().points
    assert _at(points, 6, 3, 3) == [4, 5, 6]
    assert _at(points, 6, 2, 3) == [4, 5]
    assert _at(points, 6, 5, 3) == [4, 5, 6, 4, 5]
    assert _at(points, 5, 3, 3) == [3, 4, 5]


def test_the_mean_of_the_last_window() -> None:
    points = LastMean().points
    assert _at(points, 6, 2, 3) == [5, 5]
    assert _at(points, 4, 1, 2) == [3.5]
    assert _at(points, 2, 1, 100) == [1.5]


def test_the_mean_of_five_windows() -> None:
    points = LongMean().points
    assert _at(points, 6, 2, 1) == [4, 4]
    assert _at(points, 6, 1, 2) == [3.5]
    assert _at(points, 3, 2, 100) == [2, 2]


def test_ewma_halves_every_quarter_of_a_window() -> None:
    # a window of 4 slots: half-life of one slot, weights 1, 1/2, 1/4, ...
    assert _at(Ewma().points, 1, 2, 4) == [1, 1]
    assert _at(Ewma().points, 3, 1, 4) == [pytest.approx((3 + 2 / 2 + 1 / 4) / (7 / 4))]


@pytest.mark.parametrize("points", ALL)
@pytest.mark.parametrize("kind", ["noise", "pulses"])
def test_a_backtest_sees_only_what_is_before_its_origin(points: Points, kind: str) -> None:
    counts = _counts(kind)
    origins = np.array([1, 7, 200, 450])
    rows = points(counts, origins, 30, 100)
    for origin, row in zip(origins, rows, strict=True):
        other = counts.copy()
        other[origin:] = 1e6
        again = points(other, np.array([origin]), 30, 100)[0]
        np.testing.assert_allclose(row, again, rtol=1e-9)
        alone = points(counts[:origin], np.array([origin]), 30, 100)[0]
        np.testing.assert_allclose(row, alone, rtol=1e-9)


def _counts(kind: str) -> NDArray[np.float64]:
    noise = np.random.default_rng(3).poisson(4, 600).astype(float)
    return noise + 30 * (np.arange(600) % 20 < 3) if kind == "pulses" else noise
