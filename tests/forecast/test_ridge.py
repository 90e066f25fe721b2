"""The ridge regression: what it learns, that it never looks ahead, and how it mixes forecasts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from migrator.forecast.ridge import LEAST_WINDOWS, Ridge, shares
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


PRICE = 0.05


def _products(*errors: list[float]) -> NDArray[np.float64]:
    missed: NDArray[np.float64] = np.array([errors])
    return missed @ missed.swapaxes(1, 2)


def _shares(products: NDArray[np.float64], simple: int = 0, price: float = PRICE) -> list[float]:
    mix: list[float] = shares(products, simple, np.array([price]))[0].tolist()
    return mix


def test_who_is_never_wrong_gets_all() -> None:
    share = _shares(_products([3.0, -2.0], [0.0, 0.0], [5.0, 5.0]))
    np.testing.assert_allclose(share, [0, 1, 0], atol=0.05)


@pytest.mark.parametrize("simple", [0, 1, 2])
def test_equals_leave_everything_to_the_simple_one(simple: int) -> None:
    share = _shares(_products([2.0, 1.0], [2.0, 1.0], [2.0, 1.0]), simple)
    np.testing.assert_allclose(share, np.eye(3)[simple], atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(arrays(np.float64, (2, 4, 6), elements=st.floats(-9, 9).map(lambda value: round(value, 3))))
def test_no_mix_is_better(errors: NDArray[np.float64]) -> None:
    products = errors @ errors.swapaxes(1, 2)
    mix = shares(products, 1, np.full(2, PRICE))
    np.testing.assert_allclose(mix.sum(axis=1), 1, atol=1e-9)
    assert (mix >= 0).all()
    others = np.concatenate((np.random.default_rng(1).dirichlet(np.full(4, 0.5), 300), np.eye(4)))
    for product, share in zip(products, mix, strict=True):
        assert _cost(product, share[None])[0] <= _cost(product, others).min() + 1e-3


def _cost(product: NDArray[np.float64], mixes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per mix its squared error, over the mean one, and what it costs to have moved there."""
    missed = ((mixes @ product) * mixes).sum(axis=1) / max(float(np.trace(product)) / 4, 1e-12)
    cost: NDArray[np.float64] = missed + PRICE * (1 - mixes[:, 1])
    return cost
