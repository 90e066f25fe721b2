"""A bound on every placement of tenants that are all different: all GPUs under one set of prices.

Prices are found for a sample of the tenants that stands for all, which may be any prices; the
bound is then summed over every tenant by itself, so it holds however the sample was taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from migrator.cluster.placement.demand import Kind
from migrator.cluster.placement.prices import POOLED_STEPS, bound_of, find_prices, values_at
from migrator.cluster.placement.worth import Floats, Worth, worth_of
from migrator.core.cluster import ClusterScenario

SAMPLED = 40
_AT_ONCE = 100
"""Kinds whose tables are in memory together."""


def pooled_bound(scenario: ClusterScenario, tenants: Sequence[Kind]) -> float:
    """No placement of these tenants (one kind each) has more goodput in a window."""
    if not tenants:
        return 0.0
    boards = list(scenario.boards.values())
    gpus = [sum(each.board == board for each in scenario.gpus) for board in boards]
    kinds = list({id(each): each for each in tenants}.values())
    many: dict[int, int] = {}
    for each in tenants:
        many[id(each)] = many.get(id(each), 0) + 1
    spaced = np.unique(np.linspace(0, len(kinds) - 1, SAMPLED).astype(int))
    order = sorted(kinds, key=lambda each: each.mean_rps)
    sample = [order[at] for at in spaced]
    weights = np.full(len(sample), len(tenants) / len(sample))
    found = find_prices(_worths(scenario, sample), gpus, weights, POOLED_STEPS)
    values: list[Floats] = []
    for begin in range(0, len(kinds), _AT_ONCE):
        some = _worths(scenario, kinds[begin : begin + _AT_ONCE])
        values.append(values_at(some, found.prices)[0])
    weight = np.array([many[id(each)] for each in kinds], np.float64)
    return bound_of(np.concatenate(values, axis=1), found.rents, gpus, weight)


def _worths(scenario: ClusterScenario, kinds: Sequence[Kind]) -> list[Worth]:
    return [
        worth_of(
            board,
            scenario.slots,
            [
                each.tenant(board, scenario.slot_s, scenario.slots)
                if board.name in each.views
                else None
                for each in kinds
            ],
        )
        for board in scenario.boards.values()
    ]
