"""One tenant alone: its best plan when every pattern and every retraining size has a price."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.plan.exact.space import Floats, Ints, SpaceArrays
from migrator.plan.exact.tables import ANY, NEVER, Tables
from migrator.plan.kernels import compiled


@compiled
def best_response(
    m: int, tables: Tables, cost: Floats, rents: Floats, path: Ints
) -> tuple[float, int, int]:
    """Tenant m's (value, retraining's end, its size index or -1); `path` gets its patterns.

    cost [slot, pattern]; rents [size, slot]: sums of retraining prices before the slot.
    """
    keep, change, patterns = tables.keep[m], tables.change[m], tables.patterns[m]
    _, slots, width = keep.shape
    forward, backward = np.empty((slots + 1, width)), np.empty((slots + 1, width))
    before, after = np.empty(slots, np.int64), np.empty(slots, np.int64)
    _forward(patterns, tables.held_before[m], cost, keep[0], change[0], forward, before)
    _backward(patterns, cost, keep[1], change[1], backward, after)
    value, end, size, last = _completion(m, patterns, tables, rents, forward, backward)
    p = last
    for t in range(end - 1, -1, -1):
        path[t] = p
        if t > 0 and forward[t, p] + keep[0, t, p] < forward[t, before[t]] + change[0, t, p]:
            p = before[t]
    p = last
    for t in range(end, slots):
        q = after[t]
        kept = keep[1, t, p] - cost[t, p] + backward[t + 1, p]
        if kept < change[1, t, q] - cost[t, q] + backward[t + 1, q]:
            p = q
        path[t] = p
    return value, end, size


@compiled
def _forward(
    patterns: int,
    held: int,
    cost: Floats,
    keep: Floats,
    change: Floats,
    forward: Floats,
    best_before: Ints,
) -> None:
    """forward[t, p]: best of slots 0..t-1 before completion, ending in p.

    A charge depends only on the new pattern, so a change always leaves the best pattern.
    """
    for p in range(patterns):
        forward[0, p] = 0.0
        forward[1, p] = (keep[0, p] if held in (ANY, p) else change[0, p]) - cost[0, p]
    for t in range(1, keep.shape[0]):
        best = 0
        for p in range(1, patterns):
            if forward[t, p] > forward[t, best]:
                best = p
        best_before[t] = best
        for p in range(patterns):
            kept, changed = forward[t, p] + keep[t, p], forward[t, best] + change[t, p]
            forward[t + 1, p] = max(kept, changed) - cost[t, p]


@compiled
def _backward(
    patterns: int, cost: Floats, keep: Floats, change: Floats, backward: Floats, best_after: Ints
) -> None:
    """backward[t, p]: best of slots t.. after completion, having held p before."""
    slots = keep.shape[0]
    for p in range(patterns):
        backward[slots, p] = 0.0
    for t in range(slots - 1, -1, -1):
        best_after[t] = step_back(t, patterns, cost, keep, change, backward[t + 1], backward[t])


@compiled
def step_back(
    t: int, patterns: int, cost: Floats, keep: Floats, change: Floats, later: Floats, now: Floats
) -> int:
    """now[p]: best from slot t on, having held p before; returns the best pattern to change to."""
    best, top = 0, NEVER
    for p in range(patterns):
        changed = change[t, p] - cost[t, p] + later[p]
        if changed > top:
            best, top = p, changed
    for p in range(patterns):
        now[p] = max(keep[t, p] - cost[t, p] + later[p], top)
    return best


@compiled
def _completion(
    m: int, patterns: int, tables: Tables, rents: Floats, forward: Floats, backward: Floats
) -> tuple[float, int, int, int]:
    """The best (value, end, size, pattern held at the end) of one tenant's retraining.

    Where an optional retraining is left out, the end is the window's and the size is -1.
    """
    durations, slots_left = tables.durations[m], tables.slots_left[m]
    slots = forward.shape[0] - 1
    value, at, on, holding = NEVER, slots, -1, 0
    if tables.optional[m] and slots_left < 0:
        holding = int(np.argmax(forward[slots, :patterns]))
        value = forward[slots, holding]
    fixed = -1
    if slots_left >= 0:
        fixed = slots_left
    elif durations.max() == 0:
        fixed = slots  # nothing to retrain: before and after are worth the same
    for end in range(1 if fixed < 0 else fixed, (slots if fixed < 0 else fixed) + 1):
        paid, size = np.inf, -1
        for k in range(durations.shape[0]):
            if 0 < durations[k] <= end:
                rent = rents[k, end] - rents[k, end - durations[k]]
                if rent < paid:
                    paid, size = rent, k
        if fixed >= 0:
            paid = 0.0
        elif size < 0:
            continue
        for p in range(patterns):
            worth = forward[end, p] + backward[end, p] - paid + tables.later[m]
            if worth > value:
                value, at, on, holding = worth, end, size, p
    return value, at, on, holding


class Scratch(NamedTuple):
    """Room to work in, so that the inner loop allocates nothing."""

    room: Floats
    """[multiset held by inference]: what retraining beside it earns at most"""
    which: Ints
    """[multiset]: the retraining set that does"""
    earns: Floats
    """[retraining set]"""


@compiled
def scratch_for(space: SpaceArrays) -> Scratch:
    """Scratch of the right size."""
    held, sets = space.beside.shape
    return Scratch(np.empty(held), np.empty(held, np.int64), np.empty(sets))


@compiled
def rooms(space: SpaceArrays, mask: int, waiting: int) -> Ints:
    """Pairs (what inference holds in all, what at most `waiting` tenants retrain beside it).

    Retraining earns, so a set is listed only if no larger one fits in its place. Pairs with
    the same inference stand together.
    """
    sizes = space.beside_sizes
    seen = np.zeros(space.beside.shape[0], np.bool_)
    pairs = np.empty((space.beside.size, 2), np.int64)
    listed = 0
    for j in space.fitting[mask]:
        if j < 0:
            break
        held = space.total[j]
        if seen[held]:
            continue
        seen[held] = True
        first = listed
        for r in range(space.beside.shape[1] - 1, -1, -1):  # large sets first
            union = space.beside[held, r]
            if space.beside_count[r] > waiting or union < 0 or not space.placeable[mask, union]:
                continue
            inside = False
            for i in range(first, listed):
                inside = inside or (sizes[r] <= sizes[pairs[i, 1]]).all()
            if not inside:
                pairs[listed, 0], pairs[listed, 1] = held, r
                listed += 1
    return pairs[:listed].copy()


@compiled
def best_share(
    t: int,
    space: SpaceArrays,
    mask: int,
    pairs: Ints,
    pattern: Floats,
    retraining: Floats,
    scratch: Scratch,
) -> tuple[float, int, int]:
    """(rent, joint pattern, retraining set) that earn most in slot t at these prices."""
    room, which, earns = scratch
    for r in range(earns.shape[0]):
        earns[r] = 0.0
        for k in range(retraining.shape[1]):
            earns[r] += space.beside_sizes[r, k] * retraining[t, k]
    for i in range(pairs.shape[0]):
        held, r = pairs[i, 0], pairs[i, 1]
        if i == 0 or held != pairs[i - 1, 0] or earns[r] > room[held]:
            room[held], which[held] = earns[r], r
    best, chosen = NEVER, 0
    for j in space.fitting[mask]:
        if j < 0:
            break
        earned = room[space.total[j]]
        for m in range(space.joint.shape[1]):
            earned += pattern[m, t, space.joint[j, m]]
        if earned > best:
            best, chosen = earned, j
    return best, chosen, which[space.total[chosen]]
