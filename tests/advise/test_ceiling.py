"""The ceiling: what no planner can pass."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scenarios import drift, scenario, tenant

from migrator.advise.ceiling import best_accuracies, ceiling
from migrator.core.scenario import Drift
from migrator.forecast.selection import forecaster
from migrator.policies.registry import policy
from migrator.simulation.run import run

LEARNED = drift(0.5, 0.9)


def test_every_request_in_time_by_the_retrained_model() -> None:
    one = tenant("a", [10] * 10, drifts=(LEARNED,))
    other = tenant("b", [3] * 10)
    assert ceiling(scenario(one, other)) == pytest.approx([100 * 0.9 + 30 * 1.0])


def test_a_window_without_data_to_learn_keeps_its_accuracy() -> None:
    nothing = Drift(0.6, 0.6, None)
    assert best_accuracies((nothing,), 1) == (0.6,)
    # trained to 0.9 in the first window, then half of what is known is of no more use
    assert best_accuracies((LEARNED, Drift(0.45, 0.45, None)), 2) == (0.9, 0.45)
    # after the last drift the accuracy stays
    assert best_accuracies((LEARNED,), 3) == (0.9, 0.9, 0.9)


def test_a_retraining_that_harms_can_be_left_out() -> None:
    assert best_accuracies((drift(0.8, 0.3),), 1) == (0.8,)
    # not retrained, it gains with the data: 0.8 x 0.6 / 0.3
    assert best_accuracies((drift(0.8, 0.3), drift(0.6, 0.7)), 2) == (0.8, 1.0)


def test_a_request_shortly_before_the_next_window_may_be_answered_in_it() -> None:
    better = (drift(0.5, 0.6), drift(0.5, 0.9))
    this = scenario(tenant("a", [1000] * 20, drifts=better, slo_s=5.0), windows=2)
    first, second = ceiling(this)
    assert second == pytest.approx(10_000 * 0.9)
    assert first == pytest.approx(5_000 * 0.6 + 5_000 * 0.9, rel=0.02)


RATES = st.lists(st.integers(0, 400), min_size=30, max_size=30)
ACCURACIES = st.floats(0.05, 1.0)
DRIFTING = st.lists(st.builds(drift, ACCURACIES, ACCURACIES, st.floats(2.0, 60.0)), max_size=3)


@pytest.mark.parametrize(
    "name", ["oracle", "migrator", "migrator-paper", "ekya", "astraea", "paris", "equal-mps"]
)
@settings(max_examples=3, deadline=None)
@given(data=st.data(), slo_s=st.sampled_from([0.05, 0.5, 12.0]))
def test_no_policy_passes_it(name: str, data: st.DataObject, slo_s: float) -> None:
    tenants = [
        tenant(name, data.draw(RATES), drifts=tuple(data.draw(DRIFTING)), slo_s=slo_s)
        for name in ("a", "b")
    ]
    this = scenario(*tenants, windows=3)
    most = ceiling(this)
    outcome = run(this, policy(name), forecaster("last-mean"))
    assert outcome.tally.goodput <= np.sum(most) + 1e-6
