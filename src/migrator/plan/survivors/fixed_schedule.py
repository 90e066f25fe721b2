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
from migrator.plan.exact.space import Floats, Ints, Schedule, Space, occupied_by
from migrator.plan.exact.tables import NEVER
from migrator.plan.kernels import compiled, compiled_inner
from migrator.plan.survivors.options import Arrivals, expected
from migrator.plan.survivors.search import Around


def around_of(problem: Problem, space: Space, arrivals: Arrivals, schedule: Schedule) -> Around:
    """The schedule with everything that ranks allocations around it."""
    tenants, sizes = problem.tenants, space.geometry.sizes
    masks = occupied_by(space, schedule, problem.slots)
    accuracy = np.array([[tenant.accuracy_pre] * problem.slots for tenant in tenants])
    endings, later = np.full((len(tenants), 2), -1, np.int64), 0.0
    for m, start in enumerate(schedule):
        if start is not None:
            accuracy[m, start.end :] = tenants[m].accuracy_post
            endings[m] = start.end, space.geometry.place_size[start.place]
            later += tenants[m].later_goodput
    ahead = np.zeros((problem.slots + 1, len(space.joint)))
    _fill(
        space.joint,
        space.arrays.fitting,
        np.array([len(own) for own in space.patterns], np.int64),
        space.pattern_sizes,
        np.array([[t.capability.get(size, 0.0) for size in sizes] for t in tenants]),
        np.array([t.overhead_s / problem.slot_s for t in tenants]),
        arrivals,
        masks,
        accuracy,
        endings,
        ahead,
    )
    return Around(schedule, masks, accuracy, ahead, later)


def allocations_of(
    problem: Problem, space: Space, owners: Ints, schedule: Schedule
) -> tuple[Allocation, ...]:
    """What tenants hold in every slot, from owners [slot, placement] and the schedule."""
    places, names = space.geometry.places, [tenant.name for tenant in problem.tenants]
    by_start = sorted(range(len(places)), key=lambda at: places[at].start)
    slots = []
    for slot, owner in enumerate(owners.tolist()):
        retraining = {each.place for each in schedule if each and each.begin <= slot < each.end}
        slots.append(
            Allocation(
                tuple(
                    Instance(
                        places[at].start,
                        places[at].gpcs,
                        Task(
                            names[owner[at]],
                            Kind.RETRAINING if at in retraining else Kind.INFERENCE,
                        ),
                    )
                    for at in by_start
                    if owner[at] >= 0
                )
            )
        )
    return tuple(slots)


@compiled
def _fill(
    joint: Ints,
    fitting: Ints,
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
    """values[slot, joint pattern held warm before it]: the goodput from that slot on."""
    tenants, width = joint.shape[1], counts.shape[1]
    gain = np.empty((tenants, width, width))
    for t in range(masks.shape[0] - 1, -1, -1):
        for m in range(tenants):
            freed = endings[m, 1] if endings[m, 0] == t else -1
            for p in range(patterns[m]):
                for q in range(patterns[m]):
                    gain[m, p, q] = _gain(
                        t, m, p, q, freed, counts, capability, over[m], arrivals, accuracy
                    )
        for j in range(joint.shape[0]):
            best = NEVER
            for n in range(fitting.shape[1]):
                to = fitting[masks[t], n]
                if to < 0:
                    break
                total = values[t + 1, to]
                for m in range(tenants):
                    total += gain[m, joint[j, m], joint[to, m]]
                best = max(best, total)
            values[t, j] = best


@compiled_inner
def _gain(
    t: int,
    m: int,
    had: int,
    has: int,
    freed: int,
    counts: Floats,
    capability: Floats,
    over: float,
    arrivals: Arrivals,
    accuracy: Floats,
) -> float:
    """Goodput of slot t when the tenant goes from pattern `had` to `has`, less what it will miss.

    `freed`: size index of the instance that a retraining of the tenant has just left to it.
    """
    kept, total = 0.0, 0.0
    for k in range(capability.shape[1]):
        mine = counts[m, had, k] + (1.0 if k == freed else 0.0)
        kept += capability[m, k] * min(mine, counts[m, has, k])
        total += capability[m, k] * counts[m, has, k]
    share = min(1.0, max(0.0, 1.0 - over))
    worth: float = accuracy[m, t] * expected(arrivals, m, t, kept + share * (total - kept))
    then, age = t + 1, 1
    while share < 1.0 and kept < total and then < accuracy.shape[1]:
        share = min(1.0, max(0.0, age + 1.0 - over))
        missed = expected(arrivals, m, then, total)
        missed -= expected(arrivals, m, then, kept + share * (total - kept))
        worth -= accuracy[m, then] * missed
        then, age = then + 1, age + 1
    return worth
