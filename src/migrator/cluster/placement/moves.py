"""Which GPU gets which set and which tenants by name, so that few tenants move.

GPUs of one board that currently hold the same items form a group. A set on a group's GPU is worth
its goodput minus the cost of a move for every tenant that is not on that GPU yet. The columns of a
group are its current set, the sets of the placement without moves, and then, round by round, the
sets with positive reduced cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from migrator.cluster.placement.linear_program import Column, LeftOver, choose, dual_prices
from migrator.cluster.placement.problem import Item, PlacementProblem
from migrator.cluster.placement.solve import Solution, largest_gain, left_over_costs, likely_values
from migrator.cluster.placement.tables import Floats, Ints
from migrator.cluster.scenario import ClusterGpu, ClusterScenario

MOST_ROUNDS = 12
_MOVES_FOR_A_HOME = 20.0
"""Number of moves accepted to avoid leaving one tenant without a GPU."""
_GAP = 1e-7
"""Relative gap of the integer program: small, because a move is a small part of the objective."""
MOST_PRICE_ROUNDS = 30
_PRICED_AT_ONCE = 8
_NEARLY = 12
"""Sets with the highest negative reduced cost added per group: the integer program needs some."""


@dataclass(frozen=True, eq=False)
class GroupPlacement:
    """Sets and numbers of GPUs per group."""

    groups: tuple[GpuGroup, ...]
    columns: tuple[Column, ...]
    number: Ints


def current_items(
    items: Sequence[Item], current: Mapping[str, str]
) -> dict[str, list[tuple[int, str]]]:
    """GPU -> the (item, tenant) pairs on it."""
    held: dict[str, list[tuple[int, str]]] = {}
    for index, item in enumerate(items):
        for tenant in item.tenants:
            if tenant in current:
                held.setdefault(current[tenant], []).append((index, tenant))
    return held


def gpu_groups(
    problem: PlacementProblem,
    scenario: ClusterScenario,
    held: Mapping[str, Sequence[tuple[int, str]]],
) -> tuple[GpuGroup, ...]:
    """Group the GPUs by board and current items."""
    names = [board.name for board in problem.boards]
    groups: dict[tuple[int, bytes], tuple[Ints, list[ClusterGpu]]] = {}
    for gpu in scenario.gpus:
        counts = np.zeros(len(problem.items), np.int64)
        for index, _ in held.get(gpu.name, ()):
            counts[index] += 1
        key = names.index(gpu.board.name), counts.tobytes()
        groups.setdefault(key, (counts, []))[1].append(gpu)
    return tuple(GpuGroup(b, counts, tuple(gpus)) for (b, _), (counts, gpus) in groups.items())


def choose_moves(
    problem: PlacementProblem, solution: Solution, groups: Sequence[GpuGroup], costs: Floats
) -> GroupPlacement:
    """Choose sets per group with the highest goodput minus `costs` [item] of moved tenants.

    A move affects two GPUs, so costs are capped at what two GPUs can gain, which also keeps the
    program well scaled.
    """
    gpus = np.array([len(group.gpus) for group in groups], np.int64)
    tenants = problem.tenants - solution.left_over
    costs_left_out = left_over_costs(problem, tenants)
    costs_left_out = replace(costs_left_out, costs=_MOVES_FOR_A_HOME * costs_left_out.costs)
    changes = MoveColumns.of(problem, solution, groups, np.minimum(costs, largest_gain(problem)))
    original = changes.columns()
    for _ in range(MOST_ROUNDS):
        changes.add_sets(gpus, tenants, costs_left_out)
        columns = changes.columns()
        chosen = choose(columns, gpus, tenants, costs_left_out, _GAP)
        if chosen.left_over.any():
            # the sets of the original placement always have room for all tenants
            columns, chosen = original, choose(original, gpus, tenants, costs_left_out, _GAP)
        used = [columns[i] for i in np.flatnonzero(chosen.number)]
        unknown = problem.unplanned((column.board, column.index) for column in used)
        if not unknown or problem.budget.late:
            break
        problem.plan_sets(unknown)
    return GroupPlacement(tuple(groups), tuple(used), chosen.number[np.flatnonzero(chosen.number)])


@dataclass(frozen=True, eq=False)
class GpuGroup:
    """GPUs of one board that currently hold the same items."""

    board: int
    held: Ints
    """[item]"""
    gpus: tuple[ClusterGpu, ...]


@dataclass(eq=False)
class MoveColumns:
    """The columns of every group, extended by column generation."""

    problem: PlacementProblem
    groups: Sequence[GpuGroup]
    costs: Floats
    """[item]: cost of moving a tenant."""
    taken: list[dict[int, None]]
    """Per group: indices of sets, in the order in which they were added."""

    @staticmethod
    def of(
        problem: PlacementProblem, solution: Solution, groups: Sequence[GpuGroup], costs: Floats
    ) -> MoveColumns:
        """Start from the sets of the placement without moves and the current sets."""
        taken: list[dict[int, None]] = []
        for group in groups:
            good = [column.index for column in solution.columns if column.board == group.board]
            taken.append(dict.fromkeys([0, *good, *_held_set(problem, group)]))
        return MoveColumns(problem, groups, costs, taken)

    def columns(self) -> list[Column]:
        """All added sets with their value minus the cost of moves."""
        values, columns = likely_values(self.problem), []
        for index, (group, taken) in enumerate(zip(self.groups, self.taken, strict=True)):
            numbers = np.array(list(taken), np.int64)
            counts = self.problem.sets[group.board].counts[numbers]
            moved = np.maximum(counts - group.held, 0)
            net_values = values[group.board][numbers] - moved @ self.costs
            columns += [
                Column(index, group.board, int(number), float(value), row)
                for number, value, row in zip(numbers, net_values, counts, strict=True)
            ]
        return columns

    def add_sets(self, gpus: Ints, tenants: Ints, left: LeftOver) -> None:
        """Add sets until no reduced cost is positive, then a few sets with the highest ones."""
        least = 1e-7 * largest_gain(self.problem)
        for _ in range(MOST_PRICE_ROUNDS):
            reduced = self._reduced(*dual_prices(self.columns(), gpus, tenants, left))
            if not self._add(reduced, least, _PRICED_AT_ONCE) or self.problem.budget.late:
                break
        self._add(reduced, -np.inf, _NEARLY)

    def _reduced(self, items: Floats, gpus: Floats) -> list[tuple[Ints, Floats]]:
        """Per group: the sets with the highest reduced costs, and these costs."""
        sets = self.problem.sets
        base: Mapping[int, Floats] = {
            b: value - sets[b].counts @ (items + self.costs)
            for b, value in enumerate(likely_values(self.problem))
        }
        best_sets = []
        for group, price, taken in zip(self.groups, gpus, self.taken, strict=True):
            held = np.flatnonzero(group.held)
            stay = np.minimum(sets[group.board].counts[:, held], group.held[held])
            reduced = base[group.board] + stay @ self.costs[held] - price
            reduced[list(taken)] = -np.inf
            best = np.argpartition(-reduced, min(_NEARLY, len(reduced) - 1))[:_NEARLY]
            best = best[np.lexsort((best, -reduced[best]))]
            best_sets.append((best, reduced[best]))
        return best_sets

    def _add(self, reduced: Sequence[tuple[Ints, Floats]], least: float, most: int) -> bool:
        added = False
        for taken, (numbers, values) in zip(self.taken, reduced, strict=True):
            pays = numbers[values > least][:most]
            taken.update(dict.fromkeys(pays.tolist()))
            added = added or bool(len(pays))
        return added


def _held_set(problem: PlacementProblem, group: GpuGroup) -> list[int]:
    """The index of the set that a group currently holds; empty if the set breaks a rule."""
    (number,) = problem.sets[group.board].add([group.held])
    return [] if number is None else [number]


@dataclass(frozen=True, eq=False)
class NamedPlacement:
    """Tenants by GPU."""

    tenants_of: dict[str, list[str]]
    """GPU -> its tenants"""
    set_of: dict[str, Column]
    """GPU -> its set"""
    unplaced: list[str]


def assign_names(
    problem: PlacementProblem, homes: GroupPlacement, held: Mapping[str, Sequence[tuple[int, str]]]
) -> NamedPlacement:
    """Assign tenants to GPUs; a tenant stays if its GPU still holds that item."""
    set_of = _given(homes)
    tenants_of: dict[str, list[str]] = {name: [] for name in set_of}
    room = {name: column.counts.copy() for name, column in set_of.items()}
    staying: set[str] = set()
    for name, free in room.items():
        for item, tenant in held.get(name, ()):
            if free[item] > 0:
                tenants_of[name].append(tenant)
                staying.add(tenant)
                free[item] -= 1
    served = {tenant for tenants in held.values() for _, tenant in tenants}
    coming = [
        # tenants that are currently served are assigned first
        sorted(
            (tenant for tenant in item.tenants if tenant not in staying),
            key=lambda u: u not in served,
        )
        for item in problem.items
    ]
    for name, free in room.items():
        for item, number in enumerate(free):
            tenants_of[name] += [coming[item].pop(0) for _ in range(int(number))]
    return NamedPlacement(tenants_of, set_of, [tenant for tenants in coming for tenant in tenants])


def _given(homes: GroupPlacement) -> dict[str, Column]:
    """GPU -> its set, the GPUs of a group in their order."""
    set_of: dict[str, Column] = {}
    waiting = [list(group.gpus) for group in homes.groups]
    for column, number in zip(homes.columns, homes.number, strict=True):
        for _ in range(int(number)):
            set_of[waiting[column.group].pop(0).name] = column
    return set_of
