"""The number of GPUs per set with the highest goodput, and a bound on any placement.

Sets that have not been planned count with their upper bound, so the program over all sets bounds
every placement. The sets that it chooses are planned next, until all chosen sets are planned: then
the choice is optimal. If the budget ends first, the result is the best placement of planned sets
with the current bound. If not all sets could be listed, units left over are added one by one
wherever a GPU has room (`fill_remaining`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from migrator.cluster.placement.market import Market, SetKey
from migrator.cluster.placement.prices import Floats, Ints
from migrator.cluster.placement.sets import (
    ChosenSets,
    Column,
    LeftOver,
    Relaxed,
    Sets,
    choose,
    column_of,
    relax,
)
from migrator.plan.exact.tables import IMPOSSIBLE

ENOUGH = 0.002
"""Relative gap at which the search ends."""
MOST_ROUNDS = 60
SERVED_BEFORE = 8.0
"""Weight of a currently served tenant relative to others: more tenants than one GPU can hold."""
_AT_FIRST, _LOOKED_AT = 0.97, 400
"""Assumed ratio of goodput to bound before any set is planned; planned sets it is taken from."""
MOST_COLUMNS = 600
"""Limit of columns per board in the integer program."""


@dataclass(frozen=True, eq=False)
class Solution:
    """GPUs per column, their goodput, and a bound on any other choice."""

    columns: tuple[Column, ...]
    number: Ints
    left_over: Ints
    """[item]"""
    goodput: float
    bound: float

    def net(self, left: LeftOver) -> float:
        """Goodput minus the cost of units left out."""
        return self.goodput - left.total(self.left_over)


def solve(market: Market, units: Ints) -> Solution:
    """Return the best placement of `units` [item] found within the budget."""
    best: Solution | None = None
    bound, left = np.inf, left_over_costs(market, units)
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
        found = _better(left, best, solve_with_known_sets(market, units))
    assert found is not None, "units may be left over, so some choice is always known"
    return Solution(
        found.columns, found.number, found.left_over, found.goodput, max(bound, found.goodput)
    )


def solve_with_known_sets(market: Market, units: Ints) -> Solution | None:
    """A placement of planned sets; unplanned ones count with their likely goodput."""
    left = left_over_costs(market, units)
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


def left_over_costs(market: Market, units: Ints) -> LeftOver:
    """Costs of leaving units out: more than two GPUs could gain, and higher for served tenants."""
    each = largest_gain(market) * market.members.sum(axis=1)
    living = np.minimum(market.living, units)
    return LeftOver(
        costs=np.column_stack([each, SERVED_BEFORE * each]),
        most=np.column_stack([units - living, living]),
    )


def largest_gain(market: Market) -> float:
    """A value above what two GPUs can gain from any change of one tenant."""
    return 1.0 + 2.0 * max(float(each.value.max()) for each in market.sets)


def _candidates(market: Market, relaxed: Relaxed, net: float | None) -> tuple[list[Column], bool]:
    """Columns that a better placement could use, and whether these are all of them.

    A set with a reduced cost below minus the gap cannot be part of a better placement.
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
            columns.append(column_of(market.sets, b, int(index)))
    return columns, all_of_them


def likely_values(market: Market) -> tuple[Floats, ...]:
    """Per board, [set]: planned goodput, or the bound times the usual ratio."""
    return tuple(
        np.where(each.exact, each.value, each.value * realism(each)) for each in market.sets
    )


def realism(sets: Sets) -> float:
    """Median ratio of planned goodput to the bound by prices."""
    known = np.flatnonzero(sets.exact)[1 : 1 + _LOOKED_AT]  # without the empty set
    if not len(known):
        return _AT_FIRST
    bounds: Floats = np.min([sets.counts[known] @ v + rent for v, rent in sets.pool], axis=0)
    ratio = sets.value[known][bounds > 0] / bounds[bounds > 0]
    return float(np.median(ratio)) if len(ratio) else _AT_FIRST


def _unknown(
    market: Market, columns: Sequence[Column], chosen: ChosenSets
) -> list[tuple[int, int]]:
    return [
        (each.board, each.index)
        for each, number in zip(columns, chosen.number, strict=True)
        if number > 0 and not market.sets[each.board].exact[each.index]
    ]


def _known(market: Market, columns: Sequence[Column], chosen: ChosenSets) -> Solution | None:
    """The choice as a placement if all its sets are planned."""
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


_ROUNDS = 3


def one_more_rps(market: Market, window_s: float) -> dict[str, float]:
    """Board -> approximate gain in requests per second from one more GPU."""
    base = _fractional(market, market.gpus)
    more = {}
    for b, board in enumerate(market.boards):
        gpus = market.gpus.copy()
        gpus[b] += 1
        more[board.name] = max(0.0, _fractional(market, gpus) - base) / window_s
    return more


def _fractional(market: Market, gpus: Ints) -> float:
    """Goodput of the linear relaxation, which is smooth in the number of GPUs."""
    for _ in range(_ROUNDS):
        found = relax(market.sets, gpus, market.units, left_over_costs(market, market.units))
        unknown = [key for key in found.used if not market.sets[key[0]].exact[key[1]]]
        if not unknown or market.budget.spent:
            break
        market.settle(unknown)
    return relax(market.sets, gpus, market.units, left_over_costs(market, market.units)).goodput


_PLANNED_AT_ONCE = 16
"""Sets planned between two checks of the budget."""


def fill_remaining(market: Market, solution: Solution) -> Solution:
    """Add as many left-over units to the placement as fit.

    If some do not fit, place all units again from empty GPUs, the hardest first.
    """
    shelves, left = _brought_in(market, solution)
    if left.any():
        anew, fewer = _brought_in(market, None)
        costs = left_over_costs(market, market.units)
        if costs.total(fewer) < costs.total(left):
            shelves, left = anew, fewer
    keys = [(b, index) for b, shelf in enumerate(shelves) for index in shelf.listed()]
    _plan(market, keys)
    return _as_solution(market, keys, left)


def _brought_in(market: Market, solution: Solution | None) -> tuple[list[_Shelf], Ints]:
    """The GPUs of every board and [item] the units without room; None starts from empty GPUs."""
    shelves = [_Shelf.of(market, solution, b) for b in range(len(market.boards))]
    left = (market.units if solution is None else solution.left_over).copy()
    for item in _hardest_first(market):
        while left[item] and _put(shelves, int(item)):
            left[item] -= 1
    return shelves, left


@dataclass(eq=False)
class _Shelf:
    """The GPUs of one board while units are added."""

    market: Market
    board: int
    counts: Ints
    """[gpu, item]"""
    needed: Ints
    """[gpu, size]"""
    sums: Floats
    """[prices, gpu]: upper bound on the goodput of each GPU, for each of the prices."""

    @staticmethod
    def of(market: Market, solution: Solution | None, b: int) -> _Shelf:
        sets = market.sets[b]
        counts = np.zeros((market.gpus[b], len(market.items)), np.int64)
        at = 0
        for column, number in _columns_of(solution):
            if column.board == b:
                counts[at : at + number] = column.counts
                at += number
        sums = [counts @ np.maximum(values, IMPOSSIBLE) + rent for values, rent in sets.pool]
        return _Shelf(market, b, counts, counts @ sets.limits.needs, np.array(sums))

    def best(self, item: int) -> tuple[float, int]:
        """(upper bound on the gain from a unit, GPU index); (-inf, ...) if no GPU has room."""
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

    def listed(self) -> list[int]:
        found = self.market.sets[self.board].add(list(self.counts))
        return [each for each in found if each is not None]


def _columns_of(solution: Solution | None) -> list[tuple[Column, int]]:
    if solution is None:
        return []
    return list(zip(solution.columns, solution.number.tolist(), strict=True))


def _hardest_first(market: Market) -> Ints:
    """Items in the order of placement: largest first, then those with most `apart` rules."""
    limits = [each.limits for each in market.sets]
    needs = np.max([each.needs.sum(axis=1) for each in limits], axis=0)
    order: Ints = np.lexsort((-limits[0].rivals.sum(axis=1), -needs))
    return order


def _put(shelves: Sequence[_Shelf], item: int) -> bool:
    """Add a unit where it gains most; return False if no GPU has room."""
    found = [each.best(item) for each in shelves]
    chosen = max(range(len(shelves)), key=lambda b: found[b][0])
    gain, at = found[chosen]
    if gain == -np.inf:
        return False
    shelves[chosen].put(item, at)
    return True


def _plan(market: Market, keys: Sequence[SetKey]) -> None:
    """Plan as many of the sets as the budget allows."""
    unknown = [key for key in dict.fromkeys(keys) if not market.sets[key[0]].exact[key[1]]]
    for begin in range(0, len(unknown), _PLANNED_AT_ONCE):
        if market.budget.spent:
            break
        market.settle(unknown[begin : begin + _PLANNED_AT_ONCE])


def _as_solution(market: Market, keys: Sequence[SetKey], left: Ints) -> Solution:
    number = {key: keys.count(key) for key in sorted(set(keys))}
    units = market.units - left
    relaxed = relax(market.sets, market.gpus, units, left_over_costs(market, units))
    values = likely_values(market)
    goodput = sum(float(values[b][index]) * often for (b, index), often in number.items())
    return Solution(
        columns=tuple(column_of(market.sets, *key) for key in number),
        number=np.array(list(number.values()), np.int64),
        left_over=left,
        goodput=goodput,
        bound=max(relaxed.bound, goodput),
    )
