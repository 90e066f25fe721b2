"""Units that the listed sets leave over, brought in wherever a GPU still has room.

Only where so many items differ that larger sets could not all be listed: a placement over the
listed ones then leaves units over although there is room, and here they find it, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from migrator.cluster.placement.choose import Column, relax
from migrator.cluster.placement.market import Market, SetKey
from migrator.cluster.placement.solve import Solution, column_of, left_over_of, likely_values
from migrator.cluster.placement.worth import Floats, Ints
from migrator.plan.exact.tables import IMPOSSIBLE

_AT_ONCE = 16
"""Sets planned between two looks at the budget."""


def filled(market: Market, solution: Solution) -> Solution:
    """The placement with as many of its units left over as still find room.

    Where it stands in the way of some, everybody is brought in anew, the hardest first.
    """
    shelves, left = _brought_in(market, solution)
    if left.any():
        anew, fewer = _brought_in(market, None)
        costs = left_over_of(market, market.units)
        if costs.total(fewer) < costs.total(left):
            shelves, left = anew, fewer
    keys = [(b, index) for b, shelf in enumerate(shelves) for index in shelf.listed(market, b)]
    _plan(market, keys)
    return _as_solution(market, keys, left)


def _brought_in(market: Market, solution: Solution | None) -> tuple[list[_Shelf], Ints]:
    """The GPUs of every board, and [item] units without room; None: nobody has a GPU yet."""
    shelves = [_Shelf.of(market, solution, b) for b in range(len(market.boards))]
    left = (market.units if solution is None else solution.left_over).copy()
    for item in _hardest_first(market):
        while left[item] and _put(shelves, int(item)):
            left[item] -= 1
    return shelves, left


@dataclass(eq=False)
class _Shelf:
    """The GPUs of one board as they fill up."""

    market: Market
    board: int
    counts: Ints
    """[gpu, item]"""
    needed: Ints
    """[gpu, size]"""
    sums: Floats
    """[prices, gpu]: what it is worth at most, by each of the prices met."""

    @staticmethod
    def of(market: Market, solution: Solution | None, b: int) -> _Shelf:
        sets = market.sets[b]
        counts = np.zeros((market.gpus[b], len(market.items)), np.int64)
        at = 0
        for column, number in _given(solution):
            if column.board == b:
                counts[at : at + number] = column.counts
                at += number
        sums = [counts @ np.maximum(values, IMPOSSIBLE) + rent for values, rent in sets.pool]
        return _Shelf(market, b, counts, counts @ sets.limits.needs, np.array(sums))

    def best(self, item: int) -> tuple[float, int]:
        """(what a unit brings there at most, the GPU); (-inf, ...) where none has room."""
        sets = self.market.sets[self.board]
        takes = sets.limits.takes(self.counts, self.needed, item)
        if not takes.any():
            return -np.inf, 0
        gain = (self.sums + self._values(item)).min(axis=0) - self.sums.min(axis=0)
        at = int(np.where(takes, gain, -np.inf).argmax())
        return float(gain[at]), at

    def put(self, item: int, at: int) -> None:
        self.counts[at, item] += 1
        self.needed[at] += self.market.sets[self.board].limits.needs[item]
        self.sums[:, at] += self._values(item)[:, 0]

    def _values(self, item: int) -> Floats:
        pool = self.market.sets[self.board].pool
        return np.array([[max(values[item], IMPOSSIBLE)] for values, _ in pool])

    def listed(self, market: Market, b: int) -> list[int]:
        """The number of every GPU's set."""
        found = market.sets[b].add(list(self.counts))
        return [each for each in found if each is not None]


def _given(solution: Solution | None) -> list[tuple[Column, int]]:
    if solution is None:
        return []
    return list(zip(solution.columns, solution.number.tolist(), strict=True))


def _hardest_first(market: Market) -> Ints:
    """Items in the order in which they are brought in: the widest, then those with most rivals."""
    limits = [each.limits for each in market.sets]
    needs = np.max([each.needs.sum(axis=1) for each in limits], axis=0)
    order: Ints = np.lexsort((-limits[0].rivals.sum(axis=1), -needs))
    return order


def _put(shelves: Sequence[_Shelf], item: int) -> bool:
    """One more unit where it brings most; False: there is no room for it."""
    found = [each.best(item) for each in shelves]
    chosen = max(range(len(shelves)), key=lambda b: found[b][0])
    gain, at = found[chosen]
    if gain == -np.inf:
        return False
    shelves[chosen].put(item, at)
    return True


def _plan(market: Market, keys: Sequence[SetKey]) -> None:
    """As many of the sets as the budget allows; the others keep what they are likely worth."""
    unknown = [key for key in dict.fromkeys(keys) if not market.sets[key[0]].exact[key[1]]]
    for begin in range(0, len(unknown), _AT_ONCE):
        if market.budget.spent:
            break
        market.settle(unknown[begin : begin + _AT_ONCE])


def _as_solution(market: Market, keys: Sequence[SetKey], left: Ints) -> Solution:
    number = {key: keys.count(key) for key in sorted(set(keys))}
    units = market.units - left
    relaxed = relax(market.sets, market.gpus, units, left_over_of(market, units))
    values = likely_values(market)
    goodput = sum(float(values[b][index]) * often for (b, index), often in number.items())
    return Solution(
        columns=tuple(column_of(market, key[0], *key) for key in number),
        number=np.array(list(number.values()), np.int64),
        left_over=left,
        goodput=goodput,
        bound=max(relaxed.bound, goodput),
    )
