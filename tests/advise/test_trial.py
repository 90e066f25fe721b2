"""Trials, and the layouts that never change."""

from dataclasses import replace

import pytest
from support.scenarios import drift, scenario, tenant

from migrator.advise.leads import OURS, STATIC
from migrator.advise.static_layouts import FixedLayout, static_policies
from migrator.advise.trial import Trial
from migrator.core.problem import Kind
from migrator.core.scenario import Scenario


def _first(this: Scenario) -> dict[tuple[str, Kind], list[int]]:
    """Instances of the best layout of the fluid model."""
    best = static_policies(this)[0]
    sizes: dict[tuple[str, Kind], list[int]] = {}
    assert isinstance(best, FixedLayout)
    for task, gpcs in best.sizes:
        sizes.setdefault((task.tenant, task.kind), []).append(gpcs)
    return sizes


def test_the_tenant_with_more_requests_gets_more() -> None:
    # one GPC answers 100 requests a second
    busy, idle = tenant("busy", [550] * 10), tenant("idle", [50] * 10)
    layout = _first(scenario(busy, idle))
    assert sum(layout["busy", Kind.INFERENCE]) == 6
    assert layout["idle", Kind.INFERENCE] == [1]


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
    result = Trial(make, rivals=("equal-mig", STATIC)).run()
    assert [window.received for window in result.windows] == [1300, 1300]
    assert all(window.goodput.keys() == {OURS, "equal-mig", STATIC} for window in result.windows)
    assert [window.ceiling for window in result.windows] == [pytest.approx(800 * 0.9 + 500)] * 2
    assert result.goodput(STATIC) <= sum(window.ceiling for window in result.windows)
    assert result.static.startswith(("split", "static-"))
