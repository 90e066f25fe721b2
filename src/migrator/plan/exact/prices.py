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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from migrator.plan.exact.space import Floats, Ints, Space, SpaceArrays
from migrator.plan.exact.subproblems import best_response, best_share, rooms, scratch_for, step_back
from migrator.plan.exact.tables import NEVER, Tables
from migrator.plan.kernels import compiled

FEWEST_STEPS, MOST_STEPS = 80, 200
"""Ascent steps of a stage. Up to two tenants one per slot of the window for the prices per
pattern and one per two slots for those per size, within these limits: a short window is
searched faster than it is priced. With more tenants always the most: the bound decides."""
Answer = Callable[[Floats, Floats, Floats], float]
"""(prices [slot, size], their sums before each slot [size, slot], surplus) -> what the tenant
earns at these prices; what it uses is subtracted from the surplus [slot, size]."""
MEMORY, SCALE_MEMORY = 0.9, 0.999
"""How much of the slope, and of its square, a step remembers."""
LAST_STEP = 0.003
"""Length of the last step relative to the first."""
_FIRST_STEP, _LAST_STEP = 0.4, 3 * LAST_STEP
"""First step of a pattern's price, in mean prices of the smallest instance; last over first."""
_FIRST_STEP_SHARE = 2.0
"""Length of the first step, in mean prices of the smallest instance."""
Float32s = npt.NDArray[np.float32]


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
    # Where the board is large enough for all tenants, all prices should be zero.
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
    value, end, size = best_response(m, tables, cost, rents, path)
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
        value, end, size = best_response(m, tables, pattern[m], rents, path)
        total += value
        for t in range(slots):
            surplus[m, t, path[t]] -= 1.0
        if size >= 0:
            for t in range(end - tables.durations[m, size], end):
                surplus_r[t, size] -= 1.0
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


def tabulate_bounds(space: Space, tables: Tables, prices: Prices) -> Bounds:
    """The bounds that these prices give."""
    tenants, _, slots, width = tables.keep.shape
    longest = int(max(tables.durations.max(), tables.slots_left.max(), 0))
    bounds = Bounds(
        waiting=np.full((tenants, slots + 1, width), NEVER),
        running=np.full((tenants, slots + 1, longest + 1, width), NEVER, np.float32),
        done=np.full((tenants, slots + 1, width), NEVER),
        rent=np.zeros((space.most_waiting + 1, len(space.arrays.fitting), slots + 1)),
    )
    for m in range(tenants):
        _values_to_go(m, tables, prices.pattern[m], prices.retraining, bounds)
    _sum_rent(space.arrays, space.reachable, prices.pattern, prices.retraining, bounds.rent)
    return bounds


@compiled
def _values_to_go(m: int, tables: Tables, cost: Floats, retraining: Floats, bounds: Bounds) -> None:
    """Fill tenant m's `waiting`, `running` and `done` backwards from the window's end."""
    patterns, durations = tables.patterns[m], tables.durations[m]
    keep, change = tables.keep[m], tables.change[m]
    waiting, running, done = bounds.waiting[m], bounds.running[m], bounds.done[m]
    slots = retraining.shape[0]
    done[slots, :patterns] = tables.later[m]
    if tables.optional[m]:
        waiting[slots, :patterns] = 0.0
    for t in range(slots - 1, -1, -1):
        step_back(t, patterns, cost, keep[1], change[1], done[t + 1], done[t])
    longest = max(durations.max(), tables.slots_left[m])
    value, earlier = np.empty(patterns), np.empty(patterns)
    for end in range(slots + 1):
        value[:] = done[end, :patterns]
        for ahead in range(min(end, longest) + 1):
            if ahead > 0:
                step_back(end - ahead, patterns, cost, keep[0], change[0], value, earlier)
                value[:] = earlier
            for p in range(patterns):
                running[end, ahead, p] = _up(value[p])
    if durations.max() > 0:
        _fill_waiting(patterns, cost, keep[0], change[0], durations, retraining, running, waiting)


@compiled
def _fill_waiting(
    patterns: int,
    cost: Floats,
    keep: Floats,
    change: Floats,
    durations: Ints,
    retraining: Floats,
    running: Float32s,
    waiting: Floats,
) -> None:
    """Wait a slot, or start now on some size and pay its price to the end."""
    slots, sizes = retraining.shape
    rents = np.zeros((sizes, slots + 1))
    for t in range(slots):
        for k in range(sizes):
            rents[k, t + 1] = rents[k, t] + retraining[t, k]
    for t in range(slots - 1, -1, -1):
        step_back(t, patterns, cost, keep, change, waiting[t + 1], waiting[t])
        for k in range(sizes):
            end = t + durations[k]
            if durations[k] > 0 and end <= slots:
                paid = rents[k, end] - rents[k, t]
                for p in range(patterns):
                    waiting[t, p] = max(waiting[t, p], running[end, durations[k], p] - paid)


@compiled
def _up(value: float) -> float:
    """Rounded up far enough that storing it in single precision keeps it a bound."""
    return value + abs(value) * 1.2e-7 + 1e-6


@compiled
def _sum_rent(
    space: SpaceArrays, reachable: Ints, pattern: Floats, retraining: Floats, rent: Floats
) -> None:
    most, slots = rent.shape[0], rent.shape[2] - 1
    scratch = scratch_for(space)
    for mask in reachable:
        if space.fitting[mask, 0] < 0:
            continue
        # An occupied slice means a retraining under way, so not every tenant is waiting then,
        # unless it ran already before the window: most counts only those still to start.
        for waiting in range(most):
            pairs = rooms(space, mask, waiting)
            for t in range(slots):
                earned, _, _ = best_share(t, space, mask, pairs, pattern, retraining, scratch)
                rent[waiting, mask, t + 1] = rent[waiting, mask, t] + earned
