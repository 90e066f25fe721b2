"""The ridge regression: what it learns, and that it never looks ahead."""

import numpy as np
import pytest
from numpy.typing import NDArray

from migrator.forecast.ridge import LEAST_WINDOWS, Ridge
from migrator.forecast.simple import LastMean


def _bursts(slots: int) -> NDArray[np.float64]:
    """Bursts begin by chance and end after 60 slots."""
    random = np.random.default_rng(5)
    rate = np.full(slots, 20.0)
    for begin in np.cumsum(random.integers(90, 240, slots // 165)):
        rate[begin : begin + 60] = 100.0
    return random.poisson(rate).astype(float)


def test_a_rate_next_to_nothing_does_not_overflow() -> None:
    history = np.zeros(79)
    history[50], history[63] = 1.2e-158, 1.0
    assert np.isfinite(Ridge().ahead(history, 7, 1)).all()


@pytest.mark.parametrize("slots", [5, 40])
def test_what_comes_after_an_origin_changes_nothing(slots: int) -> None:
    history = _bursts(1500)
    origins = np.array([200, 500, 777, 1100, 1460])
    before = Ridge().points(history, origins, slots, 40)
    for place, origin in enumerate(origins):
        other = history.copy()
        other[origin:] = np.random.default_rng(place).poisson(300, len(history) - origin)
        after = Ridge().points(other, origins, slots, 40)
        np.testing.assert_allclose(after[: place + 1], before[: place + 1], rtol=1e-9)


def test_it_learns_how_a_burst_ends() -> None:
    history = _bursts(6000)
    origins = np.arange(3000, 5900, 60)
    came = history[origins[:, None] + np.arange(60)]
    missed = {
        forecaster.name: np.abs(forecaster.points(history, origins, 60, 60) - came).mean()
        for forecaster in (Ridge(), LastMean())
    }
    assert missed["ridge"] < 0.75 * missed["last-mean"]


def test_a_short_history_is_last_mean() -> None:
    history = _bursts(LEAST_WINDOWS * 50 - 1)
    np.testing.assert_array_equal(Ridge().ahead(history, 50, 50), LastMean().ahead(history, 50, 50))
