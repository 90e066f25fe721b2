"""From a market to whole GPUs per set, with a bound: the planner is asked only where it matters.

Every set not asked about yet counts with what it is worth at most. So the program over all sets
is a bound on every placement, and whatever it chooses is asked about next, until what it chooses
is known: then nothing better exists. Where the budget ends first, the best placement of known
sets is given, with the bound as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from migrator.cluster.placement.choose import Chosen, Column, LeftOver, Relaxed, choose, relax
from migrator.cluster.placement.market import Market
from migrator.cluster.placement.sets import Sets
from migrator.cluster.placement.worth import Floats, Ints

ENOUGH = 0.002
"""A gap at which looking further is not worth it."""
MOST_ROUNDS = 60
SERVED_BEFORE = 8.0
"""A tenant that is served now is kept before so many others: more than one GPU could hold."""
_AT_FIRST, _LOOKED_AT = 0.97, 400
"""What prices say too much before any set is planned; planned sets that are asked after that."""
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

    def net(self, left: LeftOver) -> float:
        """Goodput less what it costs to leave units out."""
        return self.goodput - left.total(self.left_over)


def solve(market: Market, units: Ints) -> Solution:
    """The best placement of so many units of each item that the budget allows to find."""
    best: Solution | None = None
    bound, left = np.inf, left_over_of(market, units)
    for _ in range(MOST_ROUNDS):
        relaxed = relax(market.sets, market.gpus, units, left)
        bound = min(bound, relaxed.bound)
        net = None if best is None else best.net(left)
        columns, all_of_them = _candidates(market, relaxed, net)
        chosen = choose(columns, market.gpus, units, left)
        if all_of_them and net is not None:
            bound = min(bound, max(chosen.bound, net))
        best = _better(left, best, _known(market, columns, chosen))
        unknown = _unknown(market, columns, chosen)
        if best is not None and bound - best.net(left) <= ENOUGH * max(bound, best.goodput):
            break
        wanted = [*unknown, *(key for key in relaxed.used if not market.sets[key[0]].exact[key[1]])]
        if not wanted or market.budget.spent:
            break
        market.settle(wanted)
    found = best
    if best is None or (market.budget.spent and not market.budget.late):
        found = _better(left, best, settled(market, units))
    assert found is not None, "units may be left over, so some choice is always known"
    return Solution(
        found.columns, found.number, found.left_over, found.goodput, max(bound, found.goodput)
    )


def settled(market: Market, units: Ints) -> Solution | None:
    """A placement of known sets: unknown ones count with what such sets turned out to be worth."""
    left = left_over_of(market, units)
    relaxed = relax(market.sets, market.gpus, units, left)
    for _ in range(MOST_ROUNDS):
        columns, _ = _candidates(market, relaxed, None)
        values = likely_values(market)
        realistic = [replace(each, value=float(values[each.board][each.index])) for each in columns]
        chosen = choose(realistic, market.gpus, units, left)
        unknown = _unknown(market, columns, chosen)
        if not unknown:
            return _known(market, columns, chosen)
        market.settle(unknown)
    return None


def left_over_of(market: Market, units: Ints) -> LeftOver:
    """Leaving a tenant out costs more than any two GPUs could gain; one served now, even more."""
    each = most_of(market) * market.members.sum(axis=1)
    living = np.minimum(market.living, units)
    return LeftOver(
        costs=np.column_stack([each, SERVED_BEFORE * each]),
        most=np.column_stack([units - living, living]),
    )


def most_of(market: Market) -> float:
    """More than two GPUs can gain by anything that happens to one tenant."""
    return 1.0 + 2.0 * max(float(each.value.max()) for each in market.sets)


def _candidates(market: Market, relaxed: Relaxed, net: float | None) -> tuple[list[Column], bool]:
    """Columns that a better placement could use, and whether these are all of them.

    A set whose reduced cost exceeds what the bound has over the best placement is in none.
    """
    columns: list[Column] = []
    all_of_them = net is not None
    for b, sets in enumerate(market.sets):
        slack = relaxed.bound - net if net is not None else np.inf
        reduced = relaxed.reduced[b]
        paying = np.flatnonzero(reduced >= -slack - 1e-9 * abs(relaxed.bound))
        paying = paying[np.argsort(-reduced[paying], kind="stable")]
        all_of_them = all_of_them and len(paying) <= MOST_COLUMNS and sets.whole
        for index in dict.fromkeys([0, *paying[:MOST_COLUMNS].tolist()]):
            columns.append(column_of(market, b, b, int(index)))
    return columns, all_of_them


def column_of(market: Market, group: int, b: int, index: int) -> Column:
    """A set of board `b` on the GPUs of a group."""
    sets = market.sets[b]
    return Column(group, b, index, float(sets.value[index]), sets.counts[index])


def likely_values(market: Market) -> tuple[Floats, ...]:
    """Per board, [set]: what it is worth, planned or as such sets turned out to be."""
    return tuple(
        np.where(each.exact, each.value, each.value * realism(each)) for each in market.sets
    )


def realism(sets: Sets) -> float:
    """What planned sets of the board turned out to be worth over what prices had said, about."""
    known = np.flatnonzero(sets.exact)[1 : 1 + _LOOKED_AT]  # the empty one says nothing
    if not len(known):
        return _AT_FIRST
    bounds: Floats = np.min([sets.counts[known] @ v + rent for v, rent in sets.pool], axis=0)
    ratio = sets.value[known][bounds > 0] / bounds[bounds > 0]
    return float(np.median(ratio)) if len(ratio) else _AT_FIRST


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


def _better(left: LeftOver, one: Solution | None, other: Solution | None) -> Solution | None:
    if one is None or other is None:
        return one or other
    return one if one.net(left) >= other.net(left) else other
