"""Expected throughput of a capability, over the scenarios of a tenant's arrivals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.core.problem import Problem
from migrator.planning.arrays import Floats, Ints
from migrator.planning.kernels import compiled_inner


class Arrivals(NamedTuple):
    """All tenants' arrivals."""

    ordered: Floats
    """[tenant, slot, scenario], ascending"""
    below: Floats
    """[tenant, slot, n]: sum of the n smallest"""

    counts: Ints
    """[tenant]: how many scenarios it has; further columns are not used"""


def arrivals_of(problem: Problem) -> Arrivals:
    """The problem's arrivals."""
    counts = np.array([len(tenant.received) for tenant in problem.tenants], np.int64)
    ordered = np.full((len(counts), problem.slots, counts.max()), np.inf)
    below = np.full((len(counts), problem.slots, counts.max() + 1), np.inf)
    for m, tenant in enumerate(problem.tenants):
        ordered[m, :, : counts[m]] = np.sort(np.array(tenant.received).T, axis=1)
        below[m, :, 0] = 0.0
        below[m, :, 1 : counts[m] + 1] = ordered[m, :, : counts[m]].cumsum(axis=1)
    return Arrivals(ordered, below, counts)


@compiled_inner
def expected(arrivals: Arrivals, m: int, slot: int, capability: float) -> float:
    """E[min(received, capability)] by binary search in the sorted scenarios."""
    ordered, below, count = arrivals.ordered, arrivals.below, arrivals.counts[m]
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if ordered[m, slot, middle] < capability:
            low = middle + 1
        else:
            high = middle
    mean: float = (below[m, slot, low] + capability * (count - low)) / count
    return mean
