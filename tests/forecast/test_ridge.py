"""The ridge regression: what it learns, and that it never looks ahead."""

import numpy as np
import pytest
from numpy.typing import NDArray

from migrator.forecast import ridge
from migrator.forecast.forecaster import Origins, full_history
from migrator.forecast.ridge import LEAST_WINDOWS, Ridge
from migrator.forecast.simple import Ewma, LastMean


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


def test_it_remembers_as_long_as_it_pays() -> None:
    """A rate that wanders wants a short memory, one that holds a long one."""
    random = np.random.default_rng(8)
    wandering = np.exp(np.cumsum(random.normal(0, 0.03, 6000)).clip(-3, 3))
    origins = np.arange(3000, 5900, 30)
    for rate, gain in ((40 * wandering, 0.1), (np.full(6000, 5.0), 0.002)):
        history = random.poisson(rate).astype(float)
        came = history[origins[:, None] + np.arange(60)]
        missed = {
            forecaster.name: ((forecaster.points(history, origins, 60, 60) - came) ** 2).mean()
            for forecaster in (Ridge(), LastMean(), Ewma())
        }
        assert missed["ridge"] < (1 - gain) * missed["last-mean"]
        assert missed["ridge"] < missed["ewma"]


def test_a_part_is_judged_by_what_had_ended_when_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that overlap with it would favour who learns them by heart."""
    rows: list[int] = []
    said = ridge._forecasts

    def noted(seen: ridge._Inputs, learned: ridge._FitSums) -> NDArray[np.float64]:
        rows.append(learned.rows)
        return said(seen, learned)

    monkeypatch.setattr(ridge, "_forecasts", noted)
    ridge._RollingFit(_bursts(900), np.arange(200, 600), 200, 200, 200)
    # parts begin 50 slots apart, and the last answer of one ends 249 slots after it began
    assert rows == [0, 0, 0, 0, 0, 50, 100, 150]


def test_a_short_history_is_last_mean() -> None:
    history = _bursts(LEAST_WINDOWS * 50 - 1)
    np.testing.assert_array_equal(Ridge().ahead(history, 50, 50), LastMean().ahead(history, 50, 50))


def test_four_of_five_fall_between_the_outer_tenths() -> None:
    counts = _bursts(9000)
    inside = []
    for now in range(4000, 8900, 200):
        low, high = np.quantile(
            Ridge().ahead(counts[:now], 100, 100), [0.1, 0.9], axis=0, method="hazen"
        )
        came = counts[now : now + 100]
        inside.append(((low <= came) & (came <= high)).mean())
    assert 0.73 < np.mean(inside) < 0.89


def test_reaching_asks_with_the_whole_history() -> None:
    whole = np.arange(10.0)

    def sums(
        history: NDArray[np.float64], origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        assert window_slots == 2
        return np.array([[history[:origin].sum()] * slots for origin in origins])

    points = full_history(sums, whole)(whole[-4:], np.array([1, 4]), 3, 2)
    assert points.tolist() == [[21.0] * 3, [45.0] * 3]
