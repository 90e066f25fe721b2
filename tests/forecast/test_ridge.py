"""The ridge regression: what it learns, and that it never looks ahead."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from support.amount import amount

from migrator.forecast import ridge
from migrator.forecast.forecaster import SCENARIOS, Origins, full_history
from migrator.forecast.ridge import LEAST_WINDOWS, Ridge
from migrator.forecast.simple import Ewma, LastMean

HISTORIES = st.integers(0, 300).flatmap(
    lambda slots: st.one_of(
        arrays(np.float64, slots, elements=st.integers(0, 40).map(float)),
        arrays(np.float64, slots, elements=st.sampled_from([0.0, 0.0, 0.0, 60.0])),
        arrays(np.float64, slots, elements=st.floats(0, 1e6)),
    )
)


def _bursts(slots: int) -> NDArray[np.float64]:
    """Bursts begin by chance and end after 60 slots."""
    random = np.random.default_rng(5)
    rate = np.full(slots, 20.0)
    for begin in np.cumsum(random.integers(90, 240, slots // 165)):
        rate[begin : begin + 60] = 100.0
    return random.poisson(rate).astype(float)


@settings(max_examples=amount(25, 60), deadline=None)
@given(history=HISTORIES, slots=st.integers(1, 60), window_slots=st.integers(1, 60))
def test_scenarios_are_rows_of_counts(
    history: NDArray[np.float64], slots: int, window_slots: int
) -> None:
    given_history = history.copy()
    ahead = Ridge().ahead(history, slots, window_slots)
    assert ahead.shape == (SCENARIOS, slots)
    assert np.isfinite(ahead).all()
    assert (ahead >= 0).all()
    np.testing.assert_array_equal(ahead, Ridge().ahead(history.copy(), slots, window_slots))
    np.testing.assert_array_equal(history, given_history)


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


def test_origins_in_any_order_are_answered_alike() -> None:
    history, origins = _bursts(1500), np.array([1100, 200, 1460, 777])
    found = Ridge().points(history, origins, 40, 40)
    order = np.argsort(origins)
    np.testing.assert_array_equal(found[order], Ridge().points(history, origins[order], 40, 40))


def test_it_learns_how_a_burst_ends() -> None:
    history = _bursts(6000)
    origins = np.arange(3000, 5900, 60)
    came = history[origins[:, None] + np.arange(60)]
    missed = {
        each.name: np.abs(each.points(history, origins, 60, 60) - came).mean()
        for each in (Ridge(), LastMean())
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
            each.name: ((each.points(history, origins, 60, 60) - came) ** 2).mean()
            for each in (Ridge(), LastMean(), Ewma())
        }
        assert missed["ridge"] < (1 - gain) * missed["last-mean"]
        assert missed["ridge"] < missed["ewma"]


def test_a_part_is_judged_by_what_had_ended_when_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that overlap with it would favour who learns them by heart."""
    known: list[int] = []
    said = ridge._said

    def noted(seen: ridge._Seen, learned: ridge._Learned) -> NDArray[np.float64]:
        known.append(learned.rows)
        return said(seen, learned)

    monkeypatch.setattr(ridge, "_said", noted)
    ridge._Walk(_bursts(900), np.arange(200, 600), 200, 200, 200)
    # parts begin 50 slots apart, and the last answer of one ends 249 slots after it began
    assert known == [0, 0, 0, 0, 0, 50, 100, 150]


def test_of_noise_it_says_the_level() -> None:
    history = np.random.default_rng(2).poisson(30, 4000).astype(float)
    point = Ridge().points(history, np.array([4000]), 200, 200)
    assert np.abs(point - history[-200:].mean()).max() < 1.5


def test_a_short_history_is_last_mean() -> None:
    history = _bursts(LEAST_WINDOWS * 50 - 1)
    np.testing.assert_array_equal(Ridge().ahead(history, 50, 50), LastMean().ahead(history, 50, 50))


def test_ten_times_the_requests_give_ten_times_the_scenarios() -> None:
    history = _bursts(2500)
    tenfold = Ridge().ahead(10 * history, 100, 100)
    np.testing.assert_allclose(tenfold, 10 * Ridge().ahead(history, 100, 100), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("count", [0.0, 5.3])
def test_what_never_changed_stays(count: float) -> None:
    np.testing.assert_allclose(Ridge().ahead(np.full(1500, count), 100, 100), count, rtol=1e-9)


def test_requests_after_a_long_silence() -> None:
    history = np.concatenate((np.zeros(1000), np.full(300, 9.0)))
    ahead = Ridge().ahead(history, 50, 50)
    assert np.isfinite(ahead).all()
    assert ahead.mean() == pytest.approx(9, rel=0.2)


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

    found = full_history(sums, whole)(whole[-4:], np.array([1, 4]), 3, 2)
    assert found.tolist() == [[21.0] * 3, [45.0] * 3]
