"""Units that the program left over, added one by one wherever a GPU has room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from migrator.cluster.placement.linear_program import (
    Column,
    column_of,
    relax,
)
from migrator.cluster.placement.problem import PlacementProblem, SetKey
from migrator.cluster.placement.solve import Solution, left_over_costs, likely_values
from migrator.cluster.placement.tables import Floats, Ints
from migrator.planning.exact.tables import IMPOSSIBLE


def fill_remaining(problem: PlacementProblem, solution: Solution) -> Solution:
    """Add as many left-over tenants to the placement as fit.

    If some do not fit, place all tenants again from empty GPUs, the hardest first.
    """
    boards_gpus, left = _fill(problem, solution)
    if left.any():
        anew, fewer = _fill(problem, None)
        costs = left_over_costs(problem, problem.tenants)
        if costs.total(fewer) < costs.total(left):
            boards_gpus, left = anew, fewer
    keys = [
        (b, index) for b, board_gpus in enumerate(boards_gpus) for index in board_gpus.set_indices()
    ]
    if not problem.budget.late:
        problem.plan_sets(keys)
    return _as_solution(problem, keys, left)


def _fill(problem: PlacementProblem, solution: Solution | None) -> tuple[list[_BoardGpus], Ints]:
    """The GPUs of every board and [item] the tenants without room; None starts from empty GPUs."""
    boards_gpus = [_BoardGpus.of(problem, solution, b) for b in range(len(problem.boards))]
    left = (problem.tenants if solution is None else solution.left_over).copy()
    for item in _hardest_first(problem):
        while left[item] and _add_tenant(boards_gpus, int(item)):
            left[item] -= 1
    return boards_gpus, left


@dataclass(eq=False)
class _BoardGpus:
    """The GPUs of one board while tenants are added."""

    problem: PlacementProblem
    board: int
    counts: Ints
    """[gpu, item]"""
    needed: Ints
    """[gpu, size]"""
    sums: Floats
    """[prices, gpu]: upper bound on the goodput of each GPU, for each of the prices."""

    @staticmethod
    def of(problem: PlacementProblem, solution: Solution | None, b: int) -> _BoardGpus:
        sets = problem.sets[b]
        counts = np.zeros((problem.gpus[b], len(problem.items)), np.int64)
        begin = 0
        for column, number in _columns_of(solution):
            if column.board == b:
                counts[begin : begin + number] = column.counts
                begin += number
        sums = [counts @ np.maximum(values, IMPOSSIBLE) + rent for values, rent in sets.pool]
        return _BoardGpus(problem, b, counts, counts @ sets.limits.needs, np.array(sums))

    def best(self, item: int) -> tuple[float, int]:
        """(upper bound on the gain from a tenant, GPU index); (-inf, ...) if no GPU has room."""
        sets = self.problem.sets[self.board]
        has_room = sets.limits.has_room(self.counts, self.needed, item)
        if not has_room.any():
            return -np.inf, 0
        gain = (self.sums + self._values(item)).min(axis=0) - self.sums.min(axis=0)
        best = int(np.where(has_room, gain, -np.inf).argmax())
        return float(gain[best]), best

    def add(self, item: int, gpu: int) -> None:
        self.counts[gpu, item] += 1
        self.needed[gpu] += self.problem.sets[self.board].limits.needs[item]
        self.sums[:, gpu] += self._values(item)[:, 0]

    def _values(self, item: int) -> Floats:
        pool = self.problem.sets[self.board].pool
        return np.array([[max(values[item], IMPOSSIBLE)] for values, _ in pool])

    def set_indices(self) -> list[int]:
        indices = self.problem.sets[self.board].add(list(self.counts))
        return [index for index in indices if index is not None]


def _columns_of(solution: Solution | None) -> list[tuple[Column, int]]:
    if solution is None:
        return []
    return list(zip(solution.columns, solution.number.tolist(), strict=True))


def _hardest_first(problem: PlacementProblem) -> Ints:
    """Items in the order of placement: largest first, then those with most `apart` rules."""
    limits = [sets.limits for sets in problem.sets]
    needs = np.max([limit.needs.sum(axis=1) for limit in limits], axis=0)
    order: Ints = np.lexsort((-limits[0].rivals.sum(axis=1), -needs))
    return order


def _add_tenant(boards_gpus: Sequence[_BoardGpus], item: int) -> bool:
    """Add a tenant where it gains most; return False if no GPU has room."""
    gains = [board_gpus.best(item) for board_gpus in boards_gpus]
    chosen = max(range(len(boards_gpus)), key=lambda b: gains[b][0])
    gain, gpu = gains[chosen]
    if gain == -np.inf:
        return False
    boards_gpus[chosen].add(item, gpu)
    return True


def _as_solution(problem: PlacementProblem, keys: Sequence[SetKey], left: Ints) -> Solution:
    number = {key: keys.count(key) for key in sorted(set(keys))}
    tenants = problem.tenants - left
    relaxed = relax(problem.sets, problem.gpus, tenants, left_over_costs(problem, tenants))
    values = likely_values(problem)
    value = sum(float(values[b][index]) * often for (b, index), often in number.items())
    return Solution(
        columns=tuple(column_of(problem.sets, *key) for key in number),
        number=np.array(list(number.values()), np.int64),
        left_over=left,
        value=value,
        bound=max(relaxed.bound, value),
    )
