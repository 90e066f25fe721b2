"""Placing tenants: who is left out and why, and what rules, weights and floors change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from support.clusters import MODELS, cluster, tenant

from migrator.cluster.placement.place import place
from migrator.cluster.scenario import ClusterPlan, ClusterScenario


def require_whole(scenario: ClusterScenario, plan: ClusterPlan) -> None:
    """Every tenant once, on a GPU that is there."""
    placed = [name for gpu in plan.gpus for name in gpu.tenants]
    left = [unplaced.tenant for unplaced in plan.unplaced]
    assert sorted(placed + left) == sorted(placed_tenant.name for placed_tenant in scenario.tenants)
    assert [gpu.gpu for gpu in plan.gpus] == list(scenario.gpus)


def test_the_same_scenario_has_the_same_placement() -> None:
    tenants = [tenant("a", MODELS[0], 900, count=3), tenant("b", MODELS[1], 700, count=2)]
    first, second = (place(cluster(tenants, [{"board": "A30-24GB", "count": 2}])) for _ in range(2))
    assert first.placement == second.placement
    assert first.upper_bound_rps == second.upper_bound_rps


def test_fewest_tenants_stay_without_a_gpu_and_the_answer_says_why() -> None:
    scenario = cluster(
        [tenant("wide", rps=800, min_gpcs=4, count=2), tenant("small", rps=200, count=3)],
        [{"board": "A30-24GB", "count": 2}],
    )
    plan = place(scenario)
    require_whole(scenario, plan)
    # a wide one needs a whole GPU: one of them and the three small ones fit
    assert [unplaced.tenant for unplaced in plan.unplaced] in (["wide-001"], ["wide-002"])
    assert "add a GPU, lower min_gpcs" in plan.unplaced[0].why
    placed = cluster(
        [tenant("wide", rps=800, min_gpcs=4, count=2), tenant("small", rps=200, count=3)],
        [{"board": "A30-24GB", "count": 3}],
    )
    assert not place(placed).unplaced


def test_who_is_served_now_is_not_left_out_for_who_is_not() -> None:
    tenants = [tenant("low", rps=20, min_gpcs=4), tenant("high", MODELS[1], rps=900, count=4)]
    scenario = cluster(tenants, [{"board": "A30-24GB"}])
    assert [unplaced.tenant for unplaced in place(scenario).unplaced] == ["low"]
    served = place(scenario, current={"low": "A30-24GB"})
    assert served.placement == {"low": "A30-24GB"}
    gone = place(scenario, current={"low": "burnt", "high-002": "A30-24GB"})
    assert [unplaced.tenant for unplaced in gone.unplaced] == ["low"]


def test_a_served_replica_keeps_its_place_among_its_likes() -> None:
    scenario = cluster([tenant("a", rps=300, count=6)], [{"board": "A30-24GB"}])
    plan = place(scenario, current={"a-005": "A30-24GB", "a-006": "A30-24GB"})
    assert {"a-005", "a-006"} <= set(plan.placement)
    assert len(plan.unplaced) == 2


def test_apart_leaves_out_who_has_no_gpu_of_their_own() -> None:
    scenario = cluster(
        [tenant("a", rps=200, count=3)], [{"board": "A30-24GB", "count": 2}], apart=[["a"]]
    )
    plan = place(scenario)
    assert [len(gpu.tenants) for gpu in plan.gpus] == [1, 1]
    assert "must be apart" in plan.unplaced[0].why


def test_spare_room_costs_goodput_only_where_it_is_needed() -> None:
    def goodput(spare: float, rps: float) -> float:
        tenants = [tenant("a", rps=rps), tenant("b", MODELS[1], rps=rps)]
        return place(cluster(tenants, [{"board": "A30-24GB"}], spare=spare)).goodput_rps

    assert goodput(0.3, 1500) < 0.95 * goodput(0.0, 1500)
    assert goodput(0.3, 100) == pytest.approx(goodput(0.0, 100), rel=0.02)


def test_a_floor_gives_a_tenant_room_that_goodput_alone_does_not() -> None:
    """One large and one small GPU: without a floor the accurate tenant has the large one."""
    boards = [{"board": "A30-24GB"}, {"board": "A100-40GB", "name": "big"}]

    def home(**of_slow: float) -> tuple[ClusterPlan, str]:
        tenants = [
            tenant("slow", MODELS[1], 4000, **_window(0.2), **of_slow),
            tenant("accurate", MODELS[0], 2600, **_window(0.9)),
        ]
        plan = place(cluster(tenants, boards, apart=[["slow", "accurate"]]))
        return plan, plan.placement["slow"]

    plain, on = home()
    assert on == "A30-24GB"
    with_floor, on = home(floor=0.8)
    assert on == "big"
    assert with_floor.goodput_rps < plain.goodput_rps
    assert with_floor.short_rps == pytest.approx(0, abs=1e-6)
    assert home(weight=50.0)[1] == "big"


def _window(accuracy: float) -> Mapping[str, Any]:
    """One in which nothing is to be retrained."""
    same = {"accuracy_pre": accuracy, "accuracy_post": accuracy, "seconds": None}
    return {"retraining": {"windows": [same]}}
