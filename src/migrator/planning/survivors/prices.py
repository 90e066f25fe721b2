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

from migrator.planning.arrays import Floats, Ints
from migrator.planning.exact.prices import move
from migrator.planning.exact.tables import NEVER
from migrator.planning.kernels import compiled, compiled_inner
from migrator.planning.survivors.board import (
    RETRAINING,
    WAITING,
    BestShares,
    Extras,
    Shares,
    empty_best_shares,
    extras_beside,
    find_shares,
)
from migrator.planning.survivors.serving import ServingTables

_FIRST_STEP, _LAST_STEP = 1.0, 0.003
"""First step of a price, in mean first prices of the smallest instance; last over first."""
_NEAR = 0.002
"""Distance of the bound to the best plan, relative to it, from which it may be closed."""


@dataclass(frozen=True, eq=False)
class ServingPrices:
    """What a tenant pays in a slot."""

    pattern: Floats
    """[tenant, slot, serving pattern]"""
    beside: Floats
    """[WAITING or RETRAINING, slot, size]"""
    bound: float
    """no plan is worth more"""


def find_prices(
    serving: ServingTables,
    shares: Shares,
    first_prices: Floats,
    occupied: Ints,
    most: int,
    steps: int,
    enough: float,
    late: Callable[[], bool] = lambda: False,
) -> ServingPrices:
    """Good prices after `steps` steps from the prices `first_prices` [slot, size].

    `occupied` [slot]: slices that running retrainings hold; `most` tenants may start one. A bound
    of `enough` needs no further steps. Whenever it is `late`, the steps taken so far must do.
    """
    changes = [0, *(np.flatnonzero(np.diff(occupied)) + 1).tolist(), len(occupied)]
    stretches = [
        (begin, end, extras_beside(shares, int(occupied[begin]), most))
        for begin, end in pairwise(changes)
    ]

    def ascend(pattern: Floats, beside: Floats, steps: int, length: float) -> ServingPrices:
        return _ascend(serving, shares, stretches, pattern, beside, steps, length, enough, late)

    pattern = np.ascontiguousarray(np.einsum("mpk,tk->mtp", serving.counts, first_prices))
    beside = np.stack([first_prices, first_prices])
    length = _FIRST_STEP * max(float(first_prices[:, 0].mean()), 1e-9)
    priced = ascend(pattern, beside, steps, length)
    # Where the board is large enough for all tenants, all prices should be zero.
    free = ascend(np.zeros_like(pattern), np.zeros_like(beside), 1, 0.0)
    return free if free.bound <= priced.bound else priced


def _ascend(
    serving: ServingTables,
    shares: Shares,
    stretches: Sequence[tuple[int, int, Extras]],
    pattern: Floats,
    beside: Floats,
    steps: int,
    first_length: float,
    enough: float,
    late: Callable[[], bool],
) -> ServingPrices:
    """The best prices met; `pattern` and `beside` are changed.

    Where the bound is already near `enough`, half as many steps follow whose lengths would reach
    it if the slope did not change.
    """
    surplus, surplus_beside = np.empty_like(pattern), np.empty_like(beside)
    slots, width = pattern.shape[1:]
    configurations = serving.accuracy.shape[1] - 1
    scratch = empty_best_shares(shares, slots), _empty_ways(configurations, slots, width)
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
    best = ServingPrices(pattern.copy(), beside.copy(), np.inf)
    for step in range(steps + steps // 2):
        board = shares, stretches, *scratch
        bound = _evaluate(serving, *board, pattern, beside, surplus, surplus_beside)
        if bound < best.bound:
            best = ServingPrices(pattern.copy(), beside.copy(), bound)
        if best.bound <= enough or late():
            break
        if step < steps:
            length = first_length * _LAST_STEP ** (step / steps)
            for prices, slope, mean, square, least in moved:
                move(prices, slope, mean, square, step, length, least)
        elif best.bound > enough + _NEAR * abs(enough):
            break  # too far away for the steps that follow
        elif step == steps:
            pattern[:], beside[:] = best.pattern, best.beside
        else:  # the length at which a straight slope would reach `enough` (Polyak)
            squares = sum(float((slope * slope).sum()) for _, slope, _, _, _ in moved)
            length = (bound - enough) / max(1.0, squares)
            for prices, slope, _, _, least in moved:
                np.maximum(least, prices - length * slope, out=prices)
    return best


def bounds_by_configuration(serving: ServingTables, prices: ServingPrices) -> Floats:
    """[tenant, configuration]: no plan in which the tenant starts a retraining in the configuration
    is worth more."""
    slots, width = prices.pattern.shape[1:]
    configurations = serving.accuracy.shape[1] - 1
    ways = _empty_ways(configurations, slots, width)
    lost = np.empty((len(serving.patterns), configurations))
    _fill_lost(serving, prices.pattern, sums_before(prices.beside), ways, lost)
    return np.asarray(prices.bound - lost)


def _rows(values: Floats) -> Floats:
    """The same values as a table."""
    return values.reshape(-1, values.shape[2])


def _evaluate(
    serving: ServingTables,
    shares: Shares,
    stretches: Sequence[tuple[int, int, Extras]],
    best: BestShares,
    ways: _Ways,
    pattern: Floats,
    beside: Floats,
    surplus: Floats,
    surplus_beside: Floats,
) -> float:
    """The bound at these prices; the surplus is what is rented out less what tenants use."""
    slots, rent, chosen = pattern.shape[1], best.rent, best.chosen
    for begin, end, extras in stretches:
        find_shares(begin, end, shares, extras, pattern, beside, best)
    surplus[:] = 0.0
    for m in range(len(surplus)):
        surplus[m, np.arange(slots), shares.joint[chosen[:, 0], m]] = 1.0
    surplus_beside[RETRAINING] = shares.sizes[chosen[:, 1]]
    surplus_beside[WAITING] = shares.sizes[chosen[:, 2]]
    total, sums = float(rent.cumsum()[-1]), sums_before(beside)
    return float(_ask_tenants(total, serving, pattern, sums, surplus, surplus_beside, ways))


def sums_before(beside: Floats) -> Floats:
    """[WAITING or RETRAINING, size, slot]: sums of the prices before the slot."""
    kinds, slots, sizes = beside.shape
    sums = np.zeros((kinds, sizes, slots + 1))
    sums[:, :, 1:] = beside.cumsum(axis=1).transpose(0, 2, 1)
    return sums


class _Ways(NamedTuple):
    """Room for a tenant's best ways through the window, [slot, pattern] each.

    Those of retrained models are [configuration, slot, pattern].
    """

    forward: Floats
    """best of the slots before, not retrained, ending in the pattern"""
    came: Ints
    """the step that led there"""
    held: Ints
    """what was held before instances were dropped"""
    backward: Floats
    """best from the slot on, retrained, when the pattern served before"""
    follow: Ints
    """the step that leads on"""
    kept: Ints
    """what serves on"""
    waited: Floats
    """price of having held for the lead what begins to serve in the slot"""
    rest: Floats
    """[pattern]: best with any more instances"""


def _empty_ways(configurations: int, slots: int, width: int) -> _Ways:
    numbers, steps = np.empty((2, slots + 1, width)), np.empty((2, slots + 1, width), np.int64)
    after = np.empty((2, configurations, slots + 1, width), np.int64)
    return _Ways(
        forward=numbers[0],
        came=steps[0],
        held=steps[1],
        backward=np.empty((configurations, slots + 1, width)),
        follow=after[0],
        kept=after[1],
        waited=numbers[1],
        rest=np.empty(width),
    )


@compiled
def _ask_tenants(
    total: float,
    serving: ServingTables,
    pattern: Floats,
    rents: Floats,
    surplus: Floats,
    surplus_beside: Floats,
    ways: _Ways,
) -> float:
    """`total` and every tenant's best at these prices; what it uses is taken off the surplus."""
    came, follow, steps = ways.came, ways.follow, serving.steps
    (tenants, slots, _), sizes = pattern.shape, rents.shape[1]
    for m in range(tenants):
        fill_waited(m, serving, rents, ways.waited)
        _go_forward(m, serving, pattern, ways)
        for c in range(follow.shape[0]):
            if is_used(m, c, serving):
                _go_backward(m, c, serving, pattern, ways)
        value, end, option, before, after = _completion(m, serving, rents, ways)
        total += value
        c = max(0, option) // sizes
        if serving.end[m] < 0 and option >= 0:
            for t in range(end - serving.durations[m, option], end):
                surplus_beside[RETRAINING, t, option % sizes] -= 1.0
        # both ways from the retraining's end: the step of every slot
        p = before
        for t in range(end - 1, -1, -1):
            s = came[t, p]
            follow[c, t, 0] = s
            p = ways.held[t, steps[m, s, 0]]
        p = after
        for t in range(end, slots):
            s = follow[c, t, ways.kept[c, t, p]]
            follow[c, t, 0] = s
            p = steps[m, s, 1]
        for t in range(slots):
            s = follow[c, t, 0]
            begins = steps[m, s, 2]
            surplus[m, t, steps[m, s, 1]] -= 1.0
            if begins > 0:
                for earlier in range(max(0, t - serving.lead[m]), t):
                    for k in range(rents.shape[1]):
                        surplus_beside[WAITING, earlier, k] -= serving.counts[m, begins, k]
    return total


@compiled_inner
def is_used(m: int, c: int, serving: ServingTables) -> bool:
    """Whether tenant m may retrain in configuration c; the first is also that of any tenant that
    starts nothing."""
    sizes = serving.counts.shape[2]
    used = c == 0
    for option in range(c * sizes, (c + 1) * sizes):
        used = used or serving.durations[m, option] > 0
    return used


@compiled_inner
def fill_waited(m: int, serving: ServingTables, rents: Floats, waited: Floats) -> None:
    """waited [slot, pattern]: price of having held for the lead what begins to serve then."""
    slots, patterns = rents.shape[2] - 1, serving.patterns[m]
    for t in range(slots):
        for p in range(patterns):
            waited[t, p] = 0.0
        for k in range(rents.shape[1]):
            ahead = rents[WAITING, k, t] - rents[WAITING, k, max(0, t - serving.lead[m])]
            for p in range(patterns):
                waited[t, p] += serving.counts[m, p, k] * ahead


@compiled_inner
def _go_forward(m: int, serving: ServingTables, price: Floats, ways: _Ways) -> None:
    """Fill `forward` (before slot 0: what may serve on), `came` and `held`."""
    forward, came, held, waited, rest = ways.forward, ways.came, ways.held, ways.waited, ways.rest
    steps, fewer, accuracy = serving.steps, serving.fewer, serving.accuracy[m, 0]
    slots, patterns, count = price.shape[1], serving.patterns[m], fewer.shape[1] - 1
    while count > 0 and fewer[m, count - 1, 0] < 0:
        count -= 1
    for p in range(patterns):
        forward[0, p] = 0.0 if serving.before[m, p] else NEVER
    for t in range(slots):
        for p in range(patterns):
            rest[p], held[t, p] = forward[t, p], p
            forward[t + 1, p], came[t, p] = NEVER, 0
        # Dropping instances costs nothing: what serves on is worth as much as the best pattern that
        # contains it. Large patterns come last in `fewer`, so they are passed on first.
        for i in range(count - 1, -1, -1):
            p, less = fewer[m, i, 0], fewer[m, i, 1]
            if rest[p] > rest[less]:
                rest[less], held[t, less] = rest[p], held[t, p]
        for s in range(steps.shape[1]):
            stays, serves, begins = steps[m, s, 0], steps[m, s, 1], steps[m, s, 2]
            if stays < 0:
                break
            if stays != serves and t < serving.first_new[m]:
                continue
            worth = (
                rest[stays]
                + accuracy * serving.served[m, t, s]
                - price[m, t, serves]
                - waited[t, begins]
            )
            if worth > forward[t + 1, serves]:
                forward[t + 1, serves], came[t, serves] = worth, s


@compiled_inner
def _go_backward(m: int, c: int, serving: ServingTables, price: Floats, ways: _Ways) -> None:
    """Fill `backward`, `follow` and `kept` of configuration c."""
    backward, follow, kept = ways.backward, ways.follow, ways.kept
    steps, fewer, accuracy = serving.steps, serving.fewer, serving.accuracy[m, 1 + c]
    slots, patterns = price.shape[1], serving.patterns[m]
    for p in range(patterns):
        backward[c, slots, p] = 0.0
    for t in range(slots - 1, -1, -1):
        for p in range(patterns):
            backward[c, t, p], follow[c, t, p], kept[c, t, p] = NEVER, 0, p
        for s in range(steps.shape[1]):
            stays, serves, begins = steps[m, s, 0], steps[m, s, 1], steps[m, s, 2]
            if stays < 0:
                break
            if stays != serves and t < serving.first_new[m]:
                continue
            worth = (
                accuracy * serving.served[m, t, s] - price[m, t, serves] - ways.waited[t, begins]
            )
            worth += backward[c, t + 1, serves]
            if worth > backward[c, t, stays]:
                backward[c, t, stays], follow[c, t, stays] = worth, s
        # backwards the same: a pattern is worth at least what any part of it is, small ones first
        for i in range(fewer.shape[1]):
            p, less = fewer[m, i, 0], fewer[m, i, 1]
            if p < 0:
                break
            if backward[c, t, less] > backward[c, t, p]:
                backward[c, t, p], kept[c, t, p] = backward[c, t, less], kept[c, t, less]


@compiled_inner
def _completion(
    m: int, serving: ServingTables, rents: Floats, ways: _Ways
) -> tuple[float, int, int, int, int]:
    """The best (value, end, option, serving before it, serving on after it).

    Where an optional retraining is left out, the end is the window's and the option is -1.
    """
    forward, backward, with_size = ways.forward, ways.backward, serving.with_size
    slots, patterns = rents.shape[2] - 1, serving.patterns[m]
    value, at, option, before, after = NEVER, slots, -1, 0, 0
    fixed, durations = serving.end[m], serving.durations
    if fixed >= 0:
        at, option = fixed, serving.end_size[m]
        for p in range(patterns):
            then = p if option < 0 else with_size[m, p, option]
            worth = forward[fixed, p] + backward[0, fixed, then]
            if worth > value:
                value, before, after = worth, p, then
        return value + serving.later[m, 1], at, option, before, after
    if serving.optional[m]:
        for p in range(patterns):
            if forward[slots, p] > value:
                value, before, after = forward[slots, p], p, p
    best = _best_end(m, 0, durations.shape[1], serving, rents, ways)
    return best if best[0] > value else (value, at, option, before, after)


@compiled_inner
def _best_end(
    m: int, first: int, last: int, serving: ServingTables, rents: Floats, ways: _Ways
) -> tuple[float, int, int, int, int]:
    """The same where one of the options `first` to `last` - 1 is retrained."""
    forward, backward, with_size = ways.forward, ways.backward, serving.with_size
    slots, patterns, sizes = rents.shape[2] - 1, serving.patterns[m], rents.shape[1]
    value, at, option, before, after, durations = NEVER, slots, -1, 0, 0, serving.durations
    # both ways meet in the slot in which the retraining ends: a maximum over all of those
    for end in range(1, slots + 1):
        for n in range(first, last):
            duration, c, k = durations[m, n], n // sizes, n % sizes
            if duration == 0 or duration > end:
                continue
            later = serving.later[m, 1 + c]
            # sums of prices, taken off each other: the price of all of its slots
            paid = rents[RETRAINING, k, end] - rents[RETRAINING, k, end - duration]
            for p in range(patterns):
                # the instance it was retrained on may serve at once
                then = with_size[m, p, k]
                worth = forward[end, p] + backward[c, end, then] - paid + later
                if worth > value:
                    value, at, option, before, after = worth, end, n, p, then
    return value, at, option, before, after


@compiled
def _fill_lost(
    serving: ServingTables, pattern: Floats, rents: Floats, ways: _Ways, lost: Floats
) -> None:
    """lost [tenant, configuration]: how much less a tenant has at most if it retrains in it."""
    (tenants, configurations), sizes = lost.shape, rents.shape[1]
    for m in range(tenants):
        fill_waited(m, serving, rents, ways.waited)
        _go_forward(m, serving, pattern, ways)
        for c in range(configurations):
            if is_used(m, c, serving):
                _go_backward(m, c, serving, pattern, ways)
        most = _completion(m, serving, rents, ways)[0]
        for c in range(configurations):
            first = c * sizes
            lost[m, c] = most - _best_end(m, first, first + sizes, serving, rents, ways)[0]
