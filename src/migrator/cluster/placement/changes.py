"""What every group of GPUs could hold next, moves charged: the columns that a rerun chooses from.

A group is given what it holds now, what the placement without moves uses, and then, round by
round, whatever pays at the linear program's prices: so a GPU that stays as it is, one that takes
several newcomers at once, and one that changes altogether are all looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from migrator.cluster.placement.choose import Column, LeftOver, prices
from migrator.cluster.placement.market import Market
from migrator.cluster.placement.solve import Solution, likely_values, most_of
from migrator.cluster.placement.worth import Floats, Ints
from migrator.core.cluster import ClusterGpu

MOST_ROUNDS = 30
_PRICED_AT_ONCE = 8
_NEARLY = 12
"""Sets that nearly pay, per group: whole numbers need some choice."""


@dataclass(frozen=True, eq=False)
class Group:
    """GPUs of one board that hold the same items now."""

    board: int
    held: Ints
    """[item]"""
    gpus: tuple[ClusterGpu, ...]


@dataclass(eq=False)
class Changes:
    """The columns of every group, which grow as prices are found."""

    market: Market
    groups: Sequence[Group]
    costs: Floats
    """[item]: what a unit that comes costs."""
    taken: list[dict[int, None]]
    """Per group: numbers of sets, in the order they were found."""

    @staticmethod
    def of(market: Market, solution: Solution, groups: Sequence[Group], costs: Floats) -> Changes:
        """What is good anyway, and what is held."""
        taken: list[dict[int, None]] = []
        for group in groups:
            good = [each.index for each in solution.columns if each.board == group.board]
            taken.append(dict.fromkeys([0, *good, *_held(market, group)]))
        return Changes(market, groups, costs, taken)

    def columns(self) -> list[Column]:
        """Every set taken, with what it is worth less what comes."""
        values, found = likely_values(self.market), []
        for index, (group, own) in enumerate(zip(self.groups, self.taken, strict=True)):
            numbers = np.array(list(own), np.int64)
            counts = self.market.sets[group.board].counts[numbers]
            worth = values[group.board][numbers] - np.maximum(counts - group.held, 0) @ self.costs
            found += [
                Column(index, group.board, int(number), float(value), row)
                for number, value, row in zip(numbers, worth, counts, strict=True)
            ]
        return found

    def widen(self, gpus: Ints, units: Ints, left: LeftOver) -> None:
        """Take in whatever pays, until nothing does; then what nearly does."""
        least = 1e-7 * most_of(self.market)
        for _ in range(MOST_ROUNDS):
            reduced = self._reduced(*prices(self.columns(), gpus, units, left))
            if not self._take(reduced, least, _PRICED_AT_ONCE) or self.market.budget.late:
                break
        self._take(reduced, -np.inf, _NEARLY)

    def _reduced(self, items: Floats, gpus: Floats) -> list[tuple[Ints, Floats]]:
        """Per group: the sets that come nearest to paying, and how near."""
        sets = self.market.sets
        base: Mapping[int, Floats] = {
            b: value - sets[b].counts @ (items + self.costs)
            for b, value in enumerate(likely_values(self.market))
        }
        found = []
        for group, price, own in zip(self.groups, gpus, self.taken, strict=True):
            here = np.flatnonzero(group.held)
            stay = np.minimum(sets[group.board].counts[:, here], group.held[here])
            reduced = base[group.board] + stay @ self.costs[here] - price
            reduced[list(own)] = -np.inf
            best = np.argpartition(-reduced, min(_NEARLY, len(reduced) - 1))[:_NEARLY]
            best = best[np.lexsort((best, -reduced[best]))]
            found.append((best, reduced[best]))
        return found

    def _take(self, reduced: Sequence[tuple[Ints, Floats]], least: float, most: int) -> bool:
        took = False
        for own, (numbers, values) in zip(self.taken, reduced, strict=True):
            pays = numbers[values > least][:most]
            own.update(dict.fromkeys(pays.tolist()))
            took = took or bool(len(pays))
        return took


def _held(market: Market, group: Group) -> list[int]:
    """The set that a group holds, unless it breaks a rule by now."""
    (number,) = market.sets[group.board].add([group.held])
    return [] if number is None else [number]
