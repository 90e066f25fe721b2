"""Too many kinds: those that stand for others need what they need."""

from __future__ import annotations

import pytest
from support.clusters import MODELS, cluster, tenant

from migrator.cluster.placement.kinds import TenantKind, tenant_kinds
from migrator.cluster.placement.place import place
from migrator.cluster.placement.representatives import representatives
from migrator.cluster.scenario import ClusterScenario
from migrator.core.catalogue import Board


def various(count: int) -> ClusterScenario:
    """Rates far apart, so that by them alone the wide would be put with the small."""
    tenants = [
        tenant(
            f"t{index}",
            MODELS[index % 5],
            1.3 ** (index + 1),
            min_gpcs=(1, 1, 2, 4)[index % 4],
            memory_gib=8 if index % 8 == 1 else 0,
            retraining=None,
        )
        for index in range(count)
    ]
    gpus = [{"board": "A30-24GB", "count": 9}, {"board": "A100-40GB", "name": "big", "count": 3}]
    return cluster(tenants, gpus)


def test_a_representative_needs_the_same_instances_as_its_kinds() -> None:
    scenario = various(16)
    kinds, boards = list(tenant_kinds(scenario).values()), scenario.boards
    for most in (3, 5, 8):
        for index, chosen in enumerate(representatives(kinds, boards, scenario.window_s, most)):
            for board in boards.values():
                assert least_gpcs(kinds[index], board) == least_gpcs(kinds[chosen], board)


def least_gpcs(kind: TenantKind, board: Board) -> int:
    """The smallest instance that serves it and that its min_gpcs and memory allow."""
    service = kind.views[board.name].service
    able = [gpcs for gpcs, rps in service.capabilities_rps(board).items() if rps > 0]
    return min(gpcs for gpcs in able if gpcs >= service.min_gpcs)


def test_as_many_stand_for_others_as_are_allowed() -> None:
    scenario = various(16)
    kinds = list(tenant_kinds(scenario).values())
    chosen = representatives(kinds, scenario.boards, scenario.window_s, 8)
    assert 4 <= len(set(chosen)) <= 8
    assert all(chosen[kind] == kind for kind in chosen), "who stands for others stands for itself"
    assert representatives(kinds, scenario.boards, scenario.window_s, 16) == list(range(16))


def test_many_kinds_that_must_all_be_together_are_explained() -> None:
    tenants = [tenant(f"t{index}", rps=100 + index) for index in range(22)]
    together = [[entry["name"] for entry in tenants]]
    plan = place(cluster(tenants, [{"board": "A30-24GB", "count": 2}], together=together))
    assert len(plan.unplaced) == 22
    assert "remove one from the rule" in plan.unplaced[0].why
    assert plan.goodput_rps == plan.upper_bound_rps == 0


def test_many_kinds_of_all_sizes_find_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(representatives, "__defaults__", (4,))
    plan = place(various(12))
    assert not plan.unplaced
    assert all(gpu.planned for gpu in plan.gpus)
    assert plan.goodput_rps <= plan.upper_bound_rps
