"""What tenants and the board answer to prices: at prices the problem falls apart.

Each tenant's best plan alone, and the share of every slot for which the board earns most.
"""
# ruff: noqa: PLR0912 (a kernel in one piece: handing arrays to another one costs more than a row)

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.planning.arrays import Bools, Floats, Ints
from migrator.planning.exact.space import PricedArrays
from migrator.planning.exact.tables import ANY, NEVER, GoodputTables
from migrator.planning.kernels import compiled, compiled_inner


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
    """[configuration, slot, pattern]: best from the slot on, retrained, having held the pattern
    before"""
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


def empty_answers(tables: GoodputTables, multisets: int, sets: int) -> Answers:
    """Room for the answers."""
    _, stages, slots, width = tables.keep.shape
    sizes = tables.durations.shape[1] // (stages - 1)
    return Answers(
        cost=np.empty((slots, width)),
        rents=np.zeros((sizes, slots + 1)),
        forward=np.empty((slots + 1, width)),
        top=np.empty(slots + 1),
        backward=np.empty((stages - 1, slots + 1, width)),
        path=np.empty(slots, np.int64),
        earns=np.empty((sets, slots)),
        room=np.empty((multisets, slots)),
        earned=np.empty(slots),
        rent=np.empty(slots),
        chosen=np.empty(slots, np.int64),
    )


@compiled_inner
def best_response(m: int, tables: GoodputTables, answers: Answers) -> tuple[float, int, int]:
    """Tenant m's (value, retraining's end, its option or -1); `path` gets its patterns.

    A charge depends only on the new pattern, so a change always leaves the best pattern. Arrays
    are indexed directly: a view of a row costs more than the row's arithmetic.
    """
    keep, change = tables.keep, tables.change
    patterns, held = tables.patterns[m], tables.held_before[m]
    cost, path, slots = answers.cost, answers.path, answers.path.shape[0]
    forward, top, backward = answers.forward, answers.top, answers.backward
    # forward: not retrained yet
    top[0] = 0.0
    for p in range(patterns):
        forward[0, p] = 0.0 if held in (ANY, p) else NEVER
    for t in range(slots):
        before, best = top[t], NEVER
        for p in range(patterns):
            kept, changed = forward[t, p] + keep[m, 0, t, p], before + change[m, 0, t, p]
            value = max(kept, changed) - cost[t, p]
            forward[t + 1, p] = value
            best = max(best, value)
        top[t + 1] = best
    # backward: retrained
    for c in range(backward.shape[0]):
        if not _is_used(m, c, tables):
            continue
        for p in range(patterns):
            backward[c, slots, p] = 0.0
        for t in range(slots - 1, -1, -1):
            best = NEVER
            for p in range(patterns):
                best = max(best, change[m, 1 + c, t, p] - cost[t, p] + backward[c, t + 1, p])
            for p in range(patterns):
                kept = keep[m, 1 + c, t, p] - cost[t, p] + backward[c, t + 1, p]
                backward[c, t, p] = max(kept, best)
    # both meet where the retraining ends; from there the path is traced in both directions
    value, end, option, last = _completion(m, tables, answers.rents, forward, backward)
    p = last
    for t in range(end - 1, -1, -1):
        path[t] = p
        if t > 0 and forward[t, p] + keep[m, 0, t, p] < top[t] + change[m, 0, t, p]:
            p = 0  # it changed here, from the best pattern of the slot before
            while forward[t, p] < top[t]:
                p += 1
    p, c = last, max(0, option) // answers.rents.shape[0]
    for t in range(end, slots):
        if keep[m, 1 + c, t, p] - cost[t, p] + backward[c, t + 1, p] < backward[c, t, p]:
            best = NEVER
            for q in range(patterns):
                changed = change[m, 1 + c, t, q] - cost[t, q] + backward[c, t + 1, q]
                if changed > best:
                    best, p = changed, q
        path[t] = p
    return value, end, option


@compiled_inner
def _is_used(m: int, c: int, tables: GoodputTables) -> bool:
    """Whether tenant m may retrain in configuration c; the first is also that of any tenant that
    starts nothing."""
    sizes = tables.durations.shape[1] // (tables.keep.shape[1] - 1)
    used = c == 0
    for option in range(c * sizes, (c + 1) * sizes):
        used = used or tables.durations[m, option] > 0
    return used


@compiled_inner
def _completion(
    m: int, tables: GoodputTables, rents: Floats, forward: Floats, backward: Floats
) -> tuple[float, int, int, int]:
    """The best (value, end, option, pattern held at the end) of one tenant's retraining.

    Where an optional retraining is left out, the end is the window's and the option is -1.
    """
    durations, slots_left, patterns = tables.durations, tables.slots_left[m], tables.patterns[m]
    slots, sizes = forward.shape[0] - 1, rents.shape[0]
    value, best_end, best_option, best_pattern = NEVER, slots, -1, 0
    begin, until, fixed, retrains = 1, slots, slots_left >= 0, False
    for option in range(durations.shape[1]):
        retrains = retrains or durations[m, option] > 0
    if fixed:
        begin, until = slots_left, slots_left
    elif not retrains:
        begin, fixed = slots, True  # nothing to retrain: before and after are worth the same
    elif tables.optional[m]:
        for p in range(patterns):
            if forward[slots, p] > value:
                value, best_pattern = forward[slots, p], p
    for end in range(begin, until + 1):
        for c in range(backward.shape[0]):
            paid, chosen = 0.0, -1
            if fixed and c > 0:
                break
            if not fixed:
                # the cheapest size to retrain on until `end`: sums of prices, taken off each other
                paid = np.inf
                for k in range(sizes):
                    duration = durations[m, c * sizes + k]
                    if 0 < duration <= end and rents[k, end] - rents[k, end - duration] < paid:
                        paid, chosen = rents[k, end] - rents[k, end - duration], c * sizes + k
                if chosen < 0:
                    continue
            for p in range(patterns):
                worth = forward[end, p] + backward[c, end, p] - paid + tables.later[m, 1 + c]
                if worth > value:
                    value, best_end, best_option, best_pattern = worth, end, chosen, p
    return value, best_end, best_option, best_pattern


@compiled
def rent_retrainings(sets: Floats, prices: Floats, earns: Floats) -> None:
    """Fill `earns` [retraining set, slot]; the sizes' prices are the last rows of `prices`."""
    size_rows, slots = prices.shape[0] - sets.shape[1], prices.shape[1]
    for r in range(sets.shape[0]):
        for t in range(slots):
            earns[r, t] = 0.0
        for k in range(sets.shape[1]):
            if sets[r, k] > 0:
                for t in range(slots):
                    earns[r, t] += sets[r, k] * prices[size_rows + k, t]


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
    # joint patterns with the same instances in all leave the same room for retrainings
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
        if rows.shape[1] == 2:  # two tenants: the same as below in one pass over the slots
            first_row, second_row = rows[j, 0], rows[j, 1]
            for t in range(slots):
                total = room[held, t] + prices[first_row, t] + prices[second_row, t]
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
