"""Inside a window: the inference planned again around retrainings that stay as planned.

The window's plan has fixed which tenant retrains where and when; only serving on the slices around
is searched, some slots ahead. That takes milliseconds, so it can be done as arrivals are seen.
What a change costs is in the search, so the present allocation is left only where that pays.
Mostly it does not: a pass over patterns that leaves positions aside shows it at once, and a
change that would pay later is left to a later replan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from migrator.core.errors import SolverError
from migrator.core.instance import Instance, Kind, Task
from migrator.core.plan import Allocation, Plan, Retraining
from migrator.core.problem import Charge, Initial, Problem, Tenant
from migrator.plan.exact.space import Schedule, Space, Start, build_space
from migrator.plan.survivors.fixed_schedule import allocations_of, around_of
from migrator.plan.survivors.options import arrivals_of, menus_of
from migrator.plan.survivors.search import Around, ShareSearch

WIDTH = 4
"""States of the beam: sixteen times as many found nothing better on real traces."""
_ROUNDING = 1e-9
Scenarios = tuple[tuple[float, ...], ...]


def replan(
    window: Problem,
    plan: Plan,
    slot: int,
    ahead: Mapping[str, Scenarios],
    held: tuple[Instance, ...],
    *,
    cold_slots: Mapping[Instance, float] | None = None,
    again_in: int = 1,
) -> tuple[Allocation, ...]:
    """What is held from `slot` of the window on, for as many slots as `ahead` looks.

    `window` and `plan` are the window's; `ahead` has every tenant's scenarios from now on, `held`
    what every task holds now, `cold_slots` for how long some of that does not serve yet. The
    next replan is `again_in` slots from now.
    """
    space = build_space(window)
    slots = len(next(iter(ahead.values()))[0])
    problem = Problem(
        window.board,
        window.slot_s,
        slots,
        Charge.SURVIVORS,
        tuple(_tenant(each, plan, slot, ahead[each.name]) for each in window.tenants),
        Initial(tuple(each for each in held if each.task is not None)),
    )
    schedule = _schedule(window, space, plan, slot, slots)
    arrivals = arrivals_of(problem)
    around = around_of(problem, space, arrivals, schedule)
    cold = {each: left for each, left in (cold_slots or {}).items() if left > 0}
    if not cold and _stays(held, problem, space, around, min(again_in, slots)):
        return (Allocation(tuple(each for each in held if each.task is not None)),) * slots
    menus = menus_of(problem, space)
    search = ShareSearch(problem, space, menus, arrivals, cold)
    found = search.run(around, WIDTH, lambda: False)
    if found is None:
        raise SolverError("the inference could not be planned around the retrainings")
    return allocations_of(problem, space, found.owners, schedule)


def _stays(
    held: tuple[Instance, ...], problem: Problem, space: Space, around: Around, slots: int
) -> bool:
    """Whether what is held can stay, and no other patterns in these slots would bring more."""
    if not _trains_on(held, problem, space, around):
        return False
    chosen, meanwhile = [], 0.0
    for m, tenant in enumerate(problem.tenants):
        serving = Task(tenant.name, Kind.INFERENCE)
        sizes = tuple(sorted((e.gpcs for e in held if e.task == serving), reverse=True))
        if sizes not in space.patterns[m]:
            return False
        chosen.append(space.patterns[m].index(sizes))
        capability = sum(tenant.capability[size] for size in sizes)
        served = np.minimum(np.array(tenant.received)[:, :slots], capability).mean(axis=0)
        meanwhile += float(around.accuracy[m, :slots] @ served)
    joint = int((space.joint == chosen).all(axis=1).argmax())
    stayed = meanwhile + float(around.ahead[slots, joint])
    return float(around.ahead[0, joint]) <= stayed * (1 + _ROUNDING)


def _trains_on(held: tuple[Instance, ...], problem: Problem, space: Space, around: Around) -> bool:
    """Whether just those retrain now that should, where they should, and go on to the end."""
    due, places = set(), space.geometry.places
    for tenant, start in zip(problem.tenants, around.schedule, strict=True):
        if start is not None:
            if start.begin > 0 or start.end < problem.slots:
                return False
            due.add(_retraining(tenant.name, places[start.place].start, places[start.place].gpcs))
    return due == {each for each in held if each.task and each.task.kind is Kind.RETRAINING}


def _retraining(tenant: str, start: int, gpcs: int) -> Instance:
    return Instance(start, gpcs, Task(tenant, Kind.RETRAINING))


def _tenant(tenant: Tenant, plan: Plan, slot: int, ahead: Scenarios) -> Tenant:
    """As it is now: what is retrained already is what it serves with."""
    ends = [each.end for each in plan.retrainings if each.tenant == tenant.name]
    done = bool(ends) and ends[0] <= slot
    return replace(
        tenant,
        received=ahead,
        accuracy_pre=tenant.accuracy_post if done else tenant.accuracy_pre,
        retraining_slots=None,
    )


def _schedule(window: Problem, space: Space, plan: Plan, slot: int, slots: int) -> Schedule:
    """The plan's retrainings that are not over, from now on, cut off where we stop looking."""
    spots = [(place.start, place.gpcs) for place in space.geometry.places]
    starts: dict[str, Start] = {}
    for each in plan.retrainings:
        if each.end > slot and each.start < slot + slots:
            place = spots.index(_place(plan, each))
            starts[each.tenant] = Start(place, max(0, each.start - slot), each.end - slot)
    return tuple(starts.get(tenant.name) for tenant in window.tenants)


def _place(plan: Plan, retraining: Retraining) -> tuple[int, int]:
    task = Task(retraining.tenant, Kind.RETRAINING)
    for each in plan.slots[retraining.start].instances:
        if each.task == task:
            return each.start, each.gpcs
    raise AssertionError(f"{task} has no instance in its first slot")
