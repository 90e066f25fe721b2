"""Random tiny clusters against every placement of them: the bound holds, and so does the gap."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.amount import amount
from support.clusters import MODELS, Tried, cluster, tenant

from migrator.cluster.placement.place import place
from migrator.cluster.placement.solve import ENOUGH
from migrator.cluster.scenario import ClusterScenario
from migrator.core.errors import InputError

NAMES = "abcd"


@st.composite
def clusters(draw: st.DrawFn) -> ClusterScenario:
    """Up to four tenants, up to three GPUs of two boards, all rules."""
    names = NAMES[: draw(st.integers(1, 4))]
    tenants = [
        tenant(
            name,
            draw(st.sampled_from(MODELS)),
            draw(st.sampled_from([0.5, 40.0, 500.0, 1400.0])),
            min_gpcs=draw(st.sampled_from([1, 1, 2, 4])),
            memory_gib=draw(st.sampled_from([0.0, 0.0, 8.0, 20.0])),
            weight=draw(st.sampled_from([1.0, 1.0, 0.5, 3.0])),
            floor=draw(st.sampled_from([0.0, 0.0, 0.5, 0.95])),
            **draw(st.sampled_from([{}, {"retraining": None}])),
        )
        for name in names
    ]
    gpus = [{"board": "A30-24GB", "name": "gpu", "count": draw(st.integers(1, 2))}]
    if draw(st.booleans()):
        gpus.append({"board": "A100-40GB", "name": "big"})
    pairs = [list(combination) for combination in combinations(names, 2)]
    rules: dict[str, Any] = {"spare": draw(st.sampled_from([0.0, 0.3]))}
    if pairs:
        rules["apart"] = draw(st.lists(st.sampled_from(pairs), max_size=2))
    try:
        return cluster(tenants, gpus, **rules)
    except InputError:
        assume(False)
        raise


@settings(max_examples=amount(5, 30), deadline=None, derandomize=True)
@given(clusters())
def test_no_placement_is_above_the_bound_or_further_above_than_the_gap(
    scenario: ClusterScenario,
) -> None:
    tried, plan = Tried(scenario), place(scenario)
    placements = list(tried.placements())
    assert bool(plan.unplaced) == (not placements)
    if not placements:
        return
    best = max(value for _, value in placements)
    assert plan.placement in [placement for placement, _ in placements]
    assert plan.value_rps == pytest.approx(tried.value(plan.placement))
    assert best <= plan.upper_bound_rps * (1 + 1e-9)
    assert plan.value_rps >= best * (1 - ENOUGH) * (1 - 1e-4)
    assert plan.gap < 0.05


@settings(max_examples=amount(4, 24), deadline=None, derandomize=True)
@given(clusters(), st.data())
def test_expensive_moves_are_made_only_where_no_tenant_could_stay(
    scenario: ClusterScenario, data: st.DataObject
) -> None:
    """From any placement of some of the tenants, at a price that no move can bring in."""
    placements = [placement for placement, _ in Tried(scenario).placements()]
    assume(placements)
    start = data.draw(st.sampled_from(placements))
    current = {n: gpu for n, gpu in start.items() if data.draw(st.booleans(), label=n)}
    expensive = replace(scenario, rules=replace(scenario.rules, move_s=1e6))
    plan = place(expensive, current=current)
    assert plan.moved == ()
    assert not plan.unplaced
