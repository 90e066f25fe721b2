"""Who forecasts each tenant: by loss, then by the goodput of the plans that follow."""

import numpy as np
import pytest
from numpy.typing import NDArray
from support.mig_views import observation, view

from migrator.forecast.forecaster import Counts, Forecaster
from migrator.forecast.selection import Auto
from migrator.forecast.simple import LastMean
from migrator.policies.forecasts import PLANNED_WINDOWS, Alike, Chosen, forecasts_of
from migrator.policies.policy import Observation

SLOTS = 20


class Says:
    """Always the same rate; who asks is written down."""

    summary = "for these tests"

    def __init__(self, name: str, rate: float) -> None:
        self.name, self.rate = name, rate
        self.asked: list[int] = []

    def ahead(self, history: Counts, slots: int, _: int) -> NDArray[np.float64]:
        self.asked.append(len(history))
        return np.full((1, slots), self.rate)


def losses(**of: float) -> Auto:
    def score(forecaster: Forecaster, _: Counts, __: int) -> float:
        return of.get(forecaster.name, 1.0)

    return Auto((TRUE, FALSE), score)


TRUE, FALSE = Says("true", 45.0), Says("false", 1.0)


def seen(windows: int = 8, slot: int = 0, oldest: int = 0) -> Observation:
    """Tenant a gets 45 in every slot, b 20: together what the board can do, if it is shared so."""
    slots = windows * SLOTS
    a = [0.0] * oldest + [45.0] * slots + [45.0] * slot
    b = [20.0] * (oldest + slots + slot)
    tenants = [view(name, history=counts, ahead=None) for name, counts in (("a", a), ("b", b))]
    return observation(*tenants, slots=SLOTS, slot=slot)


def test_any_other_forecaster_forecasts_all_tenants() -> None:
    forecasts = forecasts_of(LastMean())
    assert isinstance(forecasts, Alike)
    assert forecasts.words(seen()) == ("last-mean", "last-mean")
    assert [rows.mean() for rows in forecasts.ahead(seen(slot=5))] == pytest.approx([45, 20])
    assert forecasts.ahead(seen(slot=5))[0].shape[1] == SLOTS - 5


def test_less_loss_and_not_less_goodput_is_chosen() -> None:
    chosen = Chosen(losses(true=0.5))
    a, b = chosen.choices(seen())
    assert a.chosen == "true"
    assert a.planned == PLANNED_WINDOWS
    assert dict(a.goodputs)["true"] >= dict(a.goodputs)["last-mean"]
    assert str(a).startswith("true: less loss over the last 6 windows, and in 6 of them its plans")
    # for b the loss says the same, but plans that expect 45 where 20 come starve the other tenant
    assert b.chosen == "last-mean"
    assert "last-mean: true has the least loss over the last 6 windows, but in 6" in str(b)
    assert [scenarios.mean() for scenarios in chosen.ahead(seen())] == pytest.approx([45, 20])


def test_less_loss_but_less_goodput_is_not_chosen() -> None:
    a, _ = Chosen(losses(false=0.5)).choices(seen())
    assert a.chosen == "last-mean"
    assert dict(a.goodputs)["false"] < dict(a.goodputs)["last-mean"]
    assert "less goodput" in str(a)


def test_nobody_is_planned_with_who_does_not_predict_better() -> None:
    a, _ = Chosen(losses(true=0.99)).choices(seen())
    assert (a.chosen, a.goodputs) == ("last-mean", ())
    short, _ = Chosen(losses(true=0.5)).choices(seen(windows=2))
    assert str(short) == "last-mean: the history is too short for a backtest"


def test_what_comes_within_the_window_does_not_change_who_forecasts_its_rest() -> None:
    chosen = Chosen(losses(true=0.5))
    first = chosen.choices(seen(oldest=7))
    asked = len(TRUE.asked)
    assert chosen.choices(seen(oldest=7, slot=13)) == first
    assert len(TRUE.asked) == asked, "what was planned once is remembered"


def test_plans_of_the_past_see_only_what_was_before() -> None:
    """The latest window is the truth they are held to, so no forecast may have seen it."""
    now = seen()
    TRUE.asked.clear()
    Chosen(losses(true=0.5)).choices(now)
    assert max(TRUE.asked) == 7 * SLOTS
