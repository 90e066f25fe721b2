"""The sets a board can hold: all of them, and no other."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from support.clusters import cluster, tenant

from migrator.cluster.placement.kinds import tenant_kinds, window_problem
from migrator.cluster.placement.problem import group_items
from migrator.cluster.placement.sets import SetLimits, Sets, list_sets
from migrator.cluster.placement.tables import tabulate
from migrator.cluster.scenario import ClusterScenario
from migrator.core.catalogue import Board, boards, multisets
from migrator.core.errors import InfeasibleError
from migrator.planning.feasibility import require_feasible

TENANTS = [
    tenant("small", rps=300, count=4, retraining=None),
    tenant("wide", rps=300, min_gpcs=2, count=2, retraining=None),
    tenant("heavy", rps=300, memory_gib=8, count=2, retraining=None),
    tenant("whole", rps=300, min_gpcs=4, retraining=None),
]


@pytest.fixture(scope="module", params=["A30-24GB", "A100-40GB"])
def scenario(request: pytest.FixtureRequest) -> ClusterScenario:
    return cluster(TENANTS, [{"board": request.param}], apart=[["wide", "whole"]])


def listed(scenario: ClusterScenario, most: int = 10_000) -> Sets:
    board, kinds = scenario.gpus[0].board, list(tenant_kinds(scenario).values())
    alone = [kind.tenant(board, scenario.slot_s, scenario.slots) for kind in kinds]
    items = group_items({placed.name: placed.entry for placed in scenario.tenants}, scenario.rules)
    available = np.array([len(item.tenants) for item in items])
    table = tabulate(board, scenario.slots, alone)
    apart = np.array([[int(0 in item.apart)] for item in items])
    return list_sets(table, np.eye(len(kinds), dtype=np.int64), apart, available, most)


def test_the_planner_takes_every_set_listed_and_refuses_every_other(
    scenario: ClusterScenario,
) -> None:
    sets, kinds = listed(scenario), list(tenant_kinds(scenario).values())
    board = scenario.gpus[0].board
    for counts in product(range(5), range(3), range(3), range(2)):
        if not sum(counts):
            continue
        views = [kinds[k].views[board.name] for k, n in enumerate(counts) for _ in range(n)]
        try:
            require_feasible(window_problem(board, scenario.slot_s, scenario.slots, views))
            fits = counts[1] + counts[3] <= 1
        except InfeasibleError:
            fits = False
        assert (sets.find(np.array(counts)) is not None) == fits, counts


@pytest.mark.parametrize("board", list(boards().values()), ids=list(boards()))
def test_minimum_instances_fit_exactly_where_the_board_can_be_cut_so(board: Board) -> None:
    """Every board, every choice of up to as many minimum sizes as it has instances."""
    room = tabulate(board, 1, []).offered[:, ::-1].cumsum(axis=1)[:, ::-1]
    sizes = len(board.sizes)
    limits = SetLimits(
        needs=np.tril(np.ones((sizes, sizes), np.int64)),
        room=room,
        apart=np.zeros((sizes, 0), np.int64),
        able=np.ones(sizes, np.bool_),
        available=np.full(sizes, 99),
    )
    patterns = set(multisets(board))
    for number in range(1, 1 + max(map(len, patterns))):
        for chosen in combinations_with_replacement(range(sizes), number):
            pattern = tuple(sorted((board.sizes[size] for size in chosen), reverse=True))
            counts = np.bincount(chosen, minlength=sizes)
            assert limits.allows(counts) == (pattern in patterns), pattern


def test_a_set_is_added_once_and_only_where_it_keeps_the_rules(scenario: ClusterScenario) -> None:
    part, whole = listed(scenario, most=12), listed(scenario)
    values, rent = np.array([5.0, 4.0, 3.0, 2.0]), 10.0
    part.lower_bounds(values, rent)
    before = len(part.counts)
    larger = [row for row in whole.counts if row.sum() == part.largest + 1]
    numbers = part.add([*larger, larger[0], np.array([0, 1, 0, 1]), np.array([9, 0, 0, 0])])
    assert numbers == [*range(before, before + len(larger)), before, None, None]
    assert part.value[before] == larger[0] @ values + rent
    assert part.find(larger[0]) == before
    assert not part.exact[before]


def test_sets_of_one_tenant_are_always_listed(scenario: ClusterScenario) -> None:
    assert listed(scenario, most=2).largest == 1


def test_sets_left_out_are_reported(scenario: ClusterScenario) -> None:
    whole, part = listed(scenario), listed(scenario, most=12)
    assert len(part.counts) <= 12 < len(whole.counts)
    assert part.largest < part.most <= whole.largest
    values, rent = np.array([5.0, 4.0, 3.0, 2.0]), 10.0
    prices = np.array([3.0, 4.0, 4.0, 4.0])
    part.lower_bounds(values, rent)
    most = max(
        rent + counts @ (values - prices) for counts in whole.counts if counts.sum() > part.largest
    )
    assert part.highest_unlisted(prices) >= most
    assert whole.highest_unlisted(prices) == -np.inf
