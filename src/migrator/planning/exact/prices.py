"""Prices that take the tenants apart: a bound on every plan.

Put a price on each tenant's pattern in each slot, and on retraining on each size. Then every
tenant plans alone (two passes over its patterns, reconfiguration charge included, and a
maximum over its retraining ends by prefix sums), and the board rents out, slot by slot, the
joint pattern and room for retraining that earn most. Whatever the prices, the sum is at least
the goodput of any plan; good ones are typically within 0.2% of the optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from migrator.planning.arrays import Bools, Floats, Ints
from migrator.planning.exact.responses import (
    Answers,
    best_response,
    empty_answers,
    find_shares,
    rent_retrainings,
)
from migrator.planning.exact.space import PricedArrays, Space
from migrator.planning.exact.tables import GoodputTables
from migrator.planning.kernels import compiled, compiled_inner

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


@dataclass(frozen=True, eq=False)
class Prices:
    """What a tenant pays in a slot."""

    rows: Floats
    """[row, slot]: a row for every pattern of every tenant (`PricedArrays.rows`), then one
    for retraining on each size"""
    bound: float
    """no plan has more goodput"""


class _FreeBoard(NamedTuple):
    """What running retrainings leave of the board."""

    masks: Ints
    """[n]: the masks that they occupy"""
    mask_of_slot: Ints
    """[slot]: which of them"""
    rooms: Bools
    """[n, multiset, retraining set]: what can be retrained beside the mask and the multiset"""


def find_prices(
    space: Space, tables: GoodputTables, occupied: Ints, late: Callable[[], bool] = lambda: False
) -> Prices:
    """Good prices; `occupied` [slot]: slices that running retrainings hold for certain.

    Whenever it is `late`, the steps taken so far must do.
    """
    sizes = first_prices(space, tables)
    patterns = np.einsum("mpk,tk->mpt", space.pattern_sizes, sizes).reshape(-1, len(occupied))
    board = _board_beside(space, occupied)
    steps = ascent_steps(len(occupied), len(tables.patterns))
    first_length = _FIRST_STEP * max(float(sizes[:, 0].mean()), 1e-9)
    priced = _ascend(
        space, tables, board, np.concatenate([patterns, sizes.T]), steps, first_length, late
    )
    # Where the board is large enough for all tenants, all prices should be zero.
    free = _ascend(space, tables, board, np.zeros_like(priced.rows), 1, 0.0, late)
    return free if free.bound <= priced.bound else priced


def bound_at(space: Space, tables: GoodputTables, occupied: Ints, rows: Floats) -> float:
    """The bound that prices `rows` give."""
    board = _board_beside(space, occupied)
    return _ascend(space, tables, board, rows.copy(), 1, 0.0, lambda: False).bound


def _board_beside(space: Space, occupied: Ints) -> _FreeBoard:
    masks, mask_of_slot = np.unique(occupied, return_inverse=True)
    rooms = np.array([space.rooms(int(mask), space.most_waiting) for mask in masks])
    return _FreeBoard(masks, mask_of_slot.astype(np.int64), rooms)


def _ascend(
    space: Space,
    tables: GoodputTables,
    board: _FreeBoard,
    rows: Floats,
    steps: int,
    first_length: float,
    late: Callable[[], bool],
) -> Prices:
    """The best prices met in `steps` steps from `rows`, which are changed."""
    answers = empty_answers(tables, board.rooms.shape[1], board.rooms.shape[2])
    ascent = Ascent.begin(rows)
    for step in range(0, steps, _UNWATCHED):
        until = min(steps, step + _UNWATCHED)
        _improve(
            tables, space.priced, *board, rows, ascent, answers, step, until, steps, first_length
        )
        if late():
            break
    return Prices(ascent.best_prices, float(ascent.best[0]))


def ascent_steps(slots: int, tenants: int) -> int:
    """How many steps the ascent takes."""
    return MOST_STEPS if tenants > 2 else min(max(slots, FEWEST_STEPS), FEW_STEPS)


def first_prices(space: Space, tables: GoodputTables) -> Floats:
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
    tables: GoodputTables,
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
    first_length: float,
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
        length = first_length * _LAST_STEP ** (step / steps)
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
    slots, size_rows, earns = prices.shape[1], prices.shape[0] - sizes, answers.earns
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
                surplus[size_rows + k, t] += space.beside_sizes[r, k]
    return total


@compiled_inner
def _ask_tenants(tables: GoodputTables, prices: Floats, surplus: Floats, answers: Answers) -> float:
    """The tenants' answers; what they use is taken off the surplus."""
    cost, rents, path = answers.cost, answers.rents, answers.path
    (slots, width), tenants = cost.shape, tables.patterns.shape[0]
    size_rows = tenants * width
    for k in range(rents.shape[0]):
        for t in range(slots):
            rents[k, t + 1] = rents[k, t] + prices[size_rows + k, t]
    total = 0.0
    for m in range(tenants):
        for p in range(tables.patterns[m]):
            for t in range(slots):
                cost[t, p] = prices[m * width + p, t]
        value, end, option = best_response(m, tables, answers)
        total += value
        for t in range(slots):
            surplus[m * width + path[t], t] -= 1.0
        if option >= 0:
            for t in range(end - tables.durations[m, option], end):
                surplus[size_rows + option % rents.shape[0], t] -= 1.0
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
