"""Figures of a forecaster, by hand, and that it is never shown the future."""

import numpy as np
import pytest
from numpy.typing import NDArray

from migrator.forecast.evaluation import covered, interval_of, measure, origins_of


class _Same:
    """Forecasts the given values, and records the histories it got."""

    name, summary = "same", "same"

    def __init__(self, rows: list[float]) -> None:
        self.rows = rows
        self.shown: list[NDArray[np.float64]] = []

    def ahead(
        self, history: NDArray[np.float64], slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        assert slots == window_slots
        self.shown.append(history)
        return np.repeat(np.array(self.rows)[:, None], slots, axis=1)


def test_figures_by_hand() -> None:
    counts = np.array([9.0, 9.0, 2.0, 6.0, 4.0, 4.0])
    figures = measure(_Same([4.0, 4.0]), counts, origins_of(2, 6, 2), 2)
    assert (figures.windows, figures.mean, figures.mae, figures.wape) == (2, 4, 1, 0.25)
    assert figures.coverage == 0.5
    # quantiles 4, 4, 4; missed -2, 2, 0, 0: sums of losses 3 and 3, over 12 and the mean
    assert figures.pinball == pytest.approx(6 * 1.0 / 2 * 2 / 12 / 4)


def test_only_what_is_before_is_shown() -> None:
    counts = np.arange(20.0)
    same = _Same([1.0])
    measure(same, counts, origins_of(8, 20, 5), 5)
    assert [shown.tolist() for shown in same.shown] == [list(range(8)), list(range(13))]
    assert all(shown.base is None for shown in same.shown)


def test_origins_leave_a_whole_window() -> None:
    assert origins_of(8, 20, 5).tolist() == [8, 13]
    assert origins_of(16, 20, 5).tolist() == []


def test_where_the_lowest_tenth_is_an_empty_slot_a_fifth_is_left_above() -> None:
    ahead = np.array([0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])[:, None]
    low, high = interval_of(ahead)
    assert (low[0], high[0]) == (0.0, 6.5)
    # four tenths of a request are an empty slot too
    low, high = interval_of(ahead + 0.4)
    assert (low[0], high[0]) == (0.0, 6.9)


def test_draws_of_one_distribution_are_covered_as_said() -> None:
    random = np.random.default_rng(4)

    def bursts(*shape: int) -> NDArray[np.float64]:
        return random.uniform(1, 30, shape) * (random.random(shape) < 0.3)

    assert covered(bursts(9000), bursts(99, 9000)).mean() == pytest.approx(0.8, abs=0.02)
    steady, came = random.normal(9, 1, (99, 9000)), random.normal(9, 1, 9000)
    assert covered(came, steady).mean() == pytest.approx(0.8, abs=0.02)
