"""Serving around a fixed schedule of retrainings: what is still to come, and a plan made again.

Tenants hold multisets; an instance new to its tenant is cold for the overhead; the rest is
exact, jointly for all tenants, by one pass backwards over the joint patterns. The search over
real allocations ranks its states by it.

`replan` plans inference again inside a window, whose plan has fixed which tenant retrains where and
when; only serving on the slices around is searched, some slots ahead. That takes milliseconds, so
it can be done as arrivals are seen. What a change costs is in the search, so the present allocation
is left only where that pays. Mostly it does not: a pass over patterns that leaves positions aside
shows it at once, and a change that would pay later is left to a later replan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

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
from migrator.plan.exact.space import Floats, Ints, Schedule, Space, Start, build_space, occupied_by
from migrator.plan.exact.tables import NEVER
from migrator.plan.kernels import compiled, compiled_inner
from migrator.plan.survivors.options import Arrivals, arrivals_of, expected, menus_of
from migrator.plan.survivors.search import Around, ShareSearch


def around_of(problem: Problem, space: Space, arrivals: Arrivals, schedule: Schedule) -> Around:
    """The schedule with everything that ranks allocations around it."""
    tenants, sizes = problem.tenants, space.geometry.sizes
    masks = occupied_by(space, schedule, problem.slots)
    accuracy = np.array([[each.accuracy_pre] * problem.slots for each in tenants], np.float64)
    endings, later = np.full((len(tenants), 2), -1, np.int64), 0.0
    for m, start in enumerate(schedule):
        if start is not None:
            accuracy[m, start.end :] = tenants[m].accuracy_post
            endings[m] = start.end, space.geometry.place_size[start.place]
            later += tenants[m].later_goodput
    ahead = np.zeros((problem.slots + 1, len(space.joint)))
    patterns = np.array([len(own) for own in space.patterns], np.int64)
    _fill(
        space.joint,
        space.arrays.fitting,
        space.arrays.kept_class[(1 << (len(tenants) - 1)) - 1],
        space.pattern_sizes,
        _changes(space.pattern_sizes, patterns),
        np.array([[t.capability.get(size, 0.0) for size in sizes] for t in tenants], np.float64),
        np.array([t.overhead_s / problem.slot_s for t in tenants], np.float64),
        arrivals,
        masks,
        accuracy,
        endings,
        ahead,
        _empty_room(space, patterns),
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


class Changes(NamedTuple):
    """Changes of a tenant's pattern, as far as the goodput of a slot can tell them apart."""

    number: Ints
    """[tenant, pattern before, pattern now] -> change"""
    kept: Floats
    """[tenant, change, size]: instances that stay"""
    now: Ints
    """[tenant, change]: the pattern now; -1 ends"""


def _changes(counts: Floats, patterns: Ints) -> Changes:
    """All changes. Which instances stay and which pattern follows is all that matters."""
    tenants, width, _ = counts.shape
    common = np.minimum(counts[:, :, None, :], counts[:, None, :, :])
    codes = common.astype(np.int64) @ 8 ** np.arange(counts.shape[2]) * width + np.arange(width)
    number = np.zeros((tenants, width, width), np.int64)
    kept = np.zeros((tenants, width * width, counts.shape[2]))
    now = np.full((tenants, width * width + 1), -1, np.int64)
    for m, own in enumerate(patterns):
        _, first, which = np.unique(codes[m, :own, :own], return_index=True, return_inverse=True)
        number[m, :own, :own] = which.reshape(own, own)
        before, after = np.divmod(first, own)
        kept[m, : len(first)], now[m, : len(first)] = common[m, before, after], after
    return Changes(number, kept, now)


class _Room(NamedTuple):
    """Room for what is worked out of one slot."""

    gain: Floats
    """[tenant, pattern before, pattern now]"""
    worth: Floats
    """[change]"""
    best: Floats
    """[group, pattern]: best with that pattern of the last tenant"""
    seen: Ints
    """[group]: slot for which `best` is known"""


def _empty_room(space: Space, patterns: Ints) -> _Room:
    tenants, width, joints = len(patterns), int(patterns.max()), len(space.joint)
    return _Room(
        gain=np.empty((tenants, width, width)),
        worth=np.empty(width * width + 1),
        best=np.empty((joints, width)),
        seen=np.full(joints, -1, np.int64),
    )


@compiled
def _fill(
    joint: Ints,
    fitting: Ints,
    groups: Ints,
    counts: Floats,
    changes: Changes,
    capability: Floats,
    over: Floats,
    arrivals: Arrivals,
    masks: Ints,
    accuracy: Floats,
    endings: Ints,
    values: Floats,
    room: _Room,
) -> None:
    """values[slot, joint pattern held warm before it]: the goodput from that slot on.

    `groups` [joint]: joint patterns that differ in the last tenant only have the same number.
    """
    for t in range(masks.shape[0] - 1, -1, -1):
        for m in range(joint.shape[1]):
            freed = endings[m, 1] if endings[m, 0] == t else -1
            cost = capability, over[m], arrivals, accuracy
            _find_gains(t, m, freed, counts, changes, *cost, room.worth, room.gain)
        _find_changes(t, joint, fitting, masks[t], groups, values, room)


@compiled_inner
def _find_changes(
    t: int, joint: Ints, fitting: Ints, mask: int, groups: Ints, values: Floats, room: _Room
) -> None:
    """values[t, joint]: the best change from it, with what is worth after it.

    First for every pattern that the last tenant changes to, then its own change.
    """
    gain, best, last = room.gain, room.best, joint.shape[1] - 1
    for j in range(joint.shape[0]):
        group = groups[j]
        if room.seen[group] != t:
            room.seen[group] = t
            for q in range(best.shape[1]):
                best[group, q] = NEVER
            for n in range(fitting.shape[1]):
                to = fitting[mask, n]
                if to < 0:
                    break
                total, q = values[t + 1, to], joint[to, last]
                for m in range(last):
                    total += gain[m, joint[j, m], joint[to, m]]
                best[group, q] = max(best[group, q], total)
        top = NEVER
        for q in range(best.shape[1]):
            if best[group, q] > NEVER:
                top = max(top, best[group, q] + gain[last, joint[j, last], q])
        values[t, j] = top


@compiled_inner
def _find_gains(
    t: int,
    m: int,
    freed: int,
    counts: Floats,
    changes: Changes,
    capability: Floats,
    over: float,
    arrivals: Arrivals,
    accuracy: Floats,
    worth: Floats,
    gain: Floats,
) -> None:
    """gain[m, p, q]: goodput of slot t when the tenant goes from pattern p to q, less what it
    will miss.

    `freed`: size index of the instance that a retraining of the tenant has just left to it.
    """
    sizes, stays = capability.shape[1], changes.kept
    for c in range(changes.now.shape[1]):
        q = changes.now[m, c]
        if q < 0:
            break
        kept, total = 0.0, 0.0
        for k in range(sizes):
            kept += capability[m, k] * stays[m, c, k]
            total += capability[m, k] * counts[m, q, k]
        worth[c] = _gain(t, m, kept, total, over, arrivals, accuracy)
    for p in range(gain.shape[1]):
        for q in range(gain.shape[1]):
            c = changes.number[m, p, q]
            gain[m, p, q] = worth[c]
            if freed >= 0 and stays[m, c, freed] < counts[m, q, freed]:
                kept, total = 0.0, 0.0
                for k in range(sizes):
                    kept += capability[m, k] * stays[m, c, k]
                    total += capability[m, k] * counts[m, q, k]
                if counts[m, p, freed] < counts[m, q, freed]:
                    kept += capability[m, freed]
                gain[m, p, q] = _gain(t, m, kept, total, over, arrivals, accuracy)


@compiled_inner
def _gain(
    t: int,
    m: int,
    kept: float,
    total: float,
    over: float,
    arrivals: Arrivals,
    accuracy: Floats,
) -> float:
    """Goodput of slot t with this capability, of which only `kept` is warm, less what it will
    miss."""
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
