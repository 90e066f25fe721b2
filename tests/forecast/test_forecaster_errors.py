"""How errors of the past become scenarios."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from migrator.forecast.forecaster import (
    RECENT_WINDOWS,
    Origins,
    _warn_of_gaps,
    point_and_errors,
    scenarios,
    with_mean,
    without_gaps,
)
from migrator.forecast.selection import forecasters
from migrator.forecast.simple import LastMean


def _ten(
    history: NDArray[np.float64], origins: Origins, slots: int, window_slots: int
) -> NDArray[np.float64]:
    """Whatever came: ten requests."""
    assert len(history)
    assert window_slots
    return np.full((len(origins), slots), 10.0)


def test_errors_are_what_came_less_what_was_forecast() -> None:
    history = np.array([4.0, 6.0, 8.0, 8.0, 12.0, 14.0, 3.0, 4.0])
    # origins 2, 4, 6, blocks of two, means of the two before: 5, 8, 13; now 3.5
    point, errors = point_and_errors(LastMean().points, history, 2, 2, 3)
    assert point.tolist() == [3.5, 3.5]
    growth = np.sqrt(3.5 / np.array([5.0, 8.0, 13.0]))[:, None]
    np.testing.assert_allclose(errors, growth * [[3, 3], [4, 6], [-10, -9]])


def test_a_burst_stays_together() -> None:
    history = np.full(3200, 10.0)
    history[1600:1610] = 90.0
    ahead = scenarios(_ten, history, 200, 200)
    bursts = (ahead > 50).sum(axis=1)
    assert bursts.max() == 10
    slots = np.flatnonzero(ahead[bursts.argmax()] > 50)
    assert slots.tolist() == list(range(slots[0], slots[0] + 10))


def test_scenarios_spread_as_the_errors_do() -> None:
    history = np.random.default_rng(2).normal(10, 1, 3000)
    ahead = scenarios(_ten, history, 200, 200)
    # n + 1 over n: what comes varies, and so does the mean of n that it is seen from
    assert ahead.var(axis=0, ddof=1).mean() == pytest.approx(17 / 16, rel=0.1)


def test_what_is_long_ago_does_not_count() -> None:
    recent = np.random.default_rng(1).poisson(5, RECENT_WINDOWS * 20).astype(float)
    longer = np.concatenate((np.full(5000, 300.0), recent))
    for slots in (7, 20, 50):
        np.testing.assert_array_equal(
            scenarios(LastMean().points, longer, slots, 20),
            scenarios(LastMean().points, recent, slots, 20),
        )


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=8),
    st.floats(0, 60),
)
def test_the_mean_is_met_and_order_kept(values: list[float], mean: float) -> None:
    rows = np.array(values)[:, None]
    moved = with_mean(rows, np.array([mean]))
    assert (moved >= 0).all()
    assert moved.mean() == pytest.approx(mean, abs=1e-6)
    assert (np.diff(moved[np.argsort(rows[:, 0], kind="stable"), 0]) >= -1e-9).all()


def test_a_slot_that_is_no_number_of_requests_is_the_mean_of_the_others() -> None:
    history = np.array([2.0, np.nan, 4.0, -3.0, np.inf, 0.0])
    assert without_gaps(history).tolist() == [2, 2, 4, 2, 2, 0]
    assert np.isnan(history[1])
    assert without_gaps(np.full(3, np.nan)).tolist() == [1, 1, 1]
    whole = np.array([0.0, 3.0])
    assert without_gaps(whole) is whole
    assert without_gaps(np.array([])).tolist() == []


@pytest.mark.parametrize("name", ["last-mean", "last-window", "ewma", "seasonal", "ridge", "auto"])
def test_gaps_are_forecast_over(name: str) -> None:
    history = np.random.default_rng(1).poisson(20, 1500).astype(float)
    history[20:60], history[700:710], history[710:720], history[-1] = np.nan, np.inf, -40.0, -np.inf
    ahead = forecasters()[name].ahead(history, 50, 60)
    assert ahead.mean() == pytest.approx(20, rel=0.3)
    assert (ahead >= 0).all()


def test_gaps_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    _warn_of_gaps.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            LastMean().ahead(np.array([3.0, np.nan, 3.0]), 2, 2)
    assert [record.getMessage() for record in caplog.records] == [
        "a history has slots that are no number of requests; they are taken for the mean of the "
        "others"
    ]
