"""Where not every set can be listed, every tenant that has room on a GPU gets one."""

from __future__ import annotations

from typing import Any

import pytest
from support.clusters import MODELS, Tried, cluster, tenant

from migrator.cluster.placement.place import place
from migrator.cluster.placement.sets import list_sets
from migrator.cluster.scenario import ClusterScenario


@pytest.fixture
def few_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only sets of one tenant."""
    monkeypatch.setattr(list_sets, "__defaults__", (6,))


def crowded(count: int, **rules: Any) -> ClusterScenario:
    tenants = [
        tenant(f"t{index}", MODELS[index], 300 + 100 * index, retraining=None) for index in range(4)
    ]
    tenants[0]["count"] = count - 3
    return cluster(tenants, [{"board": "A30-24GB", "name": "gpu", "count": 2}], **rules)


@pytest.mark.usefixtures("few_sets")
def test_every_tenant_that_fits_has_a_gpu() -> None:
    scenario = crowded(8)
    plan, tried = place(scenario), Tried(scenario)
    assert not plan.unplaced
    assert [len(gpu.tenants) for gpu in plan.gpus] == [4, 4]
    assert all(gpu.planned for gpu in plan.gpus)
    assert plan.goodput_rps == pytest.approx(tried.value(plan.placement))
    best = max(value for _, value in tried.placements())
    assert best <= plan.upper_bound_rps * (1 + 1e-9)
    assert len(place(crowded(9)).unplaced) == 1


@pytest.mark.usefixtures("few_sets")
def test_rules_are_kept_and_a_rerun_moves_no_tenant() -> None:
    scenario = crowded(6, apart=[["t1", "t2"], ["t1", "t3"]])
    plan = place(scenario)
    assert not plan.unplaced
    homes = plan.placement
    assert homes["t1"] not in (homes["t2"], homes["t3"])
    again = place(scenario, current=homes)
    assert again.placement == homes


@pytest.mark.usefixtures("few_sets")
def test_what_could_not_be_planned_in_time_is_said_to_be_estimated() -> None:
    plan = place(crowded(8), seconds=0.0)
    assert not plan.unplaced
    assert not all(gpu.planned for gpu in plan.gpus)
    assert plan.goodput_rps <= plan.upper_bound_rps


@pytest.mark.usefixtures("few_sets")
def test_many_kinds_of_all_sizes_find_room() -> None:
    """Rates far apart, so that by them alone the wide ones would be put with the small ones."""
    tenants = [
        tenant(
            f"t{index}",
            MODELS[index % 5],
            1.3 ** (index + 1),
            min_gpcs=(1, 1, 2, 4)[index % 4],
            memory_gib=8 if index % 8 == 1 else 0,
            retraining=None,
        )
        for index in range(12)
    ]
    gpus = [{"board": "A30-24GB", "count": 5}, {"board": "A100-40GB", "name": "big", "count": 2}]
    plan = place(cluster(tenants, gpus))
    assert not plan.unplaced
    assert all(gpu.planned for gpu in plan.gpus)
    assert plan.goodput_rps <= plan.upper_bound_rps
