"""The data of a placement problem: items, GPUs by board, sets with their values, the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from migrator.cluster.placement.items import Item, members_of, served_units
from migrator.cluster.placement.kinds import TenantKind, observation_of, planned_worth
from migrator.cluster.placement.prices import OWN_STEPS, POOLED_STEPS, find_prices
from migrator.cluster.placement.sets import Sets, list_sets
from migrator.cluster.placement.tables import BoardTable, Floats, Ints, tabulate_kinds
from migrator.cluster.scenario import ClusterScenario
from migrator.core.catalogue import Board
from migrator.io.task_pool import TaskWorkers
from migrator.policies.policy import Observation

LEVELS = (0.5, 0.75, 1.0, 1.5, 2.5)
"""Factors on the cluster's load at which prices are found for all sets."""
SetKey = tuple[int, int]
"""(board, set)"""


@dataclass
class Budget:
    """Planning limits: a number of sets and, optionally, a deadline."""

    sets: int
    until: float | None = None
    """Deadline in `perf_counter` seconds; None: no time limit, so that results are reproducible."""

    @property
    def late(self) -> bool:
        return self.until is not None and perf_counter() > self.until

    @property
    def spent(self) -> bool:
        """Whether no further planning may start."""
        return self.sets <= 0 or self.late


@dataclass(eq=False)
class PlacementProblem:
    """Items, GPUs and sets. The value of a set becomes exact when the planner computes it."""

    boards: tuple[Board, ...]
    gpus: Ints
    """[board]"""
    kinds: tuple[TenantKind, ...]
    items: tuple[Item, ...]
    units: Ints
    """[item]"""
    served: Ints
    """[item]: units that are currently served on GPUs of the cluster."""
    members: Ints
    """[item, kind]"""
    tables: tuple[BoardTable, ...]
    sets: tuple[Sets, ...]
    slot_s: float
    slots: int
    short_cost: float
    """What a request short of a floor costs."""
    workers: TaskWorkers
    budget: Budget
    on_planned: Callable[[], None]
    """Called after every planned set."""

    def plan_sets(self, keys: Sequence[SetKey]) -> None:
        """Plan these sets. Their prices also lower the bounds of similar sets.

        Sets with the same kinds have the same value, whatever the rules of their items.
        """
        by_kinds: dict[tuple[int, bytes], SetKey] = {}
        for b, index in self.unplanned(keys):
            kinds = self.sets[b].counts[index] @ self.members
            by_kinds.setdefault((b, kinds.tobytes()), (b, index))
        observations = [self._observation(key) for key in by_kinds.values()]
        worths = self.workers.map(partial(planned_worth, short_cost=self.short_cost), observations)
        for b, index in by_kinds.values():
            self._price(b, index)
        for (b, index), worth in zip(by_kinds.values(), worths, strict=True):
            self.sets[b].record(self._alike(b, index), worth)
            self.on_planned()
        self.budget.sets -= len(by_kinds)

    @property
    def asked(self) -> float:
        """The part of a placement's value that is for floors if all are met."""
        floors = [
            next(iter(kind.views.values())).service.floor * kind.mean_rps for kind in self.kinds
        ]
        window_s = self.slots * self.slot_s
        return self.short_cost * window_s * float(self.weights(self.units) @ np.array(floors))

    def unplanned(self, keys: Iterable[SetKey]) -> list[SetKey]:
        """The sets that the planner has made no plan of."""
        return [(b, index) for b, index in keys if not self.sets[b].exact[index]]

    def weights(self, units: Ints) -> Floats:
        """[kind]: tenants in `units` [item]."""
        return np.asarray(units @ self.members, np.float64)

    def _alike(self, b: int, index: int) -> NDArray[np.bool_]:
        """[set]: whether the set has the same kinds; without rules only the set itself."""
        sets = self.sets[b]
        if (self.members.sum(axis=0) == 1).all() and (self.members.sum(axis=1) == 1).all():
            return np.asarray(np.arange(len(sets.counts)) == index)
        kinds = sets.counts @ self.members
        return np.asarray((kinds == kinds[index]).all(axis=1))

    def _observation(self, key: SetKey) -> Observation:
        b, index = key
        board = self.boards[b]
        tenants = self.weights(self.sets[b].counts[index])
        views = [
            self.kinds[kind].views[board.name]
            for kind in np.flatnonzero(tenants)
            for _ in range(int(tenants[kind]))
        ]
        return observation_of(board, self.slot_s, self.slots, views)

    def _price(self, b: int, index: int) -> None:
        """Find prices for this set, which also bound similar sets."""
        weights = self.weights(self.sets[b].counts[index])
        priced = find_prices(self.tables[b : b + 1], (1.0,), weights, OWN_STEPS)
        self.sets[b].lower_bounds(self.members @ priced.values[0], float(priced.rents[0]))


def build_problem(
    scenario: ClusterScenario,
    kinds: Sequence[TenantKind],
    items: Sequence[Item],
    workers: TaskWorkers,
    budget: Budget,
    current: Mapping[str, str],
    on_planned: Callable[[], None] = lambda: None,
) -> PlacementProblem:
    """List the sets of every board and bound their values by prices at several loads."""
    boards = tuple(scenario.boards.values())
    members = members_of(items, len(kinds))
    units = np.array([len(item.units) for item in items], np.int64)
    gpus = [sum(gpu.board.name == board.name for gpu in scenario.gpus) for board in boards]
    tables = tabulate_kinds(scenario, kinds)
    rules = range(len(scenario.rules.apart))
    apart = np.array([[rule in item.apart for rule in rules] for item in items], np.int64)
    sets = tuple(list_sets(table, members, apart, units) for table in tables)
    problem = PlacementProblem(
        boards=boards,
        gpus=np.array(gpus, np.int64),
        kinds=tuple(kinds),
        items=tuple(items),
        units=units,
        served=np.array([len(served_units(item, current, scenario)) for item in items], np.int64),
        members=members,
        tables=tables,
        sets=sets,
        slot_s=scenario.slot_s,
        slots=scenario.slots,
        short_cost=scenario.short_cost,
        workers=workers,
        budget=budget,
        on_planned=on_planned,
    )
    for level in LEVELS:
        weights = problem.weights(units) * level
        steps = POOLED_STEPS if level == 1.0 else OWN_STEPS
        priced = find_prices(tables, gpus, weights, steps)
        for b, of_board in enumerate(sets):
            of_board.lower_bounds(members @ priced.values[b], float(priced.rents[b]))
    return problem
