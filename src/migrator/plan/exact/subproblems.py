"""What the prices decide apart: each tenant's best plan alone, and what the board rents out."""
# ruff: noqa: PLR0912 (a kernel in one piece: handing arrays to another one costs more than a row)

from __future__ import annotations

import numpy as np

from migrator.plan.exact.space import Bools, Floats, Ints, SpaceArrays
from migrator.plan.exact.tables import ANY, NEVER, Tables
from migrator.plan.kernels import compiled, compiled_inner


@compiled_inner
def best_response(
    m: int, tables: Tables, cost: Floats, rents: Floats, path: Ints
) -> tuple[float, int, int]:
    """Tenant m's (value, retraining's end, its size index or -1); `path` gets its patterns.

    cost [slot, pattern]; rents [size, slot]: sums of retraining prices before the slot.

    A charge depends only on the new pattern, so a change always leaves the best pattern. Arrays
    are indexed directly: a view of a row costs more than the row's arithmetic.
    """
    keep, change = tables.keep, tables.change
    patterns, held = tables.patterns[m], tables.held_before[m]
    slots, width = cost.shape
    # forward[t, p]: best of slots 0..t-1 before completion, ending in p; top: over all p
    forward, top = np.zeros((slots + 1, width)), np.full(slots + 1, NEVER)
    for p in range(patterns):
        first = keep[m, 0, 0, p] if held in (ANY, p) else change[m, 0, 0, p]
        forward[1, p] = first - cost[0, p]
        top[1] = max(top[1], forward[1, p])
    for t in range(1, slots):
        before, best = top[t], NEVER
        for p in range(patterns):
            kept, changed = forward[t, p] + keep[m, 0, t, p], before + change[m, 0, t, p]
            value = max(kept, changed) - cost[t, p]
            forward[t + 1, p] = value
            best = max(best, value)
        top[t + 1] = best
    # backward[t, p]: best of slots t.. after completion, having held p before
    backward = np.zeros((slots + 1, width))
    for t in range(slots - 1, -1, -1):
        best = NEVER
        for p in range(patterns):
            best = max(best, change[m, 1, t, p] - cost[t, p] + backward[t + 1, p])
        for p in range(patterns):
            backward[t, p] = max(keep[m, 1, t, p] - cost[t, p] + backward[t + 1, p], best)
    value, end, size, last = _completion(m, tables, rents, forward, backward)
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
def retraining_rents(sets: Floats, prices: Floats) -> Floats:
    """[retraining set, slot]: what it earns; the sizes' prices are the last rows of `prices`."""
    first, slots = prices.shape[0] - sets.shape[1], prices.shape[1]
    earns = np.zeros((sets.shape[0], slots))
    for r in range(sets.shape[0]):
        for k in range(sets.shape[1]):
            if sets[r, k] > 0:
                for t in range(slots):
                    earns[r, t] += sets[r, k] * prices[first + k, t]
    return earns


@compiled
def best_shares(
    space: SpaceArrays,
    mask: int,
    rooms: Bools,
    prices: Floats,
    earns: Floats,
    rent: Floats,
    chosen: Ints,
) -> None:
    """rent[slot]: the most that the slices beside `mask` earn, and the joint pattern chosen[slot].

    rooms [multiset, retraining set]: what may retrain beside it; earns: `retraining_rents`. The
    inner loops go over slots, which lie side by side, so that they use vector instructions.
    """
    slots = rent.shape[0]
    room, earned = np.zeros((rooms.shape[0], slots)), np.empty(slots)
    for held in range(rooms.shape[0]):
        for r in range(1, rooms.shape[1]):
            if rooms[held, r]:
                for t in range(slots):
                    room[held, t] = max(room[held, t], earns[r, t])
    for t in range(slots):
        rent[t] = NEVER
        chosen[t] = 0
    for j in space.fitting[mask]:
        if j < 0:
            break
        held = space.total[j]
        for t in range(slots):
            earned[t] = room[held, t]
        for m in range(space.price_rows.shape[1]):
            row = space.price_rows[j, m]
            for t in range(slots):
                earned[t] += prices[row, t]
        for t in range(slots):
            better = earned[t] > rent[t]
            rent[t] = earned[t] if better else rent[t]
            chosen[t] = j if better else chosen[t]
