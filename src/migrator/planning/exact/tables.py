"""What a slot is worth: goodput per tenant, slot and pattern, kept or changed, before or after.

Expected throughput is taken over the scenarios here, once, so nothing after this knows whether the
forecast was a point or a distribution.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.core.problem import Kind, Problem, Task, Tenant
from migrator.planning.arrays import Bools, Floats, Ints
from migrator.planning.exact.space import Space

NEVER = -1e30
"""The value of what cannot happen; far below any goodput, yet safe to add to."""

IMPOSSIBLE = NEVER / 2
"""Anything below has a NEVER in it."""
ANY, OTHER = -1, -2
"""Held before slot 0: nothing is known, so nothing is charged; or no pattern of the tenant."""


class GoodputTables(NamedTuple):
    """Goodput tables of a problem under the `paper` charge, as kernels take them."""

    patterns: Ints
    """[tenant]: how many patterns it has; further columns of the tables are NEVER"""
    keep: Floats
    """[tenant, done, slot, pattern]: goodput of the slot, pattern as in the slot before"""
    change: Floats
    """[tenant, done, slot, pattern]: the same when the pattern is new in this slot"""
    durations: Ints
    """[tenant, size index]: slots of a retraining, 0 where it may not run on that size"""
    slots_left: Ints
    """[tenant]: of a retraining that runs already, -1 where none does"""
    held_before: Ints
    """[tenant]: pattern held before slot 0; ANY where nothing is charged, OTHER if none fits"""
    optional: Bools
    """[tenant]: its retraining may be left out"""
    later: Floats
    """[tenant]: goodput after the window that its completed retraining adds"""


def build_tables(problem: Problem, space: Space) -> GoodputTables:
    """Tabulate the problem."""
    tenants, slots = problem.tenants, problem.slots
    width = max(map(len, space.patterns))
    shape = (len(tenants), 2, slots, width)
    keep, change = np.full(shape, NEVER), np.full(shape, NEVER)
    for m, tenant in enumerate(tenants):
        patterns = space.patterns[m]
        total = np.array([sum(tenant.capability[size] for size in p) for p in patterns], np.float64)
        count = np.array([len(p) for p in patterns])
        charged = total - tenant.overhead_s / problem.slot_s * total / count
        for table, capability in ((keep, total), (change, charged)):
            served = expected_throughput(tenant, capability)
            table[m, 0, :, : len(patterns)] = tenant.accuracy_pre * served
            table[m, 1, :, : len(patterns)] = _final_accuracy(problem, tenant) * served
    return GoodputTables(
        patterns=np.array([len(patterns) for patterns in space.patterns], np.int64),
        keep=keep,
        change=change,
        durations=_durations(problem, space),
        slots_left=np.array([_slots_left(problem, tenant) for tenant in tenants], np.int64),
        held_before=np.array(
            [_held_before(problem, space, m) for m in range(len(tenants))], np.int64
        ),
        optional=np.array([tenant.retraining_optional for tenant in tenants], np.bool_),
        later=np.array(
            [tenant.later_goodput if _retrains(problem, tenant) else 0.0 for tenant in tenants],
            np.float64,
        ),
    )


def expected_throughput(tenant: Tenant, capability: Floats) -> Floats:
    """[slot, pattern]: E[min(received, capability)] over the tenant's scenarios."""
    served = np.zeros((len(tenant.received[0]), len(capability)))
    for scenario in tenant.received:
        served += np.minimum(np.array(scenario)[:, None], capability)
    return served / len(tenant.received)


def _final_accuracy(problem: Problem, tenant: Tenant) -> float:
    return tenant.accuracy_post if _retrains(problem, tenant) else tenant.accuracy_pre


def _retrains(problem: Problem, tenant: Tenant) -> bool:
    """Whether a retraining runs or may be started."""
    return problem.may_retrain(tenant) or problem.slots_left(tenant) is not None


def _durations(problem: Problem, space: Space) -> Ints:
    sizes = space.geometry.sizes
    durations = np.zeros((len(problem.tenants), len(sizes)), np.int64)
    for m, tenant in enumerate(problem.tenants):
        if problem.may_retrain(tenant) and tenant.retraining_slots is not None:
            for size, needed in tenant.retraining_slots.items():
                if needed <= problem.slots:
                    durations[m, sizes.index(size)] = needed
    return durations


def _slots_left(problem: Problem, tenant: Tenant) -> int:
    slots_left = problem.slots_left(tenant)
    return -1 if slots_left is None else slots_left


def _held_before(problem: Problem, space: Space, m: int) -> int:
    if problem.initial is None:
        return ANY
    task = Task(problem.tenants[m].name, Kind.INFERENCE)
    held = sorted((i.gpcs for i in problem.initial.instances if i.task == task), reverse=True)
    patterns = space.patterns[m]
    return patterns.index(tuple(held)) if tuple(held) in patterns else OTHER
