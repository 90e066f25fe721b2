"""Trials: leads over rivals, the ceiling, and the best static split."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scenarios import drift, scenario, tenant

from migrator.advise.ceiling import best_accuracies, ceiling
from migrator.advise.leads import (
    OURS,
    STATIC,
    Leads,
    LeadVerdict,
    Sample,
    measure_leads,
    paired_lead,
)
from migrator.advise.static_layouts import FixedLayout, static_policies
from migrator.advise.trial import Trial
from migrator.core.comparison import SeedMean
from migrator.core.problem import Kind
from migrator.core.scenario import Drift, Scenario
from migrator.forecast.selection import forecaster
from migrator.policies.registry import policies, policy
from migrator.simulation.run import run


def test_the_lead_is_that_of_the_sums() -> None:
    lead = paired_lead([30, 50], [20, 60])
    assert lead is not None
    assert lead.mean == 0
    # off by 30 - 20 and 50 - 60: variance 200, over two pairs; t of one degree of freedom
    assert lead.half_width == pytest.approx(12.7062 * math.sqrt(200 / 2) / 40)


def test_pairs_that_differ_by_one_factor_leave_no_doubt() -> None:
    lead = paired_lead([11, 110, 1100], [10, 100, 1000])
    assert lead is not None
    assert lead.mean == pytest.approx(0.1)
    assert lead.half_width == pytest.approx(0, abs=1e-9)


def test_one_pair_has_no_interval_and_nothing_has_no_lead() -> None:
    assert paired_lead([2], [1]) == SeedMean(1.0, None)
    assert paired_lead([2, 3], [0, 0]) is None


def test_the_ceiling_is_measured_beside() -> None:
    samples = [Sample(100, 90, {OURS: 60, "ekya": 50, STATIC: 40}) for _ in range(2)]
    found = measure_leads(samples)
    assert (found.samples, found.goodput, found.ceiling) == (2, 0.6, 0.9)
    assert found.most == {"ekya": pytest.approx(0.8), STATIC: pytest.approx(1.25)}
    assert found.rival == "ekya"


@pytest.mark.parametrize(
    ("static", "ekya", "verdict"),
    [
        (SeedMean(0.05, 0.01), SeedMean(0.03, 0.02), LeadVerdict.PAYS),
        (SeedMean(0.01, 0.001), SeedMean(0.30, 0.01), LeadVerdict.STATIC),
        (SeedMean(-0.2, 0.001), None, LeadVerdict.STATIC),
        (SeedMean(0.0, 0.0), SeedMean(-0.4, 0.01), LeadVerdict.PEER),
        (SeedMean(-0.1, 0.0), SeedMean(-0.11, 0.01), LeadVerdict.STATIC),
        (SeedMean(0.05, 0.01), SeedMean(0.01, 0.001), LeadVerdict.PEER),
        (SeedMean(0.05, 0.06), SeedMean(0.03, 0.01), LeadVerdict.UNSURE),
        (SeedMean(0.05, None), SeedMean(0.03, None), LeadVerdict.UNSURE),
        (None, SeedMean(0.03, 0.01), LeadVerdict.PAYS),
    ],
)
def test_verdicts(static: SeedMean | None, ekya: SeedMean | None, verdict: LeadVerdict) -> None:
    over = {"ekya": ekya, STATIC: static}
    shares = {name: 0.5 / (1 + lead.mean) if lead else 0.0 for name, lead in over.items()}
    assert Leads(5, 0.5, 0.9, shares, over, {}).verdict is verdict


def test_a_policy_without_goodput_is_behind_all() -> None:
    found = measure_leads([Sample(100, 90, {OURS: 0, "ekya": 50, STATIC: 0})])
    assert found.over == {"ekya": SeedMean(-1.0, None), STATIC: None}
    assert found.verdict is LeadVerdict.PEER


LEARNED = drift(0.5, 0.9)
PLANNERS = (
    *("oracle", "oracle-required", "migrator", "migrator-once", "migrator-required"),
    "migrator-replanned",
)
"""Policies that plan under the charge `survivors`, which takes seconds."""
OTHERS = [rival for rival in policies() if rival not in (*PLANNERS, "static-1-6")]
"""The last one has no room to serve two tenants."""


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


rates = st.lists(st.integers(0, 400), min_size=30, max_size=30)
accuracies = st.floats(0.05, 1.0)
drifting = st.lists(st.builds(drift, accuracies, accuracies, st.floats(2.0, 60.0)), max_size=3).map(
    tuple
)


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=5, deadline=None)
@given(data=st.data(), slo_s=st.sampled_from([0.05, 0.5, 12.0]))
def test_no_policy_passes_it(name: str, data: st.DataObject, slo_s: float) -> None:
    _check_not_passed(name, data, slo_s)


@pytest.mark.parametrize("name", PLANNERS)
@settings(max_examples=3, deadline=None)
@given(data=st.data(), slo_s=st.sampled_from([0.05, 12.0]))
def test_no_planner_passes_it(name: str, data: st.DataObject, slo_s: float) -> None:
    _check_not_passed(name, data, slo_s)


def _check_not_passed(name: str, data: st.DataObject, slo_s: float) -> None:
    tenants = [
        tenant(name, data.draw(rates), drifts=data.draw(drifting), slo_s=slo_s)
        for name in ("a", "b")
    ]
    this = scenario(*tenants, windows=3)
    most = ceiling(this)
    outcome = run(this, policy(name), forecaster("last-mean"))
    assert outcome.tally.goodput <= np.sum(most) + 1e-6


def _first(this: Scenario) -> dict[tuple[str, Kind], list[int]]:
    """Instances of the best layout of the fluid model."""
    best = static_policies(this)[0]
    found: dict[tuple[str, Kind], list[int]] = {}
    assert isinstance(best, FixedLayout)
    for task, gpcs in best.sizes:
        found.setdefault((task.tenant, task.kind), []).append(gpcs)
    return found


def test_the_tenant_with_more_requests_gets_more() -> None:
    # one GPC answers 100 requests a second
    busy, idle = tenant("busy", [550] * 10), tenant("idle", [50] * 10)
    found = _first(scenario(busy, idle))
    assert sum(found["busy", Kind.INFERENCE]) == 6
    assert found["idle", Kind.INFERENCE] == [1]


def test_a_retraining_gets_an_instance_only_where_it_pays() -> None:
    pays = tenant("a", [100] * 10, drifts=(drift(0.2, 0.9, 8.0),))
    idle = tenant("b", [100] * 10)
    assert ("a", Kind.RETRAINING) in _first(scenario(pays, idle))
    too_long = tenant("a", [350] * 10, drifts=(drift(0.2, 0.9, 800.0),))
    assert ("a", Kind.RETRAINING) not in _first(scenario(too_long, tenant("b", [350] * 10)))


def test_the_papers_splits_are_among_them() -> None:
    names = [
        static_policy.name for static_policy in static_policies(scenario(tenant("a", [9] * 10)))
    ]
    assert names[-6:] == [f"static-{serving}-{7 - serving}" for serving in range(1, 7)]
    three = scenario(*(tenant(name, [9] * 10) for name in "abc"))
    assert [static_policy.name for static_policy in static_policies(three)][-4:] == [
        *("static-3-4", "static-4-3", "static-5-2", "static-6-1")
    ]


def make(seed: int | None, windows: int | None) -> Scenario:
    del seed
    retrained = tenant("a", [80] * 20, drifts=(drift(0.5, 0.9, 5.0), drift(0.5, 0.9, 5.0)))
    made = scenario(retrained, tenant("b", [50] * 20), windows=windows or 2)
    return replace(made, forecaster="last-mean", policy="migrator")


def test_a_trial_reports_the_best_split_and_every_window() -> None:
    result = Trial(make, ours="migrator-paper", rivals=("equal-mig", STATIC)).run()
    assert [window.received for window in result.windows] == [1300, 1300]
    assert all(window.goodput.keys() == {OURS, "equal-mig", STATIC} for window in result.windows)
    assert result.ceiling == pytest.approx(2 * (800 * 0.9 + 500))
    assert result.goodput(STATIC) <= result.ceiling
    assert result.static.startswith(("split", "static-"))
