"""Prices that take the tenants apart: a bound on every plan.

Put a price on each tenant's pattern in each slot, and on retraining on each size. Then every
tenant plans alone (two passes over its patterns, reconfiguration charge included, and a
maximum over its retraining ends by prefix sums), and the board rents out, slot by slot, the
joint pattern and room for retraining that earn most. Whatever the prices, the sum is at least
the goodput of any plan; good ones are typically within 0.2% of the optimum.
"""
# ruff: noqa: PLR0912 (a kernel in one piece: handing arrays to another one costs more than a row)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from migrator.plan.exact.space import Bools, Floats, Ints, PricedArrays, Space
from migrator.plan.exact.tables import (
    NEVER,
    Answers,
    Tables,
    best_response,
    empty_answers,
    find_shares,
    rent_retrainings,
)
from migrator.plan.kernels import compiled, compiled_inner, entry

FEWEST_STEPS, FEW_STEPS, MOST_STEPS = 60, 130, 200
"""Ascent steps. Up to two tenants one per slot of the window, from the fewest to few: a short
window is searched faster than it is priced. With more tenants the most: the bound decides."""
MEMORY, SCALE_MEMORY = 0.9, 0.999
"""How much of the slope, and of its square, a step remembers."""
LAST_STEP = 0.003
"""Length of the last step relative to the first."""
_FIRST_STEP, _LAST_STEP, _MEMORY = 1.2, 0.009, 0.8
"""Of prices per pattern: first step, in mean prices of the smallest instance; last over first; how
much of the slope is remembered. With a third of the first step or half of the steps bounds were
clearly worse."""
_UNWATCHED = 10
"""Steps between two looks at the clock."""
Float32s = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Prices:
    """What a tenant pays in a slot."""

    rows: Floats
    """[row, slot]: a row for every pattern of every tenant (`PricedArrays.rows`), then one
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
    answers = empty_answers(tables, rooms.shape[1], rooms.shape[2])

    def improve(rows: Floats, steps: int, first: float) -> float:
        board = space.priced, masks, mask_of_slot.astype(np.int64), rooms
        ascent = Ascent.begin(rows)
        for step in range(0, steps, _UNWATCHED):
            until = min(steps, step + _UNWATCHED)
            _improve(tables, *board, rows, ascent, answers, step, until, steps, first)
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
    space: PricedArrays,
    masks: Ints,
    mask_of_slot: Ints,
    rooms: Bools,
    prices: Floats,
    ascent: Ascent,
    answers: Answers,
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
    surplus, mean, square, moved = ascent.surplus, ascent.mean, ascent.square, ascent.moved
    for step in range(begin, end):
        bound = _rent_out(space, masks, mask_of_slot, rooms, prices, surplus, answers)
        bound += _ask_tenants(tables, prices, surplus, answers)
        if bound < ascent.best[0]:
            ascent.best[0] = bound
            for row in range(rows):
                for t in range(slots):
                    ascent.best_prices[row, t] = prices[row, t]
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
    space: PricedArrays,
    masks: Ints,
    mask_of_slot: Ints,
    rooms: Bools,
    prices: Floats,
    surplus: Floats,
    answers: Answers,
) -> float:
    """The board's answer: the share of every slot that earns most is added to the surplus."""
    sets, sizes = space.beside_sizes.shape
    slots, first, earns = prices.shape[1], prices.shape[0] - sizes, answers.earns
    rent_retrainings(space.beside_sizes, prices, earns)
    total = 0.0
    for n in range(masks.shape[0]):
        find_shares(space, masks[n], n, rooms, prices, answers)
        for t in range(slots):
            if mask_of_slot[t] != n:
                continue
            total += answers.rent[t]
            j, r = answers.chosen[t], 0
            for m in range(space.rows.shape[1]):
                surplus[space.rows[j, m], t] += 1.0
            for other in range(1, sets):
                if rooms[n, space.total[j], other] and earns[other, t] > earns[r, t]:
                    r = other
            for k in range(sizes):
                surplus[first + k, t] += space.beside_sizes[r, k]
    return total


@compiled_inner
def _ask_tenants(tables: Tables, prices: Floats, surplus: Floats, answers: Answers) -> float:
    """The tenants' answers; what they use is taken off the surplus."""
    cost, rents, path = answers.cost, answers.rents, answers.path
    (slots, width), tenants = cost.shape, tables.patterns.shape[0]
    first = tenants * width
    for k in range(rents.shape[0]):
        for t in range(slots):
            rents[k, t + 1] = rents[k, t] + prices[first + k, t]
    total = 0.0
    for m in range(tenants):
        for p in range(tables.patterns[m]):
            for t in range(slots):
                cost[t, p] = prices[m * width + p, t]
        value, end, size = best_response(m, tables, answers)
        total += value
        for t in range(slots):
            surplus[m * width + path[t], t] -= 1.0
        if size >= 0:
            for t in range(end - tables.durations[m, size], end):
                surplus[first + size, t] -= 1.0
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
    bounds = empty_bounds(space, tables)
    tenants, _, slots, width = tables.keep.shape
    patterns = prices.rows[: tenants * width].reshape(tenants, width, slots)
    rents = np.zeros((len(prices.rows) - tenants * width, slots + 1))
    np.cumsum(prices.rows[tenants * width :], axis=1, out=rents[:, 1:])
    cost = np.ascontiguousarray(patterns.transpose(0, 2, 1))
    _fill_values(tables, cost, rents, bounds, np.empty(width))
    _sum_rents(space, tables, prices.rows, bounds.rent)
    return bounds


def empty_bounds(space: Space, tables: Tables) -> Bounds:
    """Room for the bounds."""
    tenants, _, slots, width = tables.keep.shape
    longest = int(max(tables.durations.max(), tables.slots_left.max(), 0))
    return Bounds(
        waiting=np.full((tenants, slots + 1, width), NEVER),
        running=np.full((tenants, slots + 1, longest + 1, width), NEVER, np.float32),
        done=np.full((tenants, slots + 1, width), NEVER),
        rent=np.zeros((space.most_waiting + 1, len(space.arrays.fitting), slots + 1)),
        most_waiting=np.full((tenants, slots + 1), NEVER),
        most_running=np.full((tenants, slots + 1, longest + 1), NEVER),
        most_done=np.full((tenants, slots + 1), NEVER),
    )


def _sum_rents(space: Space, tables: Tables, prices: Floats, rent: Floats) -> None:
    arrays, find = space.priced, entry(find_shares)
    answers = empty_answers(tables, *space.beside.shape)
    rent_retrainings(arrays.beside_sizes, prices, answers.earns)
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
            find(arrays, mask, 0, rooms[None], prices, answers)
            np.cumsum(answers.rent, out=rent[waiting, mask, 1:])


@compiled
def _fill_values(
    tables: Tables, cost: Floats, rents: Floats, bounds: Bounds, value: Floats
) -> None:
    """Fill `waiting`, `running` and `done` backwards from the window's end.

    cost [tenant, slot, pattern]; rents [size, slot]: sums of retraining prices before the slot;
    value [pattern]: room for numbers.
    """
    waiting, running, done = bounds.waiting, bounds.running, bounds.done
    most_waiting, most_running = bounds.most_waiting, bounds.most_running
    keep, change, durations = tables.keep, tables.change, tables.durations
    tenants, slots, sizes = cost.shape[0], cost.shape[1], rents.shape[0]
    for m in range(tenants):
        patterns, longest = tables.patterns[m], tables.slots_left[m]
        for k in range(sizes):
            longest = max(longest, durations[m, k])
        for p in range(patterns):
            done[m, slots, p] = tables.later[m]
        for t in range(slots - 1, -1, -1):
            top = NEVER
            for p in range(patterns):
                top = max(top, change[m, 1, t, p] - cost[m, t, p] + done[m, t + 1, p])
            for p in range(patterns):
                done[m, t, p] = max(keep[m, 1, t, p] - cost[m, t, p] + done[m, t + 1, p], top)
        for end in range(slots + 1):
            most = NEVER
            for p in range(patterns):
                value[p] = done[m, end, p]
                most = max(most, value[p])
                running[m, end, 0, p] = _round_up(value[p])
            bounds.most_done[m, end] = most
            most_running[m, end, 0] = _round_up(_round_up(most))
            for ahead in range(1, min(end, longest) + 1):
                t, top, most = end - ahead, NEVER, NEVER
                for p in range(patterns):
                    top = max(top, change[m, 0, t, p] - cost[m, t, p] + value[p])
                for p in range(patterns):
                    value[p] = max(keep[m, 0, t, p] - cost[m, t, p] + value[p], top)
                    most = max(most, value[p])
                    running[m, end, ahead, p] = _round_up(value[p])
                most_running[m, end, ahead] = _round_up(_round_up(most))
        if tables.optional[m]:
            for p in range(patterns):
                waiting[m, slots, p] = 0.0
            most_waiting[m, slots] = 0.0
        if longest <= 0:
            continue
        # wait a slot, or start now on some size and pay its price to the end
        for t in range(slots - 1, -1, -1):
            top = NEVER
            for p in range(patterns):
                top = max(top, change[m, 0, t, p] - cost[m, t, p] + waiting[m, t + 1, p])
            for p in range(patterns):
                waiting[m, t, p] = max(keep[m, 0, t, p] - cost[m, t, p] + waiting[m, t + 1, p], top)
            for k in range(sizes):
                duration = durations[m, k]
                end = t + duration
                if duration > 0 and end <= slots:
                    paid = rents[k, end] - rents[k, t]
                    for p in range(patterns):
                        started = running[m, end, duration, p] - paid
                        waiting[m, t, p] = max(waiting[m, t, p], started)
            for p in range(patterns):
                most_waiting[m, t] = max(most_waiting[m, t], waiting[m, t, p])


@compiled_inner
def _round_up(value: float) -> float:
    """Far enough that storing it in single precision keeps it a bound."""
    return value + abs(value) * 1.2e-7 + 1e-6
