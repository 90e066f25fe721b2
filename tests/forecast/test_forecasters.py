"""What every registered forecaster keeps, whatever the history."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from support.amount import amount

from migrator.core.errors import InputError
from migrator.forecast.forecaster import SCENARIOS, Forecaster, PointForecaster
from migrator.forecast.ridge import Ridge
from migrator.forecast.seasonal import Seasonal
from migrator.forecast.selection import forecaster, forecasters
from migrator.forecast.simple import Ewma, LastMean, LastWindow, LongMean

FORECASTERS = (LastWindow(), LastMean(), LongMean(), Ewma(), Seasonal(), Ridge())
EVERY = pytest.mark.parametrize("method", FORECASTERS, ids=lambda method: method.name)

HISTORIES = st.integers(0, 120).flatmap(
    lambda slots: st.one_of(
        arrays(np.float64, slots, elements=st.integers(0, 40).map(float)),
        arrays(np.float64, slots, elements=st.sampled_from([0.0, 0.0, 0.0, 60.0])),
        arrays(np.float64, slots, elements=st.floats(0, 1e6)),
    )
)
LENGTHS = st.integers(1, 90)


def _poisson(rate: float, slots: int) -> NDArray[np.float64]:
    return np.random.default_rng(8).poisson(rate, slots).astype(float)


def test_all_of_them_are_found_by_name() -> None:
    assert {registered.name for registered in FORECASTERS} <= set(forecasters())
    for name, registered in forecasters().items():
        assert registered.name == name
        assert registered.summary


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"forecaster: there is no 'last-men'.*last-mean"):
        forecaster("last-men")


@EVERY
@settings(max_examples=amount(25, 60), deadline=None)
@given(history=HISTORIES, slots=LENGTHS, window_slots=LENGTHS)
def test_scenarios_are_rows_of_counts(
    method: Forecaster, history: NDArray[np.float64], slots: int, window_slots: int
) -> None:
    given_history = history.copy()
    ahead = method.ahead(history, slots, window_slots)
    assert ahead.shape == (SCENARIOS, slots)
    assert np.isfinite(ahead).all()
    assert (ahead >= 0).all()
    np.testing.assert_array_equal(ahead, method.ahead(history.copy(), slots, window_slots))
    np.testing.assert_array_equal(history, given_history)


@EVERY
@settings(max_examples=amount(25, 60), deadline=None)
@given(history=HISTORIES, slots=LENGTHS, window_slots=LENGTHS)
def test_the_mean_is_the_point_forecast(
    method: PointForecaster,
    history: NDArray[np.float64],
    slots: int,
    window_slots: int,
) -> None:
    history = np.append(history, 7.0)[-15 * window_slots :]
    point = method.points(history, np.array([len(history)]), slots, window_slots)[0]
    mean = method.ahead(history, slots, window_slots).mean(axis=0)
    np.testing.assert_allclose(mean, point, rtol=1e-9, atol=1e-6)


@EVERY
def test_without_history_every_slot_gets_one_request_and_with_one_slot_that(
    method: Forecaster,
) -> None:
    assert method.ahead(np.array([]), 5, 200).tolist() == [[1.0] * 5] * SCENARIOS
    assert (method.ahead(np.array([7.0]), 5, 200) == 7).all()


@EVERY
def test_the_rest_of_a_window_is_forecast_from_now(method: Forecaster) -> None:
    history = _poisson(30, 1950)
    ahead = method.ahead(history, 50, 200)
    assert ahead.shape == (SCENARIOS, 50)
    assert ahead.mean() == pytest.approx(30, rel=0.1)
    assert method.ahead(history, 1, 200).std() > 0
    assert method.ahead(history, 0, 200).shape == (SCENARIOS, 0)
