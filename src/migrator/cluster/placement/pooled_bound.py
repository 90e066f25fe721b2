"""An upper bound on the goodput of any placement of tenants, however many kinds they are of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from migrator.cluster.placement.kinds import TenantKind
from migrator.cluster.placement.prices import POOLED_STEPS, bound_of, find_prices, values_at
from migrator.cluster.placement.tables import Floats, tabulate_kinds
from migrator.cluster.scenario import ClusterScenario

SAMPLED = 40
_AT_ONCE = 100
"""Number of kinds whose tables are in memory at the same time."""


def pooled_bound(scenario: ClusterScenario, tenants: Sequence[TenantKind]) -> float:
    """Return an upper bound on the goodput of any placement of these tenants in a window.

    Prices are searched for a sample of the tenants; the bound is summed over all of them.
    """
    if not tenants:
        return 0.0
    boards = list(scenario.boards.values())
    gpus = [sum(gpu.board == board for gpu in scenario.gpus) for board in boards]
    kinds = list({id(tenant): tenant for tenant in tenants}.values())
    count_of = Counter(map(id, tenants))
    spaced = np.unique(np.linspace(0, len(kinds) - 1, SAMPLED).astype(int))
    order = sorted(kinds, key=lambda kind: kind.mean_rps)
    sample = [order[position] for position in spaced]
    weights = np.full(len(sample), len(tenants) / len(sample))
    priced = find_prices(tabulate_kinds(scenario, sample), gpus, weights, POOLED_STEPS)
    values: list[Floats] = []
    for begin in range(0, len(kinds), _AT_ONCE):
        tables = tabulate_kinds(scenario, kinds[begin : begin + _AT_ONCE])
        values.append(values_at(tables, priced.prices)[0])
    weight = np.array([count_of[id(kind)] for kind in kinds], np.float64)
    return bound_of(np.concatenate(values, axis=1), priced.rents, gpus, weight)
