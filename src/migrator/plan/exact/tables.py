"""What a slot is worth: goodput per tenant, slot and pattern, kept or changed, before or after.

Expected throughput is taken over the scenarios here, once, so nothing after this knows whether the
forecast was a point or a distribution.

At given prices the problem falls apart: the kernels here find each tenant's best plan alone, and
what the board rents out.
"""
# ruff: noqa: PLR0912 (a kernel in one piece: handing arrays to another one costs more than a row)

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.core.problem import Kind, Problem, Task, Tenant
from migrator.plan.exact.space import Bools, Floats, Ints, PricedArrays, Space
from migrator.plan.kernels import compiled, compiled_inner

NEVER = -1e30
"""The value of what cannot happen; far below any goodput, yet safe to add to."""

IMPOSSIBLE = NEVER / 2
"""Anything below has a NEVER in it."""
ANY, OTHER = -1, -2
"""Held before slot 0: nothing is known, so nothing is charged; or no pattern of the tenant."""


class Tables(NamedTuple):
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


def build_tables(problem: Problem, space: Space) -> Tables:
    """Tabulate the problem."""
    tenants, slots = problem.tenants, problem.slots
    width = max(map(len, space.patterns))
    shape = (len(tenants), 2, slots, width)
    keep, change = np.full(shape, NEVER), np.full(shape, NEVER)
    for m, tenant in enumerate(tenants):
        own = space.patterns[m]
        total = np.array([sum(tenant.capability[size] for size in p) for p in own], np.float64)
        count = np.array([len(p) for p in own])
        charged = total - tenant.overhead_s / problem.slot_s * total / count
        for table, capability in ((keep, total), (change, charged)):
            served = expected_throughput(tenant, capability)
            table[m, 0, :, : len(own)] = tenant.accuracy_pre * served
            table[m, 1, :, : len(own)] = _final_accuracy(problem, tenant) * served
    return Tables(
        patterns=np.array([len(own) for own in space.patterns], np.int64),
        keep=keep,
        change=change,
        durations=_durations(problem, space),
        slots_left=np.array([_slots_left(problem, each) for each in tenants], np.int64),
        held_before=np.array(
            [_held_before(problem, space, m) for m in range(len(tenants))], np.int64
        ),
        optional=np.array([each.retraining_optional for each in tenants], np.bool_),
        later=np.array(
            [each.later_goodput if _retrains(problem, each) else 0.0 for each in tenants],
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
    left = problem.slots_left(tenant)
    return -1 if left is None else left


def _held_before(problem: Problem, space: Space, m: int) -> int:
    if problem.initial is None:
        return ANY
    task = Task(problem.tenants[m].name, Kind.INFERENCE)
    held = sorted((i.gpcs for i in problem.initial.instances if i.task == task), reverse=True)
    own = space.patterns[m]
    return own.index(tuple(held)) if tuple(held) in own else OTHER


class Answers(NamedTuple):
    """Room for what the tenants and the board answer to prices."""

    cost: Floats
    """[slot, pattern]: what the tenant pays"""
    rents: Floats
    """[size, slot]: sums of retraining prices before the slot"""
    forward: Floats
    """[slot, pattern]: best of the slots before it, not retrained, ending in the pattern"""
    top: Floats
    """[slot]: the largest of `forward`"""
    backward: Floats
    """[slot, pattern]: best from the slot on, retrained, having held the pattern before"""
    path: Ints
    """[slot]: the tenant's pattern"""
    earns: Floats
    """[retraining set, slot]: what it earns"""
    room: Floats
    """[multiset, slot]: what the best retraining set beside it earns"""
    earned: Floats
    """[slot]: what a joint pattern earns, with what retrains beside it"""
    rent: Floats
    """[slot]: the most that the board earns"""
    chosen: Ints
    """[slot]: with this joint pattern"""


def empty_answers(tables: Tables, multisets: int, sets: int) -> Answers:
    """Room for the answers."""
    _, _, slots, width = tables.keep.shape
    return Answers(
        cost=np.empty((slots, width)),
        rents=np.zeros((tables.durations.shape[1], slots + 1)),
        forward=np.empty((slots + 1, width)),
        top=np.empty(slots + 1),
        backward=np.empty((slots + 1, width)),
        path=np.empty(slots, np.int64),
        earns=np.empty((sets, slots)),
        room=np.empty((multisets, slots)),
        earned=np.empty(slots),
        rent=np.empty(slots),
        chosen=np.empty(slots, np.int64),
    )


@compiled_inner
def best_response(m: int, tables: Tables, answers: Answers) -> tuple[float, int, int]:
    """Tenant m's (value, retraining's end, its size index or -1); `path` gets its patterns.

    A charge depends only on the new pattern, so a change always leaves the best pattern. Arrays
    are indexed directly: a view of a row costs more than the row's arithmetic.
    """
    keep, change = tables.keep, tables.change
    patterns, held = tables.patterns[m], tables.held_before[m]
    cost, path, slots = answers.cost, answers.path, answers.path.shape[0]
    forward, top, backward = answers.forward, answers.top, answers.backward
    top[0] = 0.0
    for p in range(patterns):
        forward[0, p] = 0.0 if held in (ANY, p) else NEVER
        backward[slots, p] = 0.0
    for t in range(slots):
        before, best = top[t], NEVER
        for p in range(patterns):
            kept, changed = forward[t, p] + keep[m, 0, t, p], before + change[m, 0, t, p]
            value = max(kept, changed) - cost[t, p]
            forward[t + 1, p] = value
            best = max(best, value)
        top[t + 1] = best
    for t in range(slots - 1, -1, -1):
        best = NEVER
        for p in range(patterns):
            best = max(best, change[m, 1, t, p] - cost[t, p] + backward[t + 1, p])
        for p in range(patterns):
            backward[t, p] = max(keep[m, 1, t, p] - cost[t, p] + backward[t + 1, p], best)
    value, end, size, last = _completion(m, tables, answers.rents, forward, backward)
    p = last
    for t in range(end - 1, -1, -1):
        path[t] = p
        if t > 0 and forward[t, p] + keep[m, 0, t, p] < top[t] + change[m, 0, t, p]:
            p = 0
            while forward[t, p] < top[t]:
                p += 1
    p = last
    for t in range(end, slots):
        if keep[m, 1, t, p] - cost[t, p] + backward[t + 1, p] < backward[t, p]:
            best = NEVER
            for q in range(patterns):
                changed = change[m, 1, t, q] - cost[t, q] + backward[t + 1, q]
                if changed > best:
                    best, p = changed, q
        path[t] = p
    return value, end, size


@compiled_inner
def _completion(
    m: int, tables: Tables, rents: Floats, forward: Floats, backward: Floats
) -> tuple[float, int, int, int]:
    """The best (value, end, size, pattern held at the end) of one tenant's retraining.

    Where an optional retraining is left out, the end is the window's and the size is -1.
    """
    durations, left, patterns = tables.durations, tables.slots_left[m], tables.patterns[m]
    slots, sizes = forward.shape[0] - 1, durations.shape[1]
    value, at, on, holding = NEVER, slots, -1, 0
    begin, until, fixed, retrains = 1, slots, left >= 0, False
    for k in range(sizes):
        retrains = retrains or durations[m, k] > 0
    if fixed:
        begin, until = left, left
    elif not retrains:
        begin, fixed = slots, True  # nothing to retrain: before and after are worth the same
    elif tables.optional[m]:
        for p in range(patterns):
            if forward[slots, p] > value:
                value, holding = forward[slots, p], p
    for end in range(begin, until + 1):
        paid, size = 0.0, -1
        if not fixed:
            paid = np.inf
            for k in range(sizes):
                duration = durations[m, k]
                if 0 < duration <= end and rents[k, end] - rents[k, end - duration] < paid:
                    paid, size = rents[k, end] - rents[k, end - duration], k
            if size < 0:
                continue
        for p in range(patterns):
            worth = forward[end, p] + backward[end, p] - paid + tables.later[m]
            if worth > value:
                value, at, on, holding = worth, end, size, p
    return value, at, on, holding


@compiled
def rent_retrainings(sets: Floats, prices: Floats, earns: Floats) -> None:
    """Fill `earns` [retraining set, slot]; the sizes' prices are the last rows of `prices`."""
    first, slots = prices.shape[0] - sets.shape[1], prices.shape[1]
    for r in range(sets.shape[0]):
        for t in range(slots):
            earns[r, t] = 0.0
        for k in range(sets.shape[1]):
            if sets[r, k] > 0:
                for t in range(slots):
                    earns[r, t] += sets[r, k] * prices[first + k, t]


@compiled
def find_shares(
    space: PricedArrays, mask: int, n: int, rooms: Bools, prices: Floats, answers: Answers
) -> None:
    """Fill `rent` and `chosen`: the most that the slices beside `mask` earn.

    rooms[n] [multiset, retraining set]: what may retrain beside it. `earns` is known. The inner
    loops go over slots, which lie side by side, so that they use vector instructions.
    """
    rows, fitting, slots = space.rows, space.fitting, prices.shape[1]
    room, earned, earns = answers.room, answers.earned, answers.earns
    rent, chosen = answers.rent, answers.chosen
    for held in range(rooms.shape[1]):
        for t in range(slots):
            room[held, t] = 0.0
        for r in range(1, rooms.shape[2]):
            if rooms[n, held, r]:
                for t in range(slots):
                    room[held, t] = max(room[held, t], earns[r, t])
    for t in range(slots):
        rent[t], chosen[t] = NEVER, 0
    for i in range(fitting.shape[1]):
        j = fitting[mask, i]
        if j < 0:
            break
        held = space.total[j]
        if rows.shape[1] == 2:  # the same in one pass
            first, second = rows[j, 0], rows[j, 1]
            for t in range(slots):
                total = room[held, t] + prices[first, t] + prices[second, t]
                better = total > rent[t]
                rent[t] = total if better else rent[t]
                chosen[t] = j if better else chosen[t]
            continue
        for t in range(slots):
            earned[t] = room[held, t]
        for m in range(rows.shape[1]):
            row = rows[j, m]
            for t in range(slots):
                earned[t] += prices[row, t]
        for t in range(slots):
            better = earned[t] > rent[t]
            rent[t] = earned[t] if better else rent[t]
            chosen[t] = j if better else chosen[t]
