"""Prices: whatever they are, no plan of any set of tenants is worth more than they say."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest
from support.clusters import MODELS, cluster, tenant

from migrator.cluster.placement.kinds import TenantKind, observation_of, tenant_kinds
from migrator.cluster.placement.prices import OWN_STEPS, best_responses, find_prices
from migrator.cluster.placement.tables import BoardTable, tabulate
from migrator.cluster.scenario import ClusterScenario
from migrator.core.problem import Charge
from migrator.policies.planning import planned

TENANTS = [
    tenant("a", MODELS[0], 900),
    tenant("b", MODELS[1], 1500, min_gpcs=2),
    tenant("c", MODELS[2], 2500, retraining=None),
]


@pytest.fixture(scope="module")
def scenario() -> ClusterScenario:
    return cluster(TENANTS, [{"board": "A30-24GB"}], window_s=40)


@pytest.fixture(scope="module")
def kinds(scenario: ClusterScenario) -> list[TenantKind]:
    return list(tenant_kinds(scenario).values())


@pytest.fixture(scope="module")
def table(scenario: ClusterScenario, kinds: list[TenantKind]) -> BoardTable:
    board = scenario.gpus[0].board
    alone = [kind.tenant(board, scenario.slot_s, scenario.slots) for kind in kinds]
    return tabulate(board, scenario.slots, alone)


@pytest.fixture(scope="module")
def goodputs(scenario: ClusterScenario, kinds: list[TenantKind]) -> dict[tuple[int, ...], float]:
    """Every set of up to three tenants that fits, planned under both charges: the better plan."""
    board, goodput_of = scenario.gpus[0].board, {}
    for size in (1, 2, 3):
        for chosen in combinations_with_replacement(range(len(kinds)), size):
            if chosen.count(1) > 1:
                continue  # two of at least 2 GPCs leave no room for a retraining
            views = [kinds[kind].views[board.name] for kind in chosen]
            observation = observation_of(board, scenario.slot_s, scenario.slots, views)
            goodput_of[chosen] = max(planned(observation, charge)[1].goodput for charge in Charge)
    return goodput_of


@pytest.mark.parametrize("seed", range(20))
def test_no_plan_is_worth_more_than_any_prices_say(
    seed: int, table: BoardTable, goodputs: dict[tuple[int, ...], float]
) -> None:
    random = np.random.default_rng(seed)
    slots, sizes = table.before.shape[1], len(table.gpcs)
    steep = 10.0 ** random.uniform(0, 3)
    prices = random.exponential(steep, (slots, sizes)) * table.gpcs
    responses = best_responses(table, prices * (random.random((slots, sizes)) < 0.8))
    for chosen, goodput in goodputs.items():
        bound = responses.rent + responses.values[list(chosen)].sum()
        assert goodput <= bound * (1 + 1e-9), chosen


def test_good_prices_are_near_the_plans(
    table: BoardTable, goodputs: dict[tuple[int, ...], float]
) -> None:
    for chosen, goodput in goodputs.items():
        weights = np.bincount(chosen, minlength=len(table.able)).astype(np.float64)
        bound = find_prices((table,), (1.0,), weights, OWN_STEPS).bound
        assert goodput <= bound * (1 + 1e-9)
        assert bound <= goodput * 1.08, chosen


def test_without_prices_and_retraining_a_life_alone_is_the_plan_alone(
    scenario: ClusterScenario, table: BoardTable, goodputs: dict[tuple[int, ...], float]
) -> None:
    responses = best_responses(table, np.zeros((scenario.slots, len(table.gpcs))))
    assert responses.rent == 0
    assert responses.values[2] == pytest.approx(goodputs[2,], rel=1e-3)
