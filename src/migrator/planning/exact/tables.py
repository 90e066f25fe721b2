"""What a slot is worth: goodput per tenant, slot and pattern, kept or changed, before or after.

Expected throughput is taken over the scenarios here, once, so nothing after this knows whether the
forecast was a point or a distribution.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.core.problem import Charge, Kind, Problem, RetrainingConfiguration, Task, Tenant
from migrator.planning.arrays import Bools, Floats, Ints
from migrator.planning.exact.space import Space, most_configurations

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
    """[tenant, stage, slot, pattern]: what the slot adds to the objective (its goodput times the
    tenant's weight, less the penalty of its floor), pattern as in the slot before. Stage 0 is
    before the retraining, stage 1 + c after one in configuration c"""
    change: Floats
    """[tenant, stage, slot, pattern]: the same when the pattern is new in this slot"""
    durations: Ints
    """[tenant, option]: slots of a retraining, 0 where it may not run, or another one is better.
    An option is a configuration and a size: configuration x sizes + size index"""
    slots_left: Ints
    """[tenant]: of a retraining that runs already, -1 where none does"""
    held_before: Ints
    """[tenant]: pattern held before slot 0; ANY where nothing is charged, OTHER if none fits"""
    optional: Bools
    """[tenant]: its retraining may be left out"""
    later: Floats
    """[tenant, stage]: goodput after the window that its completed retraining adds, weighted"""


def stage_after(tables: GoodputTables, m: int, configuration: int) -> int:
    """The stage after a retraining of tenant m in a configuration."""
    return 1 if tables.slots_left[m] >= 0 else 1 + configuration


def build_tables(problem: Problem, space: Space) -> GoodputTables:
    """Tabulate the problem."""
    tenants, slots = problem.tenants, problem.slots
    width = max(map(len, space.patterns))
    accuracy = stage_accuracies(problem)
    shape = (*accuracy.shape, slots, width)
    keep, change = np.full(shape, NEVER), np.full(shape, NEVER)
    for m, tenant in enumerate(tenants):
        patterns = space.patterns[m]
        total = np.array([sum(tenant.capability[size] for size in p) for p in patterns], np.float64)
        count = np.array([len(p) for p in patterns])
        charged = total - tenant.overhead_s / problem.slot_s * total / count
        for table, capability in ((keep, total), (change, charged)):
            served = expected_throughput(tenant, capability)
            lost = problem.penalty * requests_short(tenant, served)
            for stage, level in enumerate(accuracy[m]):
                table[m, stage, :, : len(patterns)] = level * served - lost
    return GoodputTables(
        patterns=np.array([len(patterns) for patterns in space.patterns], np.int64),
        keep=keep,
        change=change,
        durations=_durations(problem, space, accuracy),
        slots_left=np.array([_slots_left(problem, tenant) for tenant in tenants], np.int64),
        held_before=np.array(
            [_held_before(problem, space, m) for m in range(len(tenants))], np.int64
        ),
        optional=np.array([tenant.retraining_optional for tenant in tenants], np.bool_),
        later=_later_goodput(problem, accuracy.shape),
    )


def expected_throughput(tenant: Tenant, capability: Floats) -> Floats:
    """[slot, pattern]: E[min(received, capability)] over the tenant's scenarios."""
    served = np.zeros((len(tenant.received[0]), len(capability)))
    for scenario in tenant.received:
        served += np.minimum(np.array(scenario)[:, None], capability)
    return served / len(tenant.received)


def requests_short(tenant: Tenant, served: Floats) -> Floats:
    """[slot, n]: expected requests short of the tenant's floor; served [slot, n]: answered."""
    if tenant.floor == 0:
        return np.zeros_like(served)
    enough = tenant.floor * expected_throughput(tenant, np.full(1, np.inf))
    return np.maximum(enough - np.maximum(served, 0.0), 0.0)


def stage_accuracies(problem: Problem) -> Floats:
    """[tenant, stage]: its accuracy times its weight; where a stage cannot come, the present one.

    What runs already has one way to end, which is stage 1.
    """
    stages = 1 + most_configurations(problem)
    tenants = problem.tenants
    accuracy = np.array([[t.weight * t.accuracy_pre] * stages for t in tenants], np.float64)
    for m, tenant in enumerate(tenants):
        for c, choice in enumerate(_possible(problem, tenant)):
            accuracy[m, 1 + c] = tenant.weight * choice.accuracy
    return accuracy


def _possible(problem: Problem, tenant: Tenant) -> tuple[RetrainingConfiguration, ...]:
    """What a retraining that runs, or may be started, can be."""
    running = problem.running(tenant)
    if running is not None:
        return (tenant.configuration(running.configuration),)
    return tenant.configurations if problem.may_retrain(tenant) else ()


def _later_goodput(problem: Problem, shape: tuple[int, ...]) -> Floats:
    later = np.zeros(shape)
    for m, tenant in enumerate(problem.tenants):
        for c, choice in enumerate(_possible(problem, tenant)):
            later[m, 1 + c] = tenant.weight * tenant.later_goodput(choice)
    return later


def _durations(problem: Problem, space: Space, accuracy: Floats) -> Ints:
    sizes = space.geometry.sizes
    durations = np.zeros((len(accuracy), accuracy.shape[1] - 1, len(sizes)), np.int64)
    for m, tenant in enumerate(problem.tenants):
        if problem.may_retrain(tenant):
            for c, choice in enumerate(tenant.configurations):
                for size, needed in choice.slots.items():
                    if needed <= problem.slots:
                        durations[m, c, sizes.index(size)] = needed
            # a charge longer than the slot gives goodput below zero: less accurate is better then
            below_zero = problem.charge is Charge.PAPER and tenant.overhead_s > problem.slot_s
            _drop_dominated(durations[m], accuracy[m, 1:], more_is_better=not below_zero)
    return durations.reshape(len(accuracy), -1)


def _drop_dominated(durations: Ints, accuracy: Floats, *, more_is_better: bool) -> None:
    """Drop what takes no less time on the same size than another that is at least as accurate.

    Any plan with it is at least as good with the other one, which ends in the same slot and before
    its start leaves the instance to the tenant's inference, or unused.
    """
    for slots in durations.T:
        for c in np.flatnonzero(slots):
            as_accurate = accuracy >= accuracy[c] if more_is_better else accuracy == accuracy[c]
            as_good = (slots > 0) & (slots <= slots[c]) & as_accurate
            same = (slots == slots[c]) & (accuracy == accuracy[c])
            as_good[same] = np.flatnonzero(same) < c  # of those that are the same the first stays
            if as_good.any():
                slots[c] = 0


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
