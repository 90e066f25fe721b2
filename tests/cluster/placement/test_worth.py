"""Prices: whatever they are, no plan of any set of tenants is worth more than they say."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest
from support.clusters import MODELS, cluster, tenant

from migrator.cluster.placement.kinds import TenantKind, observation_of, tenant_kinds
from migrator.cluster.placement.prices import OWN_STEPS, find_prices
from migrator.cluster.placement.responses import best_responses
from migrator.cluster.placement.tables import Worth, tabulate
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
def worth(scenario: ClusterScenario, kinds: list[TenantKind]) -> Worth:
    board = scenario.gpus[0].board
    alone = [kind.tenant(board, scenario.slot_s, scenario.slots) for kind in kinds]
    return tabulate(board, scenario.slots, alone)


@pytest.fixture(scope="module")
def goodputs(scenario: ClusterScenario, kinds: list[TenantKind]) -> dict[tuple[int, ...], float]:
    """Every set of up to three tenants that fits, planned under both charges: the better plan."""
    board, found = scenario.gpus[0].board, {}
    for size in (1, 2, 3):
        for chosen in combinations_with_replacement(range(len(kinds)), size):
            if chosen.count(1) > 1:
                continue  # two of at least 2 GPCs leave no room for a retraining
            views = [kinds[each].views[board.name] for each in chosen]
            seen = observation_of(board, scenario.slot_s, scenario.slots, views)
            found[chosen] = max(planned(seen, charge)[1].goodput for charge in Charge)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_no_plan_is_worth_more_than_any_prices_say(
    seed: int, worth: Worth, goodputs: dict[tuple[int, ...], float]
) -> None:
    random = np.random.default_rng(seed)
    slots, sizes = worth.before.shape[1], len(worth.gpcs)
    steep = 10.0 ** random.uniform(0, 3)
    prices = random.exponential(steep, (slots, sizes)) * worth.gpcs
    found = best_responses(worth, prices * (random.random((slots, sizes)) < 0.8))
    for chosen, goodput in goodputs.items():
        bound = found.rent + found.values[list(chosen)].sum()
        assert goodput <= bound * (1 + 1e-9), chosen


def test_good_prices_are_near_the_plans(
    worth: Worth, goodputs: dict[tuple[int, ...], float]
) -> None:
    for chosen, goodput in goodputs.items():
        weights = np.bincount(chosen, minlength=len(worth.able)).astype(np.float64)
        bound = find_prices((worth,), (1.0,), weights, OWN_STEPS).bound
        assert goodput <= bound * (1 + 1e-9)
        assert bound <= goodput * 1.08, chosen


def test_without_prices_and_retraining_a_life_alone_is_the_plan_alone(
    scenario: ClusterScenario, worth: Worth, goodputs: dict[tuple[int, ...], float]
) -> None:
    found = best_responses(worth, np.zeros((scenario.slots, len(worth.gpcs))))
    assert found.rent == 0
    assert found.values[2] == pytest.approx(goodputs[2,], rel=1e-3)
