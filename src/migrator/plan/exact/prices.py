"""Prices that take the tenants apart: a bound on every plan.

Put a price on each tenant's pattern in each slot, and on retraining on each size. Then every
tenant plans alone (two passes over its patterns, reconfiguration charge included, and a
maximum over its retraining ends by prefix sums), and the board rents out, slot by slot, the
joint pattern and room for retraining that earn most. Whatever the prices, the sum is at least
the goodput of any plan; good ones are typically within 0.2% of the optimum.
"""
# ruff: noqa: PLR0912 (a kernel in one piece: handing arrays to another one costs more than a row)

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from migrator.plan.exact.space import Bools, Floats, Ints, Space, SpaceArrays
from migrator.plan.exact.subproblems import best_response, best_shares, retraining_rents
from migrator.plan.exact.tables import NEVER, Tables
from migrator.plan.kernels import compiled, compiled_inner

FEWEST_STEPS, FEW_STEPS, MOST_STEPS = 60, 130, 200
"""Ascent steps. Up to two tenants one per slot of the window, from the fewest to few: a short
window is searched faster than it is priced. With more tenants the most: the bound decides."""
Answer = Callable[[Floats, Floats, Floats], float]
"""(prices [slot, size], their sums before each slot [size, slot], surplus) -> what the tenant
earns at these prices; what it uses is subtracted from the surplus [slot, size]."""
MEMORY, SCALE_MEMORY = 0.9, 0.999
"""How much of the slope, and of its square, a step remembers."""
LAST_STEP = 0.003
"""Length of the last step relative to the first."""
_FIRST_STEP, _LAST_STEP, _MEMORY = 1.2, 0.009, 0.8
"""Of prices per pattern: first step, in mean prices of the smallest instance; last over first; how
much of the slope is remembered. With a third of the first step or half of the steps bounds were
clearly worse."""
_FIRST_STEP_SHARE = 2.0
"""Length of the first step, in mean prices of the smallest instance."""
_UNWATCHED = 10
"""Steps between two looks at the clock."""
Float32s = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Prices:
    """What a tenant pays in a slot."""

    rows: Floats
    """[row, slot]: a row for every pattern of every tenant (`SpaceArrays.price_rows`), then one
    for retraining on each size"""
    bound: float
    """no plan has more goodput"""


def find_prices(
    space: Space, tables: Tables, occupied: Ints, late: Callable[[], bool] = lambda: False
) -> Prices:
    """Good prices; `occupied` [slot]: slices that running retrainings hold for certain.

    Whenever it is `late`, the steps taken so far must do.
    """
    sizes = first_prices(space, tables)
    patterns = np.einsum("mpk,tk->mpt", space.pattern_sizes, sizes).reshape(-1, len(occupied))
    rows = np.concatenate([patterns, sizes.T])
    masks, mask_of_slot = np.unique(occupied, return_inverse=True)
    rooms = np.array([space.rooms(int(mask), space.most_waiting) for mask in masks])

    def improve(rows: Floats, steps: int, first: float) -> float:
        board = space.arrays, masks, mask_of_slot.astype(np.int64), rooms
        ascent = Ascent.begin(rows)
        for step in range(0, steps, _UNWATCHED):
            until = min(steps, step + _UNWATCHED)
            _improve(tables, *board, rows, ascent, step, until, steps, first)
            if late():
                break
        rows[:] = ascent.best_prices
        return float(ascent.best[0])

    steps = ascent_steps(len(occupied), len(tables.patterns))
    bound = improve(rows, steps, _FIRST_STEP * max(float(sizes[:, 0].mean()), 1e-9))
    # Where the board is large enough for all tenants, all prices should be zero.
    none = np.zeros_like(rows)
    free = improve(none, 1, 0.0)
    return Prices(none, free) if free <= bound else Prices(rows, bound)


def ascent_steps(slots: int, tenants: int) -> int:
    """How many steps the ascent takes."""
    return MOST_STEPS if tenants > 2 else min(max(slots, FEWEST_STEPS), FEW_STEPS)


def first_prices(space: Space, tables: Tables) -> Floats:
    """A GPC is worth about the slot's goodput over the board's GPCs: start at half of that."""
    sizes = np.array(space.geometry.sizes, np.float64)
    worth = np.zeros(tables.keep.shape[2])
    for m, count in enumerate(tables.patterns):
        worth += tables.keep[m, 0, :, :count].max(axis=1)
    return np.outer(0.5 * worth / sizes[-1], sizes)


class Ascent(NamedTuple):
    """What the steps of an ascent remember."""

    surplus: Floats
    mean: Floats
    square: Floats
    best_prices: Floats
    moved: Bools
    """[row]: whether its price has ever changed"""
    best: Floats
    """[1]: the best bound met"""

    @classmethod
    def begin(cls, prices: Floats) -> Ascent:
        """Before the first step."""
        surplus, mean, square, best = (np.zeros_like(prices) for _ in range(4))
        moved = np.zeros(len(prices), np.bool_)
        return cls(surplus, mean, square, best, moved, np.full(1, np.inf))


@compiled
def _improve(
    tables: Tables,
    space: SpaceArrays,
    masks: Ints,
    mask_of_slot: Ints,
    rooms: Bools,
    prices: Floats,
    ascent: Ascent,
    begin: int,
    end: int,
    steps: int,
    first: float,
) -> None:
    """Move the prices by scaled subgradient steps `begin` to `end` - 1 of `steps`.

    masks [n]: what running retrainings occupy, mask_of_slot [slot]: which of them when, and
    rooms [n, multiset, retraining set]: what can be retrained beside it.
    """
    rows, slots = prices.shape
    surplus, mean, square, best_prices, moved, best = ascent
    for step in range(begin, end):
        bound = _rent_out(space, masks, mask_of_slot, rooms, prices, surplus)
        bound += _ask_tenants(tables, prices, surplus)
        if bound < best[0]:
            best[0] = bound
            for row in range(rows):
                for t in range(slots):
                    best_prices[row, t] = prices[row, t]
        length = first * _LAST_STEP ** (step / steps)
        # both memories start empty: weigh their first entries up
        length /= 1.0 - _MEMORY ** (step + 1)
        scale_weight = 1.0 / (1.0 - SCALE_MEMORY ** (step + 1))
        for row in range(rows):
            if not moved[row]:
                for t in range(slots):
                    if surplus[row, t] != 0.0:
                        moved[row] = True
                        break
            if not moved[row]:
                continue  # no tenant ever wanted it: the price stays
            for t in range(slots):
                slope = surplus[row, t]
                surplus[row, t] = 0.0
                mean[row, t] = _MEMORY * mean[row, t] + (1 - _MEMORY) * slope
                square[row, t] = SCALE_MEMORY * square[row, t] + (1 - SCALE_MEMORY) * slope * slope
                scale = np.sqrt(square[row, t] * scale_weight) + 0.1
                prices[row, t] -= length * mean[row, t] / scale
        for row in range(rows - space.beside_sizes.shape[1], rows):
            for t in range(slots):
                prices[row, t] = max(prices[row, t], 0.0)  # room may stay empty


@compiled_inner
def _rent_out(
    space: SpaceArrays,
    masks: Ints,
    mask_of_slot: Ints,
    rooms: Bools,
    prices: Floats,
    surplus: Floats,
) -> float:
    """The board's answer: the share of every slot that earns most is added to the surplus."""
    sets, sizes = space.beside_sizes.shape
    slots, first = prices.shape[1], prices.shape[0] - sizes
    rent, chosen = np.empty(slots), np.empty(slots, np.int64)
    earns = retraining_rents(space.beside_sizes, prices)
    total = 0.0
    for n in range(masks.shape[0]):
        best_shares(space, masks[n], rooms[n], prices, earns, rent, chosen)
        for t in range(slots):
            if mask_of_slot[t] != n:
                continue
            total += rent[t]
            j, r = chosen[t], 0
            for m in range(space.price_rows.shape[1]):
                surplus[space.price_rows[j, m], t] += 1.0
            for other in range(1, sets):
                if rooms[n, space.total[j], other] and earns[other, t] > earns[r, t]:
                    r = other
            for k in range(sizes):
                surplus[first + k, t] += space.beside_sizes[r, k]
    return total


@compiled_inner
def _ask_tenants(tables: Tables, prices: Floats, surplus: Floats) -> float:
    """The tenants' answers; what they use is taken off the surplus."""
    tenants, width = tables.keep.shape[0], tables.keep.shape[3]
    sizes, slots, first = tables.durations.shape[1], prices.shape[1], tenants * width
    rents, path = np.zeros((sizes, slots + 1)), np.empty(slots, np.int64)
    cost = np.empty((slots, width))
    for k in range(sizes):
        for t in range(slots):
            rents[k, t + 1] = rents[k, t] + prices[first + k, t]
    total = 0.0
    for m in range(tenants):
        for p in range(tables.patterns[m]):
            for t in range(slots):
                cost[t, p] = prices[m * width + p, t]
        value, end, size = best_response(m, tables, cost, rents, path)
        total += value
        for t in range(slots):
            surplus[m * width + path[t], t] -= 1.0
        if size >= 0:
            for t in range(end - tables.durations[m, size], end):
                surplus[first + size, t] -= 1.0
    return total


def ascend(
    prices: Floats, configurations: Floats, answers: Sequence[Answer], steps: int
) -> tuple[Floats, float]:
    """The best prices per size met in `steps` steps from `prices`, and their bound.

    `configurations` [configuration, size]: what the board can rent out in a slot.
    """
    prices = prices.copy()
    first = _FIRST_STEP_SHARE * max(float(prices[:, 0].mean()), 1e-9)
    mean, square = np.zeros_like(prices), np.zeros_like(prices)
    surplus, rents = np.zeros_like(prices), np.zeros((prices.shape[1], len(prices) + 1))
    best, best_bound = prices.copy(), np.inf
    for step in range(steps):
        bound = _offer(prices, configurations, surplus, rents)
        for answer in answers:
            bound += answer(prices, rents, surplus)
        if bound < best_bound:
            best_bound, best = bound, prices.copy()
        move(prices, surplus, mean, square, step, first * LAST_STEP ** (step / steps), 0.0)
    return best, float(best_bound)


@compiled
def _offer(prices: Floats, configurations: Floats, surplus: Floats, rents: Floats) -> float:
    """The board rents out, in every slot, the configuration that earns most."""
    slots, sizes = prices.shape
    total = 0.0
    for t in range(slots):
        top, chosen = -1.0, 0
        for c in range(configurations.shape[0]):
            earned = 0.0
            for k in range(sizes):
                earned += configurations[c, k] * prices[t, k]
            if earned > top:
                top, chosen = earned, c
        for k in range(sizes):
            surplus[t, k] = configurations[chosen, k]
            rents[k, t + 1] = rents[k, t] + prices[t, k]
        total += top
    return total


@compiled
def move(
    prices: Floats,
    surplus: Floats,
    mean: Floats,
    square: Floats,
    step: int,
    length: float,
    least: float,
) -> None:
    """One step against the surplus, scaled per price; no price falls below `least`."""
    # both memories start empty: weigh their first entries up
    weight = 1.0 / (1.0 - MEMORY ** (step + 1))
    scale_weight = 1.0 / (1.0 - SCALE_MEMORY ** (step + 1))
    for t in range(prices.shape[0]):
        for k in range(prices.shape[1]):
            slope = surplus[t, k]
            if slope == 0.0 and mean[t, k] == 0.0:
                continue
            mean[t, k] = MEMORY * mean[t, k] + (1 - MEMORY) * slope
            square[t, k] = SCALE_MEMORY * square[t, k] + (1 - SCALE_MEMORY) * slope * slope
            scale = np.sqrt(square[t, k] * scale_weight) + 0.1
            prices[t, k] = max(least, prices[t, k] - length * weight * mean[t, k] / scale)


class Bounds(NamedTuple):
    """Per tenant what it can still earn, and what the board can still rent its slices for."""

    waiting: Floats
    """[tenant, slot, pattern held before the slot]: retraining not yet started"""
    running: Float32s
    """[tenant, end, end - slot, pattern]: retraining runs until `end`, its price left out"""
    done: Floats
    """[tenant, slot, pattern]"""
    rent: Floats
    """[waiting tenants, mask, slot]: best rent of the free slices, summed up to `slot`"""
    most_waiting: Floats
    """[tenant, slot]: the maximum of `waiting` over patterns, and so on: enough to drop most labels
    without looking closer"""
    most_running: Floats
    """[tenant, end, end - slot]"""
    most_done: Floats
    """[tenant, slot]"""


def tabulate_bounds(space: Space, tables: Tables, prices: Prices) -> Bounds:
    """The bounds that these prices give."""
    tenants, _, slots, width = tables.keep.shape
    longest = int(max(tables.durations.max(), tables.slots_left.max(), 0))
    bounds = Bounds(
        waiting=np.full((tenants, slots + 1, width), NEVER),
        running=np.full((tenants, slots + 1, longest + 1, width), NEVER, np.float32),
        done=np.full((tenants, slots + 1, width), NEVER),
        rent=np.zeros((space.most_waiting + 1, len(space.arrays.fitting), slots + 1)),
        most_waiting=np.full((tenants, slots + 1), NEVER),
        most_running=np.full((tenants, slots + 1, longest + 1), NEVER),
        most_done=np.full((tenants, slots + 1), NEVER),
    )
    _values_to_go(tables, prices.rows, bounds)
    _sum_rents(space, prices.rows, bounds.rent)
    return bounds


def _sum_rents(space: Space, prices: Floats, rent: Floats) -> None:
    arrays = space.arrays
    earns = retraining_rents(arrays.beside_sizes, prices)
    earned, chosen = np.empty(prices.shape[1]), np.empty(prices.shape[1], np.int64)
    for mask in space.reachable:
        alike = space.geometry.alike[mask]
        if arrays.fitting[mask, 0] < 0:
            continue
        # An occupied slice means a retraining under way, so not every tenant is waiting then,
        # unless it ran already before the window: most counts only those still to start.
        for waiting in range(len(rent)):
            if alike < mask and alike in space.reachable:
                rent[waiting, mask] = rent[waiting, alike]
                continue
            rooms = space.rooms(int(mask), waiting)
            best_shares(arrays, mask, rooms, prices, earns, earned, chosen)
            np.cumsum(earned, out=rent[waiting, mask, 1:])


@compiled
def _values_to_go(tables: Tables, prices: Floats, bounds: Bounds) -> None:
    """Fill `waiting`, `running` and `done` backwards from the window's end."""
    waiting, running, done = bounds.waiting, bounds.running, bounds.done
    keep, change, durations = tables.keep, tables.change, tables.durations
    tenants, width = keep.shape[0], keep.shape[3]
    sizes, slots = durations.shape[1], prices.shape[1]
    cost, value = np.empty((slots, width)), np.empty(width)
    rents = np.zeros((sizes, slots + 1))
    for k in range(sizes):
        for t in range(slots):
            rents[k, t + 1] = rents[k, t] + prices[tenants * width + k, t]
    for m in range(tenants):
        patterns, longest = tables.patterns[m], tables.slots_left[m]
        for k in range(sizes):
            longest = max(longest, durations[m, k])
        for p in range(patterns):
            done[m, slots, p] = tables.later[m]
            for t in range(slots):
                cost[t, p] = prices[m * width + p, t]
        for t in range(slots - 1, -1, -1):
            top = NEVER
            for p in range(patterns):
                top = max(top, change[m, 1, t, p] - cost[t, p] + done[m, t + 1, p])
            for p in range(patterns):
                done[m, t, p] = max(keep[m, 1, t, p] - cost[t, p] + done[m, t + 1, p], top)
        for end in range(slots + 1):
            most = NEVER
            for p in range(patterns):
                value[p] = done[m, end, p]
                most = max(most, value[p])
                running[m, end, 0, p] = _round_up(value[p])
            bounds.most_done[m, end] = most
            bounds.most_running[m, end, 0] = _round_up(_round_up(most))
            for ahead in range(1, min(end, longest) + 1):
                t, top, most = end - ahead, NEVER, NEVER
                for p in range(patterns):
                    top = max(top, change[m, 0, t, p] - cost[t, p] + value[p])
                for p in range(patterns):
                    value[p] = max(keep[m, 0, t, p] - cost[t, p] + value[p], top)
                    most = max(most, value[p])
                    running[m, end, ahead, p] = _round_up(value[p])
                bounds.most_running[m, end, ahead] = _round_up(_round_up(most))
        if tables.optional[m]:
            for p in range(patterns):
                waiting[m, slots, p] = 0.0
            bounds.most_waiting[m, slots] = 0.0
        if longest <= 0:
            continue
        # wait a slot, or start now on some size and pay its price to the end
        for t in range(slots - 1, -1, -1):
            top = NEVER
            for p in range(patterns):
                top = max(top, change[m, 0, t, p] - cost[t, p] + waiting[m, t + 1, p])
            for p in range(patterns):
                waiting[m, t, p] = max(keep[m, 0, t, p] - cost[t, p] + waiting[m, t + 1, p], top)
            for k in range(sizes):
                duration = durations[m, k]
                end = t + duration
                if duration > 0 and end <= slots:
                    paid = rents[k, end] - rents[k, t]
                    for p in range(patterns):
                        started = running[m, end, duration, p] - paid
                        waiting[m, t, p] = max(waiting[m, t, p], started)
            for p in range(patterns):
                bounds.most_waiting[m, t] = max(bounds.most_waiting[m, t], waiting[m, t, p])


@compiled_inner
def _round_up(value: float) -> float:
    """Far enough that storing it in single precision keeps it a bound."""
    return value + abs(value) * 1.2e-7 + 1e-6
