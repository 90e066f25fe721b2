"""Which forecaster is chosen, and why."""

import numpy as np
import pytest
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts, Forecaster
from migrator.forecast.ridge import Ridge
from migrator.forecast.seasonal import Seasonal
from migrator.forecast.selection import BACKTEST_WINDOWS, MARGIN, Auto
from migrator.forecast.simple import LastMean
from migrator.workload.traces.generator import generate


def _poisson(rate: float, slots: int) -> NDArray[np.float64]:
    return np.random.default_rng(6).poisson(rate, slots).astype(float)


def _periodic(slots: int) -> NDArray[np.float64]:
    rate = np.where(np.arange(slots) % 90 < 15, 44.0, 4.0)
    return np.random.default_rng(6).poisson(rate).astype(float)


def _scored(losses: dict[str, float]) -> Auto:
    def score(forecaster: Forecaster, history: Counts, window_slots: int) -> float:
        assert len(history) % window_slots == 0
        return losses[forecaster.name]

    return Auto((Ridge(), Seasonal()), score)


def test_a_period_is_used_where_there_is_one_and_tenants_are_not_mixed_up() -> None:
    auto, periodic, noise = Auto(), _periodic(3000), _poisson(30.0, 3000)
    choice = auto.explain(periodic, 200)
    assert choice.chosen == "seasonal"
    assert str(choice).startswith(
        "seasonal: lowest loss over the last 13 windows (loss: last-mean "
    )
    assert auto.explain(noise, 200).chosen == "last-mean"
    for history, slots, chosen in ((periodic, 200, Seasonal()), (noise, 50, LastMean())):
        np.testing.assert_array_equal(
            auto.ahead(history, slots, 200), chosen.ahead(history, slots, 200)
        )


def test_a_small_gain_is_not_enough_and_said() -> None:
    near = {"last-mean": 1.0, "ridge": 1 - 0.9 * MARGIN, "seasonal": 3.0}
    choice = _scored(near).explain(_poisson(3.0, 3000), 200)
    assert choice.chosen == "last-mean"
    assert "last-mean: ridge is not better by more than 2% over 13 windows" in str(choice)
    far = {**near, "ridge": 1 - 1.1 * MARGIN}
    assert _scored(far).explain(_poisson(3.0, 3000), 200).chosen == "ridge"


@pytest.mark.parametrize("slots", [0, 799])
def test_a_short_history_is_left_to_the_simple_one(slots: int) -> None:
    history = _poisson(30.0, slots)
    assert "too short" in str(Auto().explain(history, 200))
    np.testing.assert_array_equal(
        Auto().ahead(history, 200, 200), LastMean().ahead(history, 200, 200)
    )


def test_the_choice_is_made_once_per_window() -> None:
    asked: list[int] = []

    def score(forecaster: Forecaster, history: Counts, window_slots: int) -> float:
        assert window_slots == 200
        asked.append(len(history))
        return 1.0 if forecaster.name == "ridge" else 2.0

    auto, history = Auto((Ridge(),), score), _poisson(30.0, 9000)
    auto.explain(history[:7000], 200)
    assert asked == 2 * list(range(7000, 7000 - BACKTEST_WINDOWS * 200, -200))
    asked.clear()
    for now in (7040, 7199):
        auto.explain(history[:now], 200)
    assert not asked
    # what the older windows cost is known
    assert auto.explain(history[:7200], 200).windows == BACKTEST_WINDOWS
    assert asked == [7200, 7200]


def test_bursts_shorter_than_a_window_are_averaged_over_several_and_slow_changes_are_not() -> None:
    bursty = generate("azure-bursty", mean_rps=100, seconds=2400, seed=0).counts.astype(float)
    choice = Auto().explain(bursty, 60)
    assert choice.chosen == "long-mean", choice
    slow = generate("twitter", mean_rps=100, seconds=2400, seed=0).counts.astype(float)
    assert Auto().explain(slow, 60).chosen in ("last-mean", "ewma")
