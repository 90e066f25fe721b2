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

from dataclasses import dataclass

import numpy as np

from migrator.plan.exact.prices import move
from migrator.plan.exact.space import Floats, Ints
from migrator.plan.exact.tables import NEVER
from migrator.plan.kernels import compiled
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
) -> Prices:
    """Good prices after `steps` steps from the prices `first` [slot, size].

    `occupied` [slot]: slices that running retrainings hold; `most` tenants may start one. A bound
    of `enough` needs no further steps.
    """
    pattern = np.ascontiguousarray(np.einsum("mpk,tk->mtp", serving.counts, first))
    beside = np.stack([first, first])
    length = _FIRST_STEP * max(float(first[:, 0].mean()), 1e-9)
    bound = _ascend(serving, shares, occupied, most, pattern, beside, steps, length, enough)
    # Where the board is large enough for all tenants, all prices should be zero.
    none, none_beside = np.zeros_like(pattern), np.zeros_like(beside)
    free = _ascend(serving, shares, occupied, most, none, none_beside, 1, 0.0, enough)
    if free <= bound:
        return Prices(none, none_beside, float(free))
    return Prices(pattern, beside, float(bound))


@compiled
def respond(
    m: int,
    serving: Serving,
    cost: Floats,
    rents: Floats,
    surplus: Floats,
    surplus_beside: Floats,
) -> float:
    """Tenant m's best priced life; what it uses is taken off the surplus.

    cost [slot, pattern]; rents [WAITING or RETRAINING, size, slot]: sums of prices before the slot.
    """
    slots, patterns = cost.shape[0], serving.patterns[m]
    waited = waiting_rents(m, serving, rents[WAITING])
    forward, came, held = _forward(m, serving, cost, waited)
    backward = np.empty((slots + 1, patterns))
    follow, kept = np.zeros((slots, patterns), np.int64), np.zeros((slots, patterns), np.int64)
    backward[slots] = 0.0
    for t in range(slots - 1, -1, -1):
        step_back(t, m, 1, serving, cost, waited, backward[t + 1], backward[t], follow[t], kept[t])
    value, end, size, before, after = _completion(m, serving, rents[RETRAINING], forward, backward)
    if serving.end[m] < 0 and size >= 0:
        for t in range(end - serving.durations[m, size], end):
            surplus_beside[RETRAINING, t, size] -= 1.0
    p = before
    for t in range(end - 1, -1, -1):
        s = came[t, p]
        _use(t, m, s, serving, surplus, surplus_beside[WAITING])
        p = held[t, serving.steps[m, s, 0]]
    p = after
    for t in range(end, slots):
        s = follow[t, kept[t, p]]
        _use(t, m, s, serving, surplus, surplus_beside[WAITING])
        p = serving.steps[m, s, 1]
    return value


@compiled
def waiting_rents(m: int, serving: Serving, rents: Floats) -> Floats:
    """[slot, pattern]: price of having held for the lead what begins to serve in the slot."""
    slots, patterns = rents.shape[1] - 1, serving.patterns[m]
    waited = np.zeros((slots, patterns))
    for t in range(slots):
        for k in range(rents.shape[0]):
            ahead = rents[k, t] - rents[k, max(0, t - serving.lead[m])]
            for p in range(patterns):
                waited[t, p] += serving.counts[m, p, k] * ahead
    return waited


@compiled
def _forward(m: int, serving: Serving, cost: Floats, waited: Floats) -> tuple[Floats, Ints, Ints]:
    """(best of slots 0..t-1 ending in p, the step that led there, what was dropped before)."""
    slots, patterns = waited.shape
    steps, fewer, accuracy = serving.steps[m], serving.fewer[m], serving.accuracy[m, 0]
    forward = np.full((slots + 1, patterns), NEVER)
    came, held = np.zeros((slots, patterns), np.int64), np.zeros((slots, patterns), np.int64)
    rest = np.empty(patterns)
    count = fewer.shape[0] - 1
    while count > 0 and fewer[count - 1, 0] < 0:
        count -= 1
    for t in range(slots):
        for p in range(patterns):
            rest[p] = forward[t, p] if t > 0 else (0.0 if serving.before[m, p] else NEVER)
            held[t, p] = p
        for i in range(count - 1, -1, -1):  # dropping instances costs nothing
            p, less = fewer[i, 0], fewer[i, 1]
            if rest[p] > rest[less]:
                rest[less], held[t, less] = rest[p], held[t, p]
        for s in range(steps.shape[0]):
            u, w, new = steps[s, 0], steps[s, 1], steps[s, 2]
            if u < 0:
                break
            if u != w and t < serving.first_new[m]:
                continue
            worth = rest[u] + accuracy * serving.served[m, t, s] - cost[t, w] - waited[t, new]
            if worth > forward[t + 1, w]:
                forward[t + 1, w], came[t, w] = worth, s
    return forward, came, held


@compiled
def step_back(
    t: int,
    m: int,
    done: int,
    serving: Serving,
    cost: Floats,
    waited: Floats,
    later: Floats,
    now: Floats,
    follow: Ints,
    kept: Ints,
) -> None:
    """now[p]: best from slot t on when p served before; `kept`, `follow`: how."""
    steps, fewer, accuracy = serving.steps[m], serving.fewer[m], serving.accuracy[m, done]
    for p in range(now.shape[0]):
        now[p], kept[p] = NEVER, p
    for s in range(steps.shape[0]):
        u, w, new = steps[s, 0], steps[s, 1], steps[s, 2]
        if u < 0:
            break
        if u != w and t < serving.first_new[m]:
            continue
        worth = accuracy * serving.served[m, t, s] - cost[t, w] - waited[t, new] + later[w]
        if worth > now[u]:
            now[u], follow[u] = worth, s
    for i in range(fewer.shape[0]):
        p, less = fewer[i, 0], fewer[i, 1]
        if p < 0:
            break
        if now[less] > now[p]:
            now[p], kept[p] = now[less], kept[less]


@compiled
def _completion(
    m: int, serving: Serving, rents: Floats, forward: Floats, backward: Floats
) -> tuple[float, int, int, int, int]:
    """The best (value, end, size, serving before it, serving on after it).

    Where an optional retraining is left out, the end is the window's and the size is -1.
    """
    slots, patterns = forward.shape[0] - 1, forward.shape[1]
    value, at, on, before, after = NEVER, slots, -1, 0, 0
    fixed, durations = serving.end[m], serving.durations[m]
    if fixed >= 0:
        size = serving.end_size[m]
        for p in range(patterns):
            then = p if size < 0 else serving.with_size[m, p, size]
            start = forward[fixed, p] if fixed > 0 else (0.0 if serving.before[m, p] else NEVER)
            worth = start + backward[fixed, then]
            if worth > value:
                value, at, on, before, after = worth, fixed, size, p, then
        return value + serving.later[m], at, on, before, after
    if serving.optional[m]:
        for p in range(patterns):
            if forward[slots, p] > value:
                value, before, after = forward[slots, p], p, p
    for end in range(1, slots + 1):
        for k in range(durations.shape[0]):
            if durations[k] == 0 or durations[k] > end:
                continue
            paid = rents[k, end] - rents[k, end - durations[k]]
            for p in range(patterns):
                # the instance it was retrained on may serve at once
                then = serving.with_size[m, p, k]
                worth = forward[end, p] + backward[end, then] - paid + serving.later[m]
                if worth > value:
                    value, at, on, before, after = worth, end, k, p, then
    return value, at, on, before, after


@compiled
def _use(t: int, m: int, s: int, serving: Serving, surplus: Floats, waiting: Floats) -> None:
    surplus[t, serving.steps[m, s, 1]] -= 1.0
    new = serving.steps[m, s, 2]
    if new > 0:
        for k in range(waiting.shape[1]):
            for earlier in range(max(0, t - serving.lead[m]), t):
                waiting[earlier, k] -= serving.counts[m, new, k]


@compiled
def rooms_beside(shares: Shares, mask: int, most: int) -> tuple[Ints, Ints, Ints]:
    """What fits beside `mask` when at most `most` tenants retrain, in three lists.

    [n, 2]: (case, multiset that waits), those of a case together. A case is a multiset that
    serves or retrains, with the minima still needed. [n, 3]: (room, multiset that retrains, case
    of both), those of a room together. [n]: the joint patterns that fit.
    """
    needs, sets = shares.has_minima.shape
    rooms = shares.rooms
    retraining, pairs = np.empty((rooms.shape[0] * shares.retraining.shape[0], 3), np.int64), 0
    wanted = np.zeros((sets, needs), np.bool_)
    for room in range(rooms.shape[0]):
        for r in shares.retraining:
            held, need = shares.union[rooms[room, 0], r], rooms[room, 1]
            if held >= 0 and shares.sizes[r].sum() <= most and shares.placeable[mask, held]:
                retraining[pairs, 0], retraining[pairs, 1] = room, r
                retraining[pairs, 2] = held * needs + need
                wanted[held, need] = True
                pairs += 1
    waiting, listed = np.empty((wanted.sum() * sets, 2), np.int64), 0
    is_open = np.zeros(needs * sets, np.bool_)
    for held in range(sets):
        for need in range(needs):
            if wanted[held, need]:
                case, first = held * needs + need, listed
                listed = _list_waiting(shares, mask, held, need, case, waiting, first)
                is_open[case] = listed > first
    kept, has_case = 0, np.zeros(rooms.shape[0], np.bool_)
    for i in range(pairs):
        if is_open[retraining[i, 2]]:
            retraining[kept] = retraining[i]
            has_case[retraining[i, 0]] = True
            kept += 1
    joints, fitting = 0, np.empty(shares.joint.shape[0], np.int64)
    for j in range(shares.joint.shape[0]):
        if has_case[shares.room[j]]:
            fitting[joints] = j
            joints += 1
    return waiting[:listed].copy(), retraining[:kept].copy(), fitting[:joints].copy()


@compiled
def _list_waiting(
    shares: Shares, mask: int, held: int, need: int, case: int, waiting: Ints, first: int
) -> int:
    """List what can wait beside `held`; waiting earns, so only sets that no other one contains."""
    listed = first
    for w in range(shares.sizes.shape[0]):
        union = shares.union[held, w]
        if union < 0 or not shares.placeable[mask, union] or not shares.has_minima[need, w]:
            continue
        contained, i = False, first
        while i < listed and not contained:
            other = waiting[i, 1]
            contained = _contains(shares.sizes[other], shares.sizes[w])
            if not contained and _contains(shares.sizes[w], shares.sizes[other]):
                listed -= 1
                waiting[i] = waiting[listed]
            else:
                i += 1
        if not contained:
            waiting[listed, 0], waiting[listed, 1] = case, w
            listed += 1
    return listed


@compiled
def best_share(
    t: int,
    shares: Shares,
    waiting: Ints,
    retraining: Ints,
    fitting: Ints,
    pattern: Floats,
    beside: Floats,
    scratch: Floats,
) -> tuple[float, int, int, int]:
    """(rent, joint pattern, what retrains, what waits) that earn most in slot t."""
    earns, of_case, of_room = scratch[0:2], scratch[2:4], scratch[4:7]
    sets, sizes = shares.sizes.shape
    for r in range(sets):
        earns[0, r] = earns[1, r] = 0.0
        for k in range(sizes):
            earns[0, r] += shares.sizes[r, k] * beside[WAITING, t, k]
            earns[1, r] += shares.sizes[r, k] * beside[RETRAINING, t, k]
    last = -1
    for i in range(waiting.shape[0]):
        case, w = waiting[i, 0], waiting[i, 1]
        if case != last or earns[0, w] > of_case[0, case]:
            of_case[0, case], of_case[1, case] = earns[0, w], w
            last = case
    last = -1
    for i in range(retraining.shape[0]):
        room, r, case = retraining[i, 0], retraining[i, 1], retraining[i, 2]
        earned = earns[1, r] + of_case[0, case]
        if room != last or earned > of_room[0, room]:
            of_room[0, room], of_room[1, room], of_room[2, room] = earned, r, of_case[1, case]
            last = room
    best, chosen = NEVER, 0
    for j in fitting:
        earned = of_room[0, shares.room[j]]
        for m in range(shares.joint.shape[1]):
            earned += pattern[m, t, shares.joint[j, m]]
        if earned > best:
            best, chosen = earned, j
    room = shares.room[chosen]
    return best, chosen, int(of_room[1, room]), int(of_room[2, room])


@compiled
def _evaluate(
    serving: Serving,
    shares: Shares,
    occupied: Ints,
    most: int,
    pattern: Floats,
    beside: Floats,
    surplus: Floats,
    surplus_beside: Floats,
) -> float:
    surplus[:] = 0.0
    surplus_beside[:] = 0.0
    _, slots, sizes = beside.shape
    scratch = scratch_for(shares)
    total = 0.0
    waiting, retraining, fitting = rooms_beside(shares, occupied[0], most)
    rents = np.zeros((2, sizes, slots + 1))
    for t in range(slots):
        if t > 0 and occupied[t] != occupied[t - 1]:
            waiting, retraining, fitting = rooms_beside(shares, occupied[t], most)
        rent, j, r, w = best_share(
            t, shares, waiting, retraining, fitting, pattern, beside, scratch
        )
        total += rent
        for m in range(pattern.shape[0]):
            surplus[m, t, shares.joint[j, m]] += 1.0
        for k in range(sizes):
            surplus_beside[WAITING, t, k] += shares.sizes[w, k]
            surplus_beside[RETRAINING, t, k] += shares.sizes[r, k]
            for kind in range(2):
                rents[kind, k, t + 1] = rents[kind, k, t] + beside[kind, t, k]
    for m in range(pattern.shape[0]):
        total += respond(m, serving, pattern[m], rents, surplus[m], surplus_beside)
    return total


@compiled
def scratch_for(shares: Shares) -> Floats:
    """Room to work in for `best_share`."""
    return np.empty((7, max(shares.has_minima.size, shares.rooms.shape[0])))


@compiled
def _ascend(
    serving: Serving,
    shares: Shares,
    occupied: Ints,
    most: int,
    pattern: Floats,
    beside: Floats,
    steps: int,
    first: float,
    enough: float,
) -> float:
    """Improve the prices in place; returns the bound of the best ones met.

    Where the bound is already near `enough`, half as many steps follow whose lengths would reach
    it if the slope did not change.
    """
    surplus, mean, square = np.zeros((3, *pattern.shape))
    surplus_beside, mean_beside, square_beside = np.zeros((3, *beside.shape))
    best_pattern, best_beside, best = pattern.copy(), beside.copy(), np.inf
    for step in range(steps + steps // 2):
        bound = _evaluate(serving, shares, occupied, most, pattern, beside, surplus, surplus_beside)
        if bound < best:
            best = bound
            best_pattern[:], best_beside[:] = pattern, beside
        if best <= enough:
            break
        if step < steps:
            length = first * _LAST_STEP ** (step / steps)
            for m in range(pattern.shape[0]):
                move(pattern[m], surplus[m], mean[m], square[m], step, length, -np.inf)
            for kind in range(2):
                now, slope = beside[kind], surplus_beside[kind]
                move(now, slope, mean_beside[kind], square_beside[kind], step, length, 0.0)
        elif best > enough + _NEAR * abs(enough):
            break
        else:
            if step == steps:
                pattern[:], beside[:] = best_pattern, best_beside
                continue
            squares = _sum_of_squares(surplus) + _sum_of_squares(surplus_beside)
            length = (bound - enough) / max(1.0, squares)
            for m in range(pattern.shape[0]):
                _step_down(pattern[m], surplus[m], length, -np.inf)
            for kind in range(2):
                _step_down(beside[kind], surplus_beside[kind], length, 0.0)
    pattern[:], beside[:] = best_pattern, best_beside
    return best


@compiled
def _sum_of_squares(values: Floats) -> float:
    total = 0.0
    for value in values.flat:
        total += value * value
    return total


@compiled
def _step_down(prices: Floats, surplus: Floats, length: float, least: float) -> None:
    for t in range(prices.shape[0]):
        for k in range(prices.shape[1]):
            prices[t, k] = max(least, prices[t, k] - length * surplus[t, k])


@compiled
def _contains(large: Floats, small: Floats) -> bool:
    more = 0
    for k in range(large.shape[0]):
        more += 1 if small[k] > large[k] else 0
    return more == 0
