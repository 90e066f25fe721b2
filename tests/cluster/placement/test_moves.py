"""A rerun from the current placement: few tenants move, and only where it pays."""

from __future__ import annotations

import pytest
from support.clusters import MODELS, Tried, cluster, tenant

from migrator.cluster.placement.place import place

TENANTS = [
    tenant("a", MODELS[0], 900),
    tenant("b", MODELS[1], 1500),
    tenant("c", MODELS[2], 700),
    tenant("d", MODELS[3], 400),
]
THREE = [{"board": "A30-24GB", "name": "gpu", "count": 3}]


def test_a_placement_is_kept_when_nothing_changed() -> None:
    scenario = cluster(TENANTS, THREE)
    first = place(scenario)
    # the same sets with the GPUs' names the other way round, which is just as good
    names = [gpu.name for gpu in scenario.gpus]
    turned = dict(zip(names, reversed(names), strict=True))
    current = {tenant: turned[gpu] for tenant, gpu in first.placement.items()}
    again = place(scenario, current=current)
    assert again.placement == current
    assert again.moved == ()
    assert again.goodput_rps == pytest.approx(first.goodput_rps)


def test_goodput_less_moves_is_highest() -> None:
    """Against every placement, at prices of a move from nothing to more than it can bring."""
    current = {"a": "gpu-1", "b": "gpu-1", "c": "gpu-2", "d": "gpu-2"}
    moved, tried = [], Tried(cluster(TENANTS, THREE))
    placements = list(tried.placements())
    for move_s in (0.0, 0.05, 0.5, 100.0):
        plan = place(cluster(TENANTS, THREE, move_s=move_s), current=current)
        costs = {name: move_s * rate(tried, name) for name in current}

        def net(placement: dict[str, str], goodput_rps: float, costs: dict[str, float]) -> float:
            moved_tenants = [name for name, gpu in placement.items() if current[name] != gpu]
            return goodput_rps * 8 - sum(costs[name] for name in moved_tenants)

        best = max(net(placement, value, costs) for placement, value in placements)
        assert net(plan.placement, plan.goodput_rps, costs) >= best * (1 - 0.005)
        moved.append(len(plan.moved))
    assert moved == sorted(moved, reverse=True)
    assert moved[0] > 0 == moved[-1]


def test_a_move_that_does_not_pay_is_not_made_for_several_newcomers() -> None:
    """An empty GPU takes all of them, though a fresh placement would mix old and new."""
    tenants = [*TENANTS, tenant("e", MODELS[4], 500), tenant("f", MODELS[0], 300)]
    current = {"a": "gpu-1", "b": "gpu-1", "c": "gpu-1"}
    for gpus in (1, 2):
        boards = [{"board": "A30-24GB", "name": "gpu", "count": 1 + gpus}]
        plan = place(cluster(tenants, boards, move_s=1e6), current=current)
        assert plan.moved == ()
        assert not plan.unplaced
        assert {name: plan.placement[name] for name in current} == current


def test_a_tenant_moves_if_another_would_have_no_gpu() -> None:
    tenants = [
        tenant("a", rps=200, retraining=None),
        tenant("b", MODELS[1], rps=200, retraining=None),
        tenant("wide", MODELS[2], rps=500, min_gpcs=4, retraining=None),
    ]
    scenario = cluster(tenants, [{"board": "A30-24GB", "name": "gpu", "count": 2}], move_s=1e6)
    plan = place(scenario, current={"a": "gpu-1", "b": "gpu-2"})
    assert not plan.unplaced
    assert len(plan.moved) == 1


def rate(tried: Tried, name: str) -> float:
    """The goodput per second that a move's cost is counted in."""
    entry = next(placed.entry for placed in tried.scenario.tenants if placed.name == name)
    kind = tried.kinds[entry]
    return kind.mean_rps * next(iter(kind.views.values())).accuracy


def test_tenants_of_a_gpu_that_is_gone_are_placed_anew() -> None:
    scenario = cluster(TENANTS, THREE)
    current = {"a": "gpu-1", "b": "gpu-2", "c": "burnt", "gone": "gpu-3"}
    plan = place(scenario, current=current)
    assert "c" in plan.moved
    assert set(plan.placement) == {"a", "b", "c", "d"}
