"""Prices that take the tenants apart: a bound on every plan.

Put a price on each tenant's pattern in each slot, and on retraining on each size. Then every
tenant plans alone (two passes over its patterns, reconfiguration charge included, and a
maximum over its retraining ends by prefix sums), and the board rents out, slot by slot, the
joint pattern and room for retraining that earn most. Whatever the prices, the sum is at least
the goodput of any plan. First a price per size is found (few numbers, quickly good), then a
price per pattern from there: as tight as looking at single slots can be, typically within
0.2% of the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from migrator.plan.compiled import compiled
from migrator.plan.exact.alone import answer
from migrator.plan.exact.ascent import LAST_STEP, Answer, ascend, move
from migrator.plan.exact.share import best_share, rooms, scratch_for
from migrator.plan.exact.space import Floats, Ints, Space, SpaceArrays
from migrator.plan.exact.tables import Tables

FEWEST_STEPS, MOST_STEPS = 80, 200
"""Ascent steps of a stage. Up to two tenants one per slot of the window for the prices per
pattern and one per two slots for those per size, within these limits: a short window is
searched faster than it is priced. With more tenants always the most: the bound decides."""
_FIRST_STEP, _LAST_STEP = 0.4, 3 * LAST_STEP
"""First step of a pattern's price, in mean prices of the smallest instance; last over first."""


@dataclass(frozen=True, eq=False)
class Prices:
    """What a tenant pays in a slot."""

    pattern: Floats
    """[tenant, slot, pattern]"""
    retraining: Floats
    """[slot, size]"""
    bound: float
    """no plan has more goodput"""


def find_prices(space: Space, tables: Tables, occupied: Ints) -> Prices:
    """Good prices; `occupied` [slot]: slices that running retrainings hold for certain."""
    offered = space.geometry.configuration_counts
    answers = [_answers_of(space, tables, m) for m in range(len(tables.patterns))]
    size_steps, steps = ascent_steps(len(occupied), len(tables.patterns))
    sizes, _ = ascend(first_prices(space, tables), offered, answers, size_steps)
    pattern = np.ascontiguousarray(np.einsum("mpk,tk->mtp", space.pattern_sizes, sizes))
    first = _FIRST_STEP * max(float(sizes[:, 0].mean()), 1e-9)
    bound = _refine(
        tables, space.arrays, occupied, pattern, sizes, space.most_waiting, steps, first
    )
    # Where the board is large enough for everybody, nothing should cost anything.
    none, none_r = np.zeros_like(pattern), np.zeros_like(sizes)
    free = _refine(tables, space.arrays, occupied, none, none_r, space.most_waiting, 1, 0.0)
    if free <= bound:
        return Prices(none, none_r, float(free))
    return Prices(pattern, sizes, float(bound))


def ascent_steps(slots: int, tenants: int) -> tuple[int, int]:
    """How many steps the ascent takes per size and per pattern."""
    if tenants > 2:
        return MOST_STEPS, MOST_STEPS
    per_size, per_pattern = np.clip([slots // 2, slots], FEWEST_STEPS // 2, MOST_STEPS)
    return int(per_size), max(int(per_pattern), FEWEST_STEPS)


def first_prices(space: Space, tables: Tables) -> Floats:
    """A GPC is worth about the slot's goodput over the board's GPCs: start at half of that."""
    sizes = np.array(space.geometry.sizes, np.float64)
    worth = np.zeros(tables.keep.shape[2])
    for m, count in enumerate(tables.patterns):
        worth += tables.keep[m, 0, :, :count].max(axis=1)
    return np.outer(0.5 * worth / sizes[-1], sizes)


def _answers_of(space: Space, tables: Tables, m: int) -> Answer:
    counts = space.pattern_sizes[m]

    def answer_by_size(prices: Floats, rents: Floats, surplus: Floats) -> float:
        return float(_answer_by_size(m, tables, counts, prices, rents, surplus))

    return answer_by_size


@compiled
def _answer_by_size(
    m: int, tables: Tables, counts: Floats, prices: Floats, rents: Floats, surplus: Floats
) -> float:
    """One tenant's answer to prices per size; what it uses is taken off the surplus."""
    slots, sizes = prices.shape
    cost = np.zeros((slots, tables.keep.shape[3]))
    for t in range(slots):
        for p in range(tables.patterns[m]):
            for k in range(sizes):
                cost[t, p] += counts[p, k] * prices[t, k]
    path = np.empty(slots, np.int64)
    value, end, size = answer(m, tables, cost, rents, path)
    for t in range(slots):
        for k in range(sizes):
            surplus[t, k] -= counts[path[t], k]
    if size >= 0:
        for t in range(end - tables.durations[m, size], end):
            surplus[t, size] -= 1.0
    return value


@compiled
def _refine(
    tables: Tables,
    space: SpaceArrays,
    occupied: Ints,
    pattern: Floats,
    retraining: Floats,
    waiting: int,
    steps: int,
    first: float,
) -> float:
    """Improve prices per pattern in place; returns the bound of the best ones met."""
    surplus, mean, square = np.zeros((3, *pattern.shape))
    surplus_r, mean_r, square_r = np.zeros((3, *retraining.shape))
    best_pattern, best_retraining, best = pattern.copy(), retraining.copy(), np.inf
    for step in range(steps):
        surplus[:] = 0.0
        surplus_r[:] = 0.0
        bound = _rent_out(space, occupied, pattern, retraining, waiting, surplus, surplus_r)
        bound += _ask_tenants(tables, pattern, retraining, surplus, surplus_r)
        if bound < best:
            best = bound
            best_pattern[:], best_retraining[:] = pattern, retraining
        length = first * _LAST_STEP ** (step / steps)
        for m in range(pattern.shape[0]):
            move(pattern[m], surplus[m], mean[m], square[m], step, length, -np.inf)
        move(retraining, surplus_r, mean_r, square_r, step, length, 0.0)
    pattern[:], retraining[:] = best_pattern, best_retraining
    return best


@compiled
def _rent_out(
    space: SpaceArrays,
    occupied: Ints,
    pattern: Floats,
    retraining: Floats,
    waiting: int,
    surplus: Floats,
    surplus_r: Floats,
) -> float:
    """The board's answer: the share of every slot that earns most is added to the surplus."""
    slots = occupied.shape[0]
    scratch = scratch_for(space)
    total, pairs = 0.0, rooms(space, occupied[0], waiting)
    for t in range(slots):
        if t > 0 and occupied[t] != occupied[t - 1]:
            pairs = rooms(space, occupied[t], waiting)
        rent, j, r = best_share(t, space, occupied[t], pairs, pattern, retraining, scratch)
        total += rent
        for m in range(pattern.shape[0]):
            surplus[m, t, space.joint[j, m]] += 1.0
        for k in range(retraining.shape[1]):
            surplus_r[t, k] += space.beside_sizes[r, k]
    return total


@compiled
def _ask_tenants(
    tables: Tables, pattern: Floats, retraining: Floats, surplus: Floats, surplus_r: Floats
) -> float:
    """The tenants' answers; what they use is taken off the surplus."""
    slots, sizes = retraining.shape
    rents, path = np.zeros((sizes, slots + 1)), np.empty(slots, np.int64)
    for t in range(slots):
        for k in range(sizes):
            rents[k, t + 1] = rents[k, t] + retraining[t, k]
    total = 0.0
    for m in range(pattern.shape[0]):
        value, end, size = answer(m, tables, pattern[m], rents, path)
        total += value
        for t in range(slots):
            surplus[m, t, path[t]] -= 1.0
        if size >= 0:
            for t in range(end - tables.durations[m, size], end):
                surplus_r[t, size] -= 1.0
    return total
