"""Everything a placement is chosen from: items, GPUs by board, and the sets with their worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from migrator.cluster.placement.demand import Kind
from migrator.cluster.placement.items import Item, apart_of, living_of, members_of
from migrator.cluster.placement.measure import Question, goodput
from migrator.cluster.placement.prices import OWN_STEPS, POOLED_STEPS, find_prices
from migrator.cluster.placement.sets import Sets, list_sets
from migrator.cluster.placement.workers import Workers
from migrator.cluster.placement.worth import Floats, Ints, Worth, worth_of
from migrator.core.catalogue import Board
from migrator.core.cluster import ClusterScenario

LEVELS = (0.5, 0.75, 1.0, 1.5, 2.5)
"""Loads, over the cluster's own, at which prices are found for all sets at once."""

SetKey = tuple[int, int]
"""(board, set)"""


@dataclass
class Budget:
    """How much planning may be done: sets counted, and seconds where they are limited."""

    sets: int
    until: float | None = None
    """By `perf_counter`; None: only the sets count, so that results repeat."""

    @property
    def late(self) -> bool:
        """Whether the seconds are over."""
        return self.until is not None and perf_counter() > self.until

    @property
    def spent(self) -> bool:
        """Whether nothing more may be begun."""
        return self.sets <= 0 or self.late


@dataclass(eq=False)
class Market:
    """What there is to place and where; sets learn what they are worth as they are asked for."""

    boards: tuple[Board, ...]
    gpus: Ints
    """[board]"""
    kinds: tuple[Kind, ...]
    items: tuple[Item, ...]
    units: Ints
    """[item]"""
    living: Ints
    """[item]: units that are served now, on GPUs that are still there."""
    members: Ints
    """[item, kind]"""
    worths: tuple[Worth, ...]
    sets: tuple[Sets, ...]
    slot_s: float
    slots: int
    workers: Workers
    budget: Budget
    told: Callable[[], None] = field(default=lambda: None)
    """Called as every set is planned."""

    def settle(self, keys: Sequence[SetKey]) -> None:
        """Ask the planner about these sets; those around them learn from their prices.

        Sets of the same kinds are alike to it, whatever rules tell their items apart.
        """
        wanted: dict[tuple[int, bytes], SetKey] = {}
        for b, index in keys:
            if not self.sets[b].exact[index]:
                kinds = self.sets[b].counts[index] @ self.members
                wanted.setdefault((b, kinds.tobytes()), (b, index))
        asked = self.workers.map(goodput, [self._question(key) for key in wanted.values()])
        for b, index in wanted.values():
            self._price(b, index)
        for (b, index), found in zip(wanted.values(), asked, strict=True):
            self.sets[b].settle(self._alike(b, index), found)
            self.told()
        self.budget.sets -= len(wanted)

    def weights(self, units: Ints) -> Floats:
        """[kind]: tenants in so many units of each item."""
        return np.asarray(units @ self.members, np.float64)

    def _alike(self, b: int, index: int) -> NDArray[np.bool_]:
        """[set]: those with the same kinds; without rules a kind is an item, and it is alone."""
        sets = self.sets[b]
        if (self.members.sum(axis=0) == 1).all() and (self.members.sum(axis=1) == 1).all():
            return np.asarray(np.arange(len(sets.counts)) == index)
        kinds = sets.counts @ self.members
        return np.asarray((kinds == kinds[index]).all(axis=1))

    def _question(self, key: SetKey) -> Question:
        b, index = key
        board = self.boards[b]
        many = self.weights(self.sets[b].counts[index])
        views = [
            self.kinds[kind].views[board.name]
            for kind in np.flatnonzero(many)
            for _ in range(int(many[kind]))
        ]
        return Question(board, self.slot_s, self.slots, tuple(views))

    def _price(self, b: int, index: int) -> None:
        """Prices that suit this set: they tell of sets like it too."""
        weights = self.weights(self.sets[b].counts[index])
        found = find_prices(self.worths[b : b + 1], (1.0,), weights, OWN_STEPS)
        self.sets[b].lower(self.members @ found.values[0], float(found.rents[0]))


def open_market(
    scenario: ClusterScenario,
    kinds: Sequence[Kind],
    items: Sequence[Item],
    workers: Workers,
    budget: Budget,
    current: Mapping[str, str],
) -> Market:
    """List the sets of every board, and price them all at several loads."""
    boards = tuple(scenario.boards.values())
    members = members_of(items, len(kinds))
    units = np.array([len(each.units) for each in items], np.int64)
    gpus = [sum(each.board.name == board.name for each in scenario.gpus) for board in boards]
    worths = tuple(_worth(scenario, board, kinds) for board in boards)
    apart = apart_of(items, len(scenario.rules.apart))
    sets = tuple(list_sets(worth, members, apart, units) for worth in worths)
    market = Market(
        boards=boards,
        gpus=np.array(gpus, np.int64),
        kinds=tuple(kinds),
        items=tuple(items),
        units=units,
        living=np.array([len(living_of(each, current, scenario)) for each in items], np.int64),
        members=members,
        worths=worths,
        sets=sets,
        slot_s=scenario.slot_s,
        slots=scenario.slots,
        workers=workers,
        budget=budget,
    )
    _price_all(market)
    return market


def _worth(scenario: ClusterScenario, board: Board, kinds: Sequence[Kind]) -> Worth:
    alone = [
        each.tenant(board, scenario.slot_s, scenario.slots) if board.name in each.views else None
        for each in kinds
    ]
    return worth_of(board, scenario.slots, alone)


def _price_all(market: Market) -> None:
    for level in LEVELS:
        weights = market.weights(market.units) * level
        steps = POOLED_STEPS if level == 1.0 else OWN_STEPS
        found = find_prices(market.worths, market.gpus.tolist(), weights, steps)
        for b, each in enumerate(market.sets):
            each.lower(market.members @ found.values[b], float(found.rents[b]))
