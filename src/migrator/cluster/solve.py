"""From a market to whole GPUs per set, with a bound: the planner is asked only where it matters.

Every set not asked about yet counts with what it is worth at most. So the program over all sets
is a bound on every placement, and whatever it chooses is asked about next, until what it chooses
is known: then nothing better exists. Where the budget ends first, the best placement of known
sets is given, with the bound as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from migrator.cluster.choose import Chosen, Column, Relaxed, choose, relax
from migrator.cluster.market import Market
from migrator.cluster.worth import Floats, Ints

ENOUGH = 0.002
"""A gap at which looking further is not worth it."""
MOST_ROUNDS = 60
MOST_COLUMNS = 600
"""Passed to the whole-number program, per board."""


@dataclass(frozen=True, eq=False)
class Solution:
    """GPUs per column, what they are worth, and a bound on any other choice."""

    columns: tuple[Column, ...]
    number: Ints
    left_over: Ints
    """[item]"""
    goodput: float
    bound: float


def solve(market: Market, units: Ints) -> Solution:
    """The best placement of so many units of each item that the budget allows to find."""
    best: Solution | None = None
    bound = np.inf
    for _ in range(MOST_ROUNDS):
        relaxed = relax(market.sets, market.gpus, units, penalty_of(market))
        bound = min(bound, relaxed.bound)
        columns, all_of_them = _candidates(market, relaxed, best)
        chosen = choose(columns, market.gpus, units, penalty_of(market))
        if all_of_them and not chosen.left_over.any():
            bound = min(bound, max(chosen.bound, best.goodput if best else 0.0))
        best = _better(best, _known(market, columns, chosen))
        unknown = _unknown(market, columns, chosen)
        if best is not None and bound - best.goodput <= ENOUGH * bound:
            break
        wanted = [*unknown, *(key for key in relaxed.used if not market.sets[key[0]].exact[key[1]])]
        if not wanted or market.budget.spent:
            break
        market.settle(wanted)
    found = best
    if best is None or (market.budget.spent and not market.budget.late):
        found = _better(best, settled(market, units))
    assert found is not None, "units may be left over, so some choice is always known"
    return Solution(
        found.columns, found.number, found.left_over, found.goodput, max(bound, found.goodput)
    )


def settled(market: Market, units: Ints) -> Solution | None:
    """A placement of known sets: unknown ones count with what such sets turned out to be worth."""
    relaxed = relax(market.sets, market.gpus, units, penalty_of(market))
    for _ in range(MOST_ROUNDS):
        columns, _ = _candidates(market, relaxed, None)
        realistic = [_discounted(market, each) for each in columns]
        chosen = choose(realistic, market.gpus, units, penalty_of(market))
        unknown = _unknown(market, columns, chosen)
        if not unknown:
            return _known(market, columns, chosen)
        market.settle(unknown)
    return None


def penalty_of(market: Market) -> float:
    """More than any GPU could gain by leaving a unit out."""
    return 1.0 + 2.0 * max(float(each.value.max()) for each in market.sets)


def _candidates(
    market: Market, relaxed: Relaxed, best: Solution | None
) -> tuple[list[Column], bool]:
    """Columns that a better placement could use, and whether these are all of them.

    A set whose reduced cost exceeds what the bound has over the best placement is in none.
    """
    columns: list[Column] = []
    all_of_them = best is not None
    for b, sets in enumerate(market.sets):
        slack = relaxed.bound - best.goodput if best is not None else np.inf
        reduced = relaxed.reduced[b]
        paying = np.flatnonzero(reduced >= -slack - 1e-9 * abs(relaxed.bound))
        paying = paying[np.argsort(-reduced[paying], kind="stable")]
        all_of_them = all_of_them and len(paying) <= MOST_COLUMNS and sets.largest >= sets.most
        for index in dict.fromkeys([0, *paying[:MOST_COLUMNS].tolist()]):
            columns.append(column_of(market, b, b, int(index)))
    return columns, all_of_them


def column_of(market: Market, group: int, b: int, index: int) -> Column:
    """A set of board `b` on the GPUs of a group."""
    sets = market.sets[b]
    return Column(group, b, index, float(sets.value[index]), sets.counts[index])


def _discounted(market: Market, column: Column) -> Column:
    if market.sets[column.board].exact[column.index]:
        return column
    return Column(
        column.group,
        column.board,
        column.index,
        column.value * realism(market, column.board),
        column.counts,
    )


def realism(market: Market, b: int) -> float:
    """What planned sets of the board turned out to be worth over what prices had said, about."""
    sets = market.sets[b]
    known = np.flatnonzero(sets.exact)
    bounds: Floats = np.min([sets.counts[known] @ v + rent for v, rent in sets.pool], axis=0)
    ratio = sets.value[known][bounds > 0] / bounds[bounds > 0]
    return float(np.median(ratio)) if len(ratio) > 1 else 0.97


def _unknown(market: Market, columns: Sequence[Column], chosen: Chosen) -> list[tuple[int, int]]:
    return [
        (each.board, each.index)
        for each, number in zip(columns, chosen.number, strict=True)
        if number > 0 and not market.sets[each.board].exact[each.index]
    ]


def _known(market: Market, columns: Sequence[Column], chosen: Chosen) -> Solution | None:
    """The choice as a placement, where every set in it is known."""
    if _unknown(market, columns, chosen):
        return None
    used = np.flatnonzero(chosen.number)
    kept = tuple(columns[int(i)] for i in used)
    value = float(chosen.number[used] @ np.array([each.value for each in kept]))
    return Solution(kept, chosen.number[used], chosen.left_over, value, np.inf)


def _better(one: Solution | None, other: Solution | None) -> Solution | None:
    if one is None or other is None:
        return one or other
    left = int(one.left_over.sum()), int(other.left_over.sum())
    if left[0] != left[1]:
        return one if left[0] < left[1] else other
    return one if one.goodput >= other.goodput else other
