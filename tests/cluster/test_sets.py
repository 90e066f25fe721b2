"""The sets a board can hold: all of them, and no other."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from support.clusters import cluster, tenant

from migrator.cluster.demand import kinds_of, window_problem
from migrator.cluster.items import apart_of, items_of, members_of
from migrator.cluster.sets import Sets, list_sets
from migrator.cluster.worth import worth_of
from migrator.core.cluster import ClusterScenario, Rules
from migrator.core.errors import InfeasibleError
from migrator.plan.feasible import require_feasible

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
    board, kinds = scenario.gpus[0].board, list(kinds_of(scenario).values())
    alone = [each.tenant(board, scenario.slot_s, scenario.slots) for each in kinds]
    items = items_of({each.name: each.entry for each in scenario.tenants}, scenario.rules)
    units = np.array([len(each.units) for each in items])
    worth = worth_of(board, scenario.slots, alone)
    return list_sets(worth, members_of(items, len(kinds)), apart_of(items, 1), units, most)


def test_the_planner_takes_every_set_listed_and_refuses_every_other(
    scenario: ClusterScenario,
) -> None:
    sets, kinds = listed(scenario), list(kinds_of(scenario).values())
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


def test_sets_left_out_are_told_of(scenario: ClusterScenario) -> None:
    whole, part = listed(scenario), listed(scenario, most=12)
    assert len(part.counts) <= 12 < len(whole.counts)
    assert part.largest < part.most <= whole.largest
    values, rent = np.array([5.0, 4.0, 3.0, 2.0]), 10.0
    prices = np.array([3.0, 4.0, 4.0, 4.0])
    part.lower(values, rent)
    most = max(
        rent + counts @ (values - prices) for counts in whole.counts if counts.sum() > part.largest
    )
    assert part.beyond(prices) >= most
    assert whole.beyond(prices) == -np.inf


def test_rules_make_units_and_items() -> None:
    kind_of = {"a": 0, "b": 0, "c": 1, "d": 1, "e": 0, "f": 0}
    together = (frozenset("ac"), frozenset("cd"))
    items = items_of(kind_of, Rules(apart=(frozenset("be"),), together=together))
    assert {(each.kinds, each.units) for each in items} == {
        ((0, 1, 1), (("a", "c", "d"),)),
        ((0,), (("b",), ("e",))),
        ((0,), (("f",),)),
    }
