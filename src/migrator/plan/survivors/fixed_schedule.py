"""What is still to come around a fixed schedule, if positions did not matter.

Tenants hold multisets; an instance new to its tenant is cold for the overhead; the rest is
exact, jointly for all tenants, by one pass backwards over the joint patterns. The search over
real allocations ranks its states by it.
"""

from __future__ import annotations

import numpy as np

from migrator.core.instance import Instance, Kind, Task
from migrator.core.plan import Allocation
from migrator.core.problem import Problem
from migrator.plan.exact.space import Floats, Ints, Schedule, Space, SpaceArrays, occupied_by
from migrator.plan.exact.tables import NEVER
from migrator.plan.kernels import compiled
from migrator.plan.survivors.options import Arrivals, Menus, expected
from migrator.plan.survivors.search import Around


def values_ahead(
    problem: Problem,
    space: Space,
    arrivals: Arrivals,
    schedule: Schedule,
    masks: Ints,
    accuracy: Floats,
) -> Floats:
    """[slot, joint pattern held warm before it]: the goodput from that slot on."""
    sizes = space.geometry.sizes
    capability = np.array(
        [[t.capability.get(size, 0.0) for size in sizes] for t in problem.tenants]
    )
    over = np.array([t.overhead_s / problem.slot_s for t in problem.tenants])
    endings = np.full((len(problem.tenants), 2), -1, np.int64)
    for m, start in enumerate(schedule):
        if start is not None:
            endings[m] = start.end, space.geometry.place_size[start.place]
    values = np.zeros((problem.slots + 1, len(space.joint)))
    _fill(
        space.arrays,
        np.array([len(own) for own in space.patterns], np.int64),
        space.pattern_sizes,
        capability,
        over,
        arrivals,
        masks,
        accuracy,
        endings,
        values,
    )
    return values


@compiled
def _fill(
    space: SpaceArrays,
    patterns: Ints,
    counts: Floats,
    capability: Floats,
    over: Floats,
    arrivals: Arrivals,
    masks: Ints,
    accuracy: Floats,
    endings: Ints,
    values: Floats,
) -> None:
    joint, tenants, width = space.joint, space.joint.shape[1], counts.shape[1]
    gain = np.empty((tenants, width, width))
    for t in range(masks.shape[0] - 1, -1, -1):
        for m in range(tenants):
            freed = endings[m, 1] if endings[m, 0] == t else -1
            for p in range(patterns[m]):
                for q in range(patterns[m]):
                    gain[m, p, q] = _gain(
                        t, m, counts[m, p], counts[m, q], capability[m], over[m], freed,
                        arrivals, accuracy[m],
                    )  # fmt: skip
        for j in range(joint.shape[0]):
            best = NEVER
            for to in space.fitting[masks[t]]:
                if to < 0:
                    break
                total = values[t + 1, to]
                for m in range(tenants):
                    total += gain[m, joint[j, m], joint[to, m]]
                best = max(best, total)
            values[t, j] = best


@compiled
def _gain(
    t: int,
    m: int,
    had: Floats,
    has: Floats,
    capability: Floats,
    over: float,
    freed: int,
    arrivals: Arrivals,
    accuracy: Floats,
) -> float:
    """Goodput of slot t when the tenant goes from `had` to `has`, less what it will miss.

    `freed`: size index of the instance that a retraining of the tenant has just left to it.
    """
    kept, total = 0.0, 0.0
    for k in range(capability.shape[0]):
        mine = had[k] + (1.0 if k == freed else 0.0)
        kept += capability[k] * min(mine, has[k])
        total += capability[k] * has[k]
    share = min(1.0, max(0.0, 1.0 - over))
    worth: float = accuracy[t] * expected(arrivals, m, t, kept + share * (total - kept))
    then, age = t + 1, 1
    while share < 1.0 and kept < total and then < accuracy.shape[0]:
        share = min(1.0, max(0.0, age + 1.0 - over))
        missed = expected(arrivals, m, then, total)
        missed -= expected(arrivals, m, then, kept + share * (total - kept))
        worth -= accuracy[then] * missed
        then, age = then + 1, age + 1
    return worth


def around_of(problem: Problem, space: Space, arrivals: Arrivals, schedule: Schedule) -> Around:
    """The schedule with everything that ranks allocations around it."""
    masks = occupied_by(space, schedule, problem.slots)
    accuracy = np.array([[tenant.accuracy_pre] * problem.slots for tenant in problem.tenants])
    for m, start in enumerate(schedule):
        if start is not None:
            accuracy[m, start.end :] = problem.tenants[m].accuracy_post
    ahead = values_ahead(problem, space, arrivals, schedule, masks, accuracy)
    later = sum(
        tenant.later_goodput
        for tenant, start in zip(problem.tenants, schedule, strict=True)
        if start is not None
    )
    return Around(schedule, masks, accuracy, ahead, later)


def allocations_of(
    problem: Problem, menus: Menus, space: Space, sets: Ints, schedule: Schedule
) -> tuple[Allocation, ...]:
    """The own sets found per slot and tenant, with the schedule's retrainings, on slices."""
    slots = []
    for slot, own_sets in enumerate(sets):
        instances = [
            Instance(place.start, place.gpcs, Task(tenant.name, Kind.INFERENCE))
            for tenant, own in zip(problem.tenants, own_sets, strict=True)
            for place in menus.sets[own]
        ]
        for tenant, start in zip(problem.tenants, schedule, strict=True):
            if start is not None and start.begin <= slot < start.end:
                place = space.geometry.places[start.place]
                task = Task(tenant.name, Kind.RETRAINING)
                instances.append(Instance(place.start, place.gpcs, task))
        slots.append(Allocation(tuple(sorted(instances, key=lambda each: each.start))))
    return tuple(slots)
