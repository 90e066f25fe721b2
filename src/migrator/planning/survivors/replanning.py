"""Planning the inference of a window again, around the retrainings that its plan has fixed.

Only serving on the slices around the retrainings is searched, some slots ahead. That takes
milliseconds, so it can be done as arrivals are seen. What a change costs is in the search, so the
present allocation is left only where that pays. Mostly it does not: a pass over patterns that
leaves positions aside shows it at once, and a change that would pay later is left to a later
replan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from migrator.core.errors import SolverError
from migrator.core.problem import (
    Allocation,
    Charge,
    Initial,
    Instance,
    Kind,
    Plan,
    Problem,
    Retraining,
    Task,
    Tenant,
)
from migrator.planning.exact.schedule import Schedule, Start
from migrator.planning.exact.space import Space, build_space
from migrator.planning.exact.tables import requests_short
from migrator.planning.survivors.arrivals import arrivals_of
from migrator.planning.survivors.beam_search import ShareSearch, allocations_of
from migrator.planning.survivors.fixed_schedule import Around, around_of
from migrator.planning.survivors.menus import menus_of

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
    least_gain: float = 0.0,
) -> tuple[Allocation, ...]:
    """What is held from `slot` of the window on, for as many slots as `ahead` looks.

    `window` and `plan` are the window's; `ahead` has every tenant's scenarios from now on, `held`
    what every task holds now, `cold_slots` for how long some of that does not serve yet. The
    next replan is `again_in` slots from now. Nothing changes for less than `least_gain`, as a
    share of what the tenant with the least goodput gets without a change.
    """
    space = build_space(window)
    slots = len(next(iter(ahead.values()))[0])
    problem = Problem(
        window.board,
        window.slot_s,
        slots,
        Charge.SURVIVORS,
        tuple(_tenant(tenant, plan, slot, ahead[tenant.name]) for tenant in window.tenants),
        Initial(tuple(instance for instance in held if instance.task is not None)),
    )
    schedule = _schedule(window, space, plan, slot, slots)
    arrivals = arrivals_of(problem)
    around = around_of(problem, space, arrivals, schedule)
    cold = {
        instance: slots_cold
        for instance, slots_cold in (cold_slots or {}).items()
        if slots_cold > 0
    }
    if not cold and _can_stay(held, problem, space, around, min(again_in, slots), least_gain):
        return (
            Allocation(tuple(instance for instance in held if instance.task is not None)),
        ) * slots
    menus = menus_of(problem, space)
    search = ShareSearch(problem, space, menus, arrivals, cold)
    shared = search.run(around, WIDTH, lambda: False)
    if shared is None:
        raise SolverError("the inference could not be planned around the retrainings")
    return allocations_of(problem, space, shared.owners, schedule)


def _can_stay(
    held: tuple[Instance, ...],
    problem: Problem,
    space: Space,
    around: Around,
    again_in: int,
    least_gain: float,
) -> bool:
    """Whether what is held can stay until the next replan.

    It stays if the best changes would bring too little, or as much if they began later.
    """
    if not _keeps_retraining(held, problem, space, around):
        return False
    chosen, stayed = [], np.zeros((len(problem.tenants), problem.slots))
    lost = np.zeros(problem.slots)
    for m, tenant in enumerate(problem.tenants):
        serving = Task(tenant.name, Kind.INFERENCE)
        sizes = tuple(
            sorted((instance.gpcs for instance in held if instance.task == serving), reverse=True)
        )
        if sizes not in space.patterns[m]:
            return False
        chosen.append(space.patterns[m].index(sizes))
        capability = sum(tenant.capability[size] for size in sizes)
        served = np.minimum(np.array(tenant.received), capability).mean(axis=0)
        stayed[m] = around.accuracy[m] * served
        lost += problem.penalty * requests_short(tenant, served[:, None])[:, 0]
    joint = int((space.joint == chosen).all(axis=1).argmax())
    best = float(around.ahead[0, joint])
    # a tenant's own gain must be enough, however small the tenant is beside the others
    enough = float(stayed.sum() - lost.sum() + least_gain * stayed.sum(axis=1).min())
    now = stayed[:, :again_in].sum() - lost[:again_in].sum()
    later = float(now + around.ahead[again_in, joint])
    return best <= max(later + _ROUNDING * abs(later), enough)


def _keeps_retraining(
    held: tuple[Instance, ...], problem: Problem, space: Space, around: Around
) -> bool:
    """Whether just those retrain now that should, where they should, and go on to the end."""
    due, places = set(), space.geometry.places
    for tenant, start in zip(problem.tenants, around.schedule, strict=True):
        if start is not None:
            if start.begin > 0 or start.end < problem.slots:
                return False
            due.add(_retraining(tenant.name, places[start.place].start, places[start.place].gpcs))
    return due == {
        instance for instance in held if instance.task and instance.task.kind is Kind.RETRAINING
    }


def _retraining(tenant: str, start: int, gpcs: int) -> Instance:
    return Instance(start, gpcs, Task(tenant, Kind.RETRAINING))


def _tenant(tenant: Tenant, plan: Plan, slot: int, ahead: Scenarios) -> Tenant:
    """As it is now: what is retrained already is what it serves with."""
    accuracy = tenant.accuracy_pre
    for retraining in plan.retrainings:
        if retraining.tenant == tenant.name and retraining.end <= slot:
            accuracy = tenant.configuration(retraining.configuration).accuracy
    return replace(tenant, received=ahead, accuracy_pre=accuracy)


def _schedule(window: Problem, space: Space, plan: Plan, slot: int, slots: int) -> Schedule:
    """The plan's retrainings that are not over, from now on, cut off where we stop looking."""
    spots = [(place.start, place.gpcs) for place in space.geometry.places]
    starts: dict[str, Start] = {}
    for retraining in plan.retrainings:
        if retraining.end > slot and retraining.start < slot + slots:
            place = spots.index(_place(plan, retraining))
            choices = window.tenant(retraining.tenant).configurations
            starts[retraining.tenant] = Start(
                place,
                max(0, retraining.start - slot),
                retraining.end - slot,
                [choice.name for choice in choices].index(retraining.configuration),
            )
    return tuple(starts.get(tenant.name) for tenant in window.tenants)


def _place(plan: Plan, retraining: Retraining) -> tuple[int, int]:
    task = Task(retraining.tenant, Kind.RETRAINING)
    for instance in plan.slots[retraining.start].instances:
        if instance.task == task:
            return instance.start, instance.gpcs
    raise AssertionError(f"{task} has no instance in its first slot")
