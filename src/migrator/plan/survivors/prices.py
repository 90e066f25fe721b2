"""Prices under the `survivors` charge: a certified bound on every plan.

Every serving pattern of every tenant has a price in every slot, and so has an instance of every
size that waits to be warm, or that retrains. With prices each tenant plans alone: two passes
over its serving patterns, where an instance that begins to serve pays for having waited. The
board rents out, slot by slot, the joint serving pattern and the instances beside it that earn
most. Whatever the prices, the sum is at least the goodput of any plan. Only positions are left
aside, and that prices act on single slots: typically the bound is within 0.1% of the optimum
without positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from migrator.plan.exact.prices import move
from migrator.plan.exact.space import Bools, Floats, Ints
from migrator.plan.exact.tables import NEVER
from migrator.plan.kernels import compiled, compiled_inner, compiled_leaf
from migrator.plan.survivors.serving import Serving, Shares

WAITING, RETRAINING = 0, 1
_FIRST_STEP, _LAST_STEP = 1.0, 0.003
"""First step of a price, in mean first prices of the smallest instance; last over first."""
_NEAR = 0.002
"""Distance of the bound to the best plan, relative to it, from which it may be closed."""


@dataclass(frozen=True, eq=False)
class Prices:
    """What a tenant pays in a slot."""

    pattern: Floats
    """[tenant, slot, serving pattern]"""
    beside: Floats
    """[WAITING or RETRAINING, slot, size]"""
    bound: float
    """no plan is worth more"""


def find_prices(
    serving: Serving,
    shares: Shares,
    first: Floats,
    occupied: Ints,
    most: int,
    steps: int,
    enough: float,
    late: Callable[[], bool] = lambda: False,
) -> Prices:
    """Good prices after `steps` steps from the prices `first` [slot, size].

    `occupied` [slot]: slices that running retrainings hold; `most` tenants may start one. A bound
    of `enough` needs no further steps. Whenever it is `late`, the steps taken so far must do.
    """
    changes = [0, *(np.flatnonzero(np.diff(occupied)) + 1).tolist(), len(occupied)]
    stretches = [
        (begin, end, rooms_beside(shares, int(occupied[begin]), most))
        for begin, end in pairwise(changes)
    ]

    def ascend(pattern: Floats, beside: Floats, steps: int, length: float) -> Prices:
        return _ascend(serving, shares, stretches, pattern, beside, steps, length, enough, late)

    pattern = np.ascontiguousarray(np.einsum("mpk,tk->mtp", serving.counts, first))
    beside = np.stack([first, first])
    length = _FIRST_STEP * max(float(first[:, 0].mean()), 1e-9)
    priced = ascend(pattern, beside, steps, length)
    # Where the board is large enough for all tenants, all prices should be zero.
    free = ascend(np.zeros_like(pattern), np.zeros_like(beside), 1, 0.0)
    return free if free.bound <= priced.bound else priced


def _ascend(
    serving: Serving,
    shares: Shares,
    stretches: Sequence[tuple[int, int, Rooms]],
    pattern: Floats,
    beside: Floats,
    steps: int,
    first: float,
    enough: float,
    late: Callable[[], bool],
) -> Prices:
    """The best prices met; `pattern` and `beside` are changed.

    Where the bound is already near `enough`, half as many steps follow whose lengths would reach
    it if the slope did not change.
    """
    surplus, surplus_beside = np.empty_like(pattern), np.empty_like(beside)
    moved = [
        (
            _rows(prices),
            _rows(slope),
            _rows(np.zeros_like(prices)),
            _rows(np.zeros_like(prices)),
            least,
        )
        for prices, slope, least in ((pattern, surplus, -np.inf), (beside, surplus_beside, 0.0))
    ]
    best = Prices(pattern.copy(), beside.copy(), np.inf)
    for step in range(steps + steps // 2):
        bound = _evaluate(serving, shares, stretches, pattern, beside, surplus, surplus_beside)
        if bound < best.bound:
            best = Prices(pattern.copy(), beside.copy(), bound)
        if best.bound <= enough or late():
            break
        if step < steps:
            length = first * _LAST_STEP ** (step / steps)
            for prices, slope, mean, square, least in moved:
                move(prices, slope, mean, square, step, length, least)
        elif best.bound > enough + _NEAR * abs(enough):
            break
        elif step == steps:
            pattern[:], beside[:] = best.pattern, best.beside
        else:
            squares = sum(float((slope * slope).sum()) for _, slope, _, _, _ in moved)
            length = (bound - enough) / max(1.0, squares)
            for prices, slope, _, _, least in moved:
                np.maximum(least, prices - length * slope, out=prices)
    return best


def _rows(values: Floats) -> Floats:
    """The same values as a table."""
    return values.reshape(-1, values.shape[2])


def _evaluate(
    serving: Serving,
    shares: Shares,
    stretches: Sequence[tuple[int, int, Rooms]],
    pattern: Floats,
    beside: Floats,
    surplus: Floats,
    surplus_beside: Floats,
) -> float:
    """The bound at these prices; the surplus is what is rented out less what tenants use."""
    slots = pattern.shape[1]
    rent, chosen = np.empty(slots), np.empty((slots, 3), np.int64)
    for begin, end, rooms in stretches:
        best_shares(begin, end, shares, rooms, pattern, beside, rent, chosen)
    surplus[:] = 0.0
    for m in range(len(surplus)):
        surplus[m, np.arange(slots), shares.joint[chosen[:, 0], m]] = 1.0
    surplus_beside[RETRAINING] = shares.sizes[chosen[:, 1]]
    surplus_beside[WAITING] = shares.sizes[chosen[:, 2]]
    total = float(rent.cumsum()[-1])
    return float(
        _ask_tenants(total, serving, pattern, sums_before(beside), surplus, surplus_beside)
    )


def sums_before(beside: Floats) -> Floats:
    """[WAITING or RETRAINING, size, slot]: sums of the prices before the slot."""
    kinds, slots, sizes = beside.shape
    sums = np.zeros((kinds, sizes, slots + 1))
    sums[:, :, 1:] = beside.cumsum(axis=1).transpose(0, 2, 1)
    return sums


@compiled
def _ask_tenants(
    total: float,
    serving: Serving,
    pattern: Floats,
    rents: Floats,
    surplus: Floats,
    surplus_beside: Floats,
) -> float:
    """`total` and every tenant's best at these prices; what it uses is taken off the surplus."""
    tenants, slots, width = pattern.shape
    shape = (slots + 1, width)
    forward, backward = np.empty(shape), np.empty(shape)
    came, held = np.empty(shape, np.int64), np.empty(shape, np.int64)
    follow, kept = np.empty(shape, np.int64), np.empty(shape, np.int64)
    for m in range(tenants):
        waited = waiting_rents(m, serving, rents)
        _forward(m, serving, pattern, waited, forward, came, held)
        _backward(m, serving, pattern, waited, backward, follow, kept)
        value, end, size, before, after = _completion(m, serving, rents, forward, backward)
        total += value
        if serving.end[m] < 0 and size >= 0:
            for t in range(end - serving.durations[m, size], end):
                surplus_beside[RETRAINING, t, size] -= 1.0
        # both ways from the retraining's end: the step of every slot
        p = before
        for t in range(end - 1, -1, -1):
            follow[t, 0] = came[t, p]
            p = held[t, serving.steps[m, came[t, p], 0]]
        p = after
        for t in range(end, slots):
            s = follow[t, kept[t, p]]
            follow[t, 0] = s
            p = serving.steps[m, s, 1]
        for t in range(slots):
            now, new = serving.steps[m, follow[t, 0], 1], serving.steps[m, follow[t, 0], 2]
            surplus[m, t, now] -= 1.0
            if new > 0:
                for earlier in range(max(0, t - serving.lead[m]), t):
                    for k in range(rents.shape[1]):
                        surplus_beside[WAITING, earlier, k] -= serving.counts[m, new, k]
    return total


@compiled_inner
def waiting_rents(m: int, serving: Serving, rents: Floats) -> Floats:
    """[slot, pattern]: price of having held for the lead what begins to serve in the slot."""
    slots, patterns = rents.shape[2] - 1, serving.patterns[m]
    waited = np.zeros((slots, patterns))
    for t in range(slots):
        for k in range(rents.shape[1]):
            ahead = rents[WAITING, k, t] - rents[WAITING, k, max(0, t - serving.lead[m])]
            for p in range(patterns):
                waited[t, p] += serving.counts[m, p, k] * ahead
    return waited


@compiled_inner
def _forward(
    m: int,
    serving: Serving,
    cost: Floats,
    waited: Floats,
    forward: Floats,
    came: Ints,
    held: Ints,
) -> None:
    """forward[t, p]: best of slots 0..t-1 ending in p (before slot 0: what may serve on).

    `came`: the step that led there; `held`: what was held before instances were dropped.
    """
    slots, patterns = waited.shape
    steps, fewer, accuracy = serving.steps, serving.fewer, serving.accuracy[m, 0]
    rest = np.empty(patterns)
    count = fewer.shape[1] - 1
    while count > 0 and fewer[m, count - 1, 0] < 0:
        count -= 1
    for p in range(patterns):
        forward[0, p] = 0.0 if serving.before[m, p] else NEVER
    for t in range(slots):
        for p in range(patterns):
            rest[p], held[t, p] = forward[t, p], p
            forward[t + 1, p], came[t, p] = NEVER, 0
        for i in range(count - 1, -1, -1):  # dropping instances costs nothing
            p, less = fewer[m, i, 0], fewer[m, i, 1]
            if rest[p] > rest[less]:
                rest[less], held[t, less] = rest[p], held[t, p]
        for s in range(steps.shape[1]):
            u, w, new = steps[m, s, 0], steps[m, s, 1], steps[m, s, 2]
            if u < 0:
                break
            if u != w and t < serving.first_new[m]:
                continue
            worth = rest[u] + accuracy * serving.served[m, t, s] - cost[m, t, w] - waited[t, new]
            if worth > forward[t + 1, w]:
                forward[t + 1, w], came[t, w] = worth, s


@compiled_leaf
def _backward(
    m: int,
    serving: Serving,
    cost: Floats,
    waited: Floats,
    backward: Floats,
    follow: Ints,
    kept: Ints,
) -> None:
    """backward[t, p]: best from slot t on when p served before; `kept`, `follow`: how."""
    slots, patterns = waited.shape
    steps, fewer, accuracy = serving.steps, serving.fewer, serving.accuracy[m, 1]
    for p in range(patterns):
        backward[slots, p] = 0.0
    for t in range(slots - 1, -1, -1):
        for p in range(patterns):
            backward[t, p], follow[t, p], kept[t, p] = NEVER, 0, p
        for s in range(steps.shape[1]):
            u, w, new = steps[m, s, 0], steps[m, s, 1], steps[m, s, 2]
            if u < 0:
                break
            if u != w and t < serving.first_new[m]:
                continue
            worth = accuracy * serving.served[m, t, s] - cost[m, t, w] - waited[t, new]
            worth += backward[t + 1, w]
            if worth > backward[t, u]:
                backward[t, u], follow[t, u] = worth, s
        for i in range(fewer.shape[1]):
            p, less = fewer[m, i, 0], fewer[m, i, 1]
            if p < 0:
                break
            if backward[t, less] > backward[t, p]:
                backward[t, p], kept[t, p] = backward[t, less], kept[t, less]


@compiled_leaf
def _completion(
    m: int, serving: Serving, rents: Floats, forward: Floats, backward: Floats
) -> tuple[float, int, int, int, int]:
    """The best (value, end, size, serving before it, serving on after it).

    Where an optional retraining is left out, the end is the window's and the size is -1.
    """
    slots, patterns, later = forward.shape[0] - 1, serving.patterns[m], serving.later[m]
    value, at, on, before, after = NEVER, slots, -1, 0, 0
    fixed, durations = serving.end[m], serving.durations
    if fixed >= 0:
        size = serving.end_size[m]
        for p in range(patterns):
            then = p if size < 0 else serving.with_size[m, p, size]
            worth = forward[fixed, p] + backward[fixed, then]
            if worth > value:
                value, at, on, before, after = worth, fixed, size, p, then
        return value + later, at, on, before, after
    if serving.optional[m]:
        for p in range(patterns):
            if forward[slots, p] > value:
                value, before, after = forward[slots, p], p, p
    for end in range(1, slots + 1):
        for k in range(durations.shape[1]):
            if durations[m, k] == 0 or durations[m, k] > end:
                continue
            paid = rents[RETRAINING, k, end] - rents[RETRAINING, k, end - durations[m, k]]
            for p in range(patterns):
                # the instance it was retrained on may serve at once
                then = serving.with_size[m, p, k]
                worth = forward[end, p] + backward[end, then] - paid + later
                if worth > value:
                    value, at, on, before, after = worth, end, k, p, then
    return value, at, on, before, after


class Rooms(NamedTuple):
    """What fits beside a mask of occupied slices.

    A case is a multiset that serves or retrains, with the minima still needed.
    """

    waiting: Ints
    """[n, 2]: (case, multiset that waits), those of a case together"""
    retraining: Ints
    """[n, 3]: (room, multiset that retrains, case of both), those of a room together"""
    fitting: Ints
    """[n]: the joint patterns that fit"""


def rooms_beside(shares: Shares, mask: int, most: int) -> Rooms:
    """What fits beside `mask` when at most `most` tenants retrain."""
    needs, sets = shares.has_minima.shape
    able = shares.retraining[shares.sizes[shares.retraining].sum(axis=1) <= most]
    held = shares.union[shares.rooms[:, :1], able]
    room, which = np.nonzero((held >= 0) & shares.placeable[mask, held])
    cases = held[room, which] * needs + shares.rooms[room, 1]
    wanted = np.unique(cases)
    waiting = np.empty((len(wanted) * sets, 2), np.int64)
    listed = _list_waiting(
        wanted, shares.union, shares.placeable[mask], shares.has_minima, shares.sizes, waiting
    )
    waiting = waiting[:listed].copy()
    retraining = np.stack([room, able[which], cases], axis=1)
    retraining = retraining[np.isin(cases, waiting[:, 0])]
    fitting = np.flatnonzero(np.isin(shares.room, retraining[:, 0]))
    return Rooms(waiting, retraining, fitting)


@compiled
def _list_waiting(
    cases: Ints, union: Ints, placeable: Bools, has_minima: Bools, sizes: Floats, waiting: Ints
) -> int:
    """List what can wait in each case; waiting earns, so only sets that no other one contains."""
    needs, listed = has_minima.shape[0], 0
    for n in range(cases.shape[0]):
        held, need, first = cases[n] // needs, cases[n] % needs, listed
        for w in range(sizes.shape[0]):
            both = union[held, w]
            if both < 0 or not placeable[both] or not has_minima[need, w]:
                continue
            contained, i = False, first
            while i < listed and not contained:
                other, more, less = waiting[i, 1], 0, 0
                for k in range(sizes.shape[1]):
                    more += 1 if sizes[w, k] > sizes[other, k] else 0
                    less += 1 if sizes[w, k] < sizes[other, k] else 0
                contained = more == 0
                if not contained and less == 0:
                    listed -= 1
                    waiting[i, 0], waiting[i, 1] = waiting[listed, 0], waiting[listed, 1]
                else:
                    i += 1
            if not contained:
                waiting[listed, 0], waiting[listed, 1] = cases[n], w
                listed += 1
    return listed


@compiled
def best_shares(
    begin: int,
    end: int,
    shares: Shares,
    rooms: Rooms,
    pattern: Floats,
    beside: Floats,
    rent: Floats,
    chosen: Ints,
) -> None:
    """What earns most in every slot from `begin` to `end`: its rent, and chosen [slot, 3].

    That is (joint pattern, what retrains, what waits).
    """
    sets, sizes = shares.sizes.shape
    waiting, retraining, fitting = rooms.waiting, rooms.retraining, rooms.fitting
    earns, of_case = np.empty((2, sets)), np.empty((2, shares.has_minima.size))
    of_room = np.zeros((3, shares.rooms.shape[0]))
    for t in range(begin, end):
        for r in range(sets):
            for kind in range(2):
                earns[kind, r] = 0.0
                for k in range(sizes):
                    earns[kind, r] += shares.sizes[r, k] * beside[kind, t, k]
        last = -1
        for i in range(waiting.shape[0]):
            case, w = waiting[i, 0], waiting[i, 1]
            if case != last or earns[WAITING, w] > of_case[0, case]:
                of_case[0, case], of_case[1, case] = earns[WAITING, w], w
                last = case
        last = -1
        for i in range(retraining.shape[0]):
            room, r, case = retraining[i, 0], retraining[i, 1], retraining[i, 2]
            earned = earns[RETRAINING, r] + of_case[0, case]
            if room != last or earned > of_room[0, room]:
                of_room[0, room], of_room[1, room], of_room[2, room] = earned, r, of_case[1, case]
                last = room
        rent[t], chosen[t, 0] = NEVER, 0
        for i in range(fitting.shape[0]):
            j = fitting[i]
            earned = of_room[0, shares.room[j]]
            for m in range(pattern.shape[0]):
                earned += pattern[m, t, shares.joint[j, m]]
            if earned > rent[t]:
                rent[t], chosen[t, 0] = earned, j
        room = shares.room[chosen[t, 0]]
        chosen[t, 1], chosen[t, 2] = int(of_room[1, room]), int(of_room[2, room])
