"""Around a fixed retraining schedule: what ranks the inference; what was found, on slices."""

from __future__ import annotations

import numpy as np

from migrator.core.instance import Instance, Kind, Task
from migrator.core.plan import Allocation
from migrator.core.problem import Problem
from migrator.plan.exact.schedule import Schedule, occupied_by
from migrator.plan.exact.space import Ints, Space
from migrator.plan.survivors.ahead import values_ahead
from migrator.plan.survivors.arrivals import Arrivals
from migrator.plan.survivors.menu import Menus
from migrator.plan.survivors.search import Around


def around_of(problem: Problem, space: Space, arrivals: Arrivals, schedule: Schedule) -> Around:
    """The schedule with everything that ranks allocations around it."""
    masks = occupied_by(space, schedule, problem.slots)
    accuracy = np.array([[tenant.accuracy_pre] * problem.slots for tenant in problem.tenants])
    for m, start in enumerate(schedule):
        if start is not None:
            accuracy[m, start.end :] = problem.tenants[m].accuracy_post
    ahead = values_ahead(problem, space, arrivals, schedule, masks, accuracy)
    return Around(schedule, masks, accuracy, ahead)


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
