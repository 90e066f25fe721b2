"""When and where tenants retrain: a schedule, and what it occupies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from migrator.core.problem import Kind, Problem, Retraining, Task
from migrator.planning.arrays import Ints
from migrator.planning.exact.space import Space


@dataclass(frozen=True)
class Start:
    """A retraining: placement index, first slot, first slot after it."""

    place: int
    begin: int
    end: int
    configuration: int = 0
    """Index of its configuration among those of the tenant."""


Schedule = tuple[Start | None, ...]
"""Per tenant; None where nothing retrains."""


def running_of(problem: Problem, space: Space) -> Schedule:
    """The retrainings that are under way at slot 0."""
    running: list[Start | None] = []
    for tenant in problem.tenants:
        retraining = problem.running(tenant)
        if retraining is None or problem.initial is None:
            running.append(None)
            continue
        task = Task(tenant.name, Kind.RETRAINING)
        held = next(instance for instance in problem.initial.instances if instance.task == task)
        spots = [(place.start, place.gpcs) for place in space.geometry.places]
        names = [choice.name for choice in tenant.configurations]
        place = spots.index((held.start, held.gpcs))
        chosen = names.index(retraining.configuration)
        running.append(Start(place, 0, retraining.slots_left, chosen))
    return tuple(running)


def occupied_by(space: Space, schedule: Schedule, slots: int) -> Ints:
    """[slot]: the slices that the schedule's retrainings occupy, as a mask."""
    masks = np.zeros(slots, np.int64)
    for start in schedule:
        if start is not None:
            masks[start.begin : start.end] |= space.geometry.place_mask[start.place]
    return masks


def retrainings_of(problem: Problem, space: Space, schedule: Schedule) -> tuple[Retraining, ...]:
    """The schedule in the plan's words."""
    return tuple(
        Retraining(
            tenant.name,
            start.begin,
            start.end,
            space.geometry.places[start.place].gpcs,
            tenant.configurations[start.configuration].name,
        )
        for tenant, start in zip(problem.tenants, schedule, strict=True)
        if start is not None
    )
