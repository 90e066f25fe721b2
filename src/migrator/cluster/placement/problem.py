"""The data of a placement problem: items, GPUs by board, sets with their values, the budget.

Tenants of the same kind with the same `apart` rules form an item: a placement first counts tenants
per item and GPU, and assigns names last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from migrator.cluster.placement.kinds import TenantKind, observation_of, planned_worth
from migrator.cluster.placement.prices import OWN_STEPS, POOLED_STEPS, find_prices
from migrator.cluster.placement.sets import Sets, list_sets
from migrator.cluster.placement.tables import BoardTable, Floats, Ints, tabulate_kinds
from migrator.cluster.scenario import ClusterScenario, Rules
from migrator.core.catalogue import Board
from migrator.io.task_pool import TaskWorkers
from migrator.policies.policy import Observation

LEVELS = (0.5, 0.75, 1.0, 1.5, 2.5)
"""Factors on the cluster's load at which prices are found for all sets."""
SetKey = tuple[int, int]
"""(board, set)"""
_PLANNED_AT_ONCE = 16
"""Sets planned between two looks at the time."""
_PLANNED_LATE = 64
"""Sets that are planned even if it is late, so that placements of few kinds rest on plans."""


@dataclass(frozen=True)
class Item:
    """Interchangeable tenants."""

    kind: int
    apart: frozenset[int]
    """The `apart` rules that name its tenants."""
    tenants: tuple[str, ...]


def group_items(kind_of: Mapping[str, int], rules: Rules) -> tuple[Item, ...]:
    """Group the tenants into items."""
    alike: dict[tuple[int, frozenset[int]], list[str]] = {}
    for name, kind in kind_of.items():
        apart = frozenset(index for index, group in enumerate(rules.apart) if name in group)
        alike.setdefault((kind, apart), []).append(name)
    return tuple(Item(kind, apart, tuple(names)) for (kind, apart), names in alike.items())


@dataclass
class Budget:
    """Planning limits: a number of sets for the search and, optionally, two deadlines.

    Deadlines are in `perf_counter` seconds; infinite ones make results reproducible.
    """

    sets: int
    search_until: float = math.inf
    until: float = math.inf
    """Until then the sets of the placement that was found are planned."""

    @property
    def late(self) -> bool:
        """Whether planning has to end."""
        return perf_counter() > self.until

    @property
    def spent(self) -> bool:
        """Whether the search has to end."""
        return self.sets <= 0 or perf_counter() > self.search_until


@dataclass(eq=False)
class PlacementProblem:
    """Items, GPUs and sets. The value of a set becomes exact when the planner computes it."""

    boards: tuple[Board, ...]
    gpus: Ints
    """[board]"""
    kinds: tuple[TenantKind, ...]
    items: tuple[Item, ...]
    tenants: Ints
    """[item]"""
    served: Ints
    """[item]: tenants that are currently served on GPUs of the cluster."""
    members: Ints
    """[item, kind]: 1 for the kind of the item's tenants."""
    tables: tuple[BoardTable, ...]
    sets: tuple[Sets, ...]
    slot_s: float
    slots: int
    short_cost: float
    """What a request short of a floor costs."""
    bound: float
    """Upper bound on the value of a placement of all tenants in a window, by prices."""
    workers: TaskWorkers
    budget: Budget
    on_planned: Callable[[], None]
    """Called after every planned set."""

    def plan_sets(self, keys: Sequence[SetKey]) -> None:
        """Plan these sets, many only until it is late. Their prices also bound similar sets.

        Sets with the same kinds have the same value, whatever the rules of their items.
        """
        by_kinds: dict[tuple[int, bytes], SetKey] = {}
        for b, index in self.unplanned(keys):
            kinds = self.sets[b].counts[index] @ self.members
            by_kinds.setdefault((b, kinds.tobytes()), (b, index))
        chosen = list(by_kinds.values())
        for begin in range(0, len(chosen), _PLANNED_AT_ONCE):
            if self.budget.late and begin >= _PLANNED_LATE:
                break
            self._plan(chosen[begin : begin + _PLANNED_AT_ONCE])

    def _plan(self, keys: Sequence[SetKey]) -> None:
        plan = partial(planned_worth, short_cost=self.short_cost)
        worths = self.workers.map(plan, [self._observation(key) for key in keys])
        for b, index in keys:
            self._price(b, index)
        for (b, index), worth in zip(keys, worths, strict=True):
            self.sets[b].record(self._alike(b, index), worth)
            self.on_planned()
        self.budget.sets -= len(keys)

    @property
    def asked(self) -> float:
        """The part of a placement's value that is for floors if all are met."""
        floors = [
            next(iter(kind.views.values())).service.floor * kind.mean_rps for kind in self.kinds
        ]
        window_s = self.slots * self.slot_s
        return self.short_cost * window_s * float(self.weights(self.tenants) @ np.array(floors))

    def unplanned(self, keys: Iterable[SetKey]) -> list[SetKey]:
        """The sets that the planner has made no plan of."""
        return [(b, index) for b, index in keys if not self.sets[b].exact[index]]

    def weights(self, tenants: Ints) -> Floats:
        """[kind]: tenants in `tenants` [item]."""
        return np.asarray(tenants @ self.members, np.float64)

    def _alike(self, b: int, index: int) -> NDArray[np.bool_]:
        """[set]: whether the set has the same kinds; without rules only the set itself."""
        sets = self.sets[b]
        if len(self.items) == len(self.kinds):
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
    on_planned: Callable[[], None],
) -> PlacementProblem:
    """List the sets of every board and bound their values by prices at several loads."""
    boards = tuple(scenario.boards.values())
    members = np.zeros((len(items), len(kinds)), np.int64)
    members[range(len(items)), [item.kind for item in items]] = 1
    tenants = np.array([len(item.tenants) for item in items], np.int64)
    gpus = [sum(gpu.board.name == board.name for gpu in scenario.gpus) for board in boards]
    homes = {gpu.name for gpu in scenario.gpus}
    served = [sum(current.get(name) in homes for name in item.tenants) for item in items]
    tables = tabulate_kinds(scenario, kinds)
    rules = range(len(scenario.rules.apart))
    apart = np.array([[rule in item.apart for rule in rules] for item in items], np.int64)
    sets = tuple(list_sets(table, members, apart, tenants) for table in tables)
    problem = PlacementProblem(
        boards=boards,
        gpus=np.array(gpus, np.int64),
        kinds=tuple(kinds),
        items=tuple(items),
        tenants=tenants,
        served=np.array(served, np.int64),
        members=members,
        tables=tables,
        sets=sets,
        slot_s=scenario.slot_s,
        slots=scenario.slots,
        short_cost=scenario.short_cost,
        bound=np.inf,
        workers=workers,
        budget=budget,
        on_planned=on_planned,
    )
    for level in LEVELS:
        weights = problem.weights(tenants) * level
        steps = POOLED_STEPS if level == 1.0 else OWN_STEPS
        priced = find_prices(tables, gpus, weights, steps)
        if level == 1.0:
            problem.bound = priced.bound
        for b, of_board in enumerate(sets):
            of_board.lower_bounds(members @ priced.values[b], float(priced.rents[b]))
    return problem
