"""What a capability answers and is worth, over the scenarios of a tenant's arrivals."""

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
    enough: Floats
    """[tenant, slot]: requests to answer for its floor, 0 without one"""
    penalty: Floats
    """[tenant]: what a request short of that costs, 0 without a floor"""


def arrivals_of(problem: Problem) -> Arrivals:
    """The problem's arrivals."""
    counts = np.array([len(tenant.received) for tenant in problem.tenants], np.int64)
    ordered = np.full((len(counts), problem.slots, counts.max()), np.inf)
    below = np.full((len(counts), problem.slots, counts.max() + 1), np.inf)
    for m, tenant in enumerate(problem.tenants):
        ordered[m, :, : counts[m]] = np.sort(np.array(tenant.received).T, axis=1)
        below[m, :, 0] = 0.0
        below[m, :, 1 : counts[m] + 1] = ordered[m, :, : counts[m]].cumsum(axis=1)
    floors = np.array([tenant.floor for tenant in problem.tenants], np.float64)
    means = np.array([below[m, :, count] / count for m, count in enumerate(counts)])
    penalty = np.where(floors > 0, problem.penalty, 0.0)
    return Arrivals(ordered, below, counts, floors[:, None] * means, penalty)


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


@compiled_inner
def worth_of(arrivals: Arrivals, m: int, slot: int, accuracy: float, capability: float) -> float:
    """What a capability adds to the objective: goodput, less the penalty of the floor."""
    served = expected(arrivals, m, slot, capability)
    worth = accuracy * served
    if arrivals.penalty[m] > 0.0:
        worth -= arrivals.penalty[m] * max(0.0, arrivals.enough[m, slot] - served)
    return worth


@compiled_inner
def missed_by(
    arrivals: Arrivals, m: int, slot: int, accuracy: float, total: float, warm: float
) -> float:
    """What a capability of `warm` adds less than one of `total`, which is no smaller."""
    more = expected(arrivals, m, slot, total)
    less = expected(arrivals, m, slot, warm)
    missed = accuracy * (more - less)
    if arrivals.penalty[m] > 0.0:
        enough = arrivals.enough[m, slot]
        missed += arrivals.penalty[m] * (max(0.0, enough - less) - max(0.0, enough - more))
    return missed
