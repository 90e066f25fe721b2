"""The number of GPUs per set with the highest goodput, and a bound on any placement.

Sets that have not been planned count with their upper bound, so the program over all sets bounds
every placement. The sets that it chooses are planned next, until all chosen sets are planned: then
the choice is optimal. If the budget ends first, the result is the best placement of planned sets
with the current bound. If not all sets could be listed, tenants left over are added one by one
wherever a GPU has room (`fill_remaining`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from migrator.cluster.placement.linear_program import (
    ChosenSets,
    Column,
    LeftOver,
    Relaxed,
    choose,
    column_of,
    relax,
)
from migrator.cluster.placement.problem import PlacementProblem
from migrator.cluster.placement.sets import Sets
from migrator.cluster.placement.tables import Floats, Ints

ENOUGH = 0.002
"""Gap at which the search ends, relative to the value that is not for floors."""
MOST_ROUNDS = 60
SERVED_BEFORE = 8.0
"""Weight of a currently served tenant relative to others: more tenants than one GPU can hold."""
_AT_FIRST, _LOOKED_AT = 0.97, 400
"""Assumed ratio of goodput to bound before any set is planned; planned sets it is taken from."""
MOST_COLUMNS = 600
"""Limit of columns per board in the integer program."""


@dataclass(frozen=True, eq=False)
class Solution:
    """GPUs per column, what they are worth, and a bound on any other choice."""

    columns: tuple[Column, ...]
    number: Ints
    left_over: Ints
    """[item]"""
    value: float
    bound: float

    def net(self, left: LeftOver) -> float:
        """Value minus the cost of tenants left out."""
        return self.value - left.total(self.left_over)


def solve(problem: PlacementProblem, tenants: Ints) -> Solution:
    """Return the best placement of `tenants` [item] found within the budget."""
    best: Solution | None = None
    bound, left = np.inf, left_over_costs(problem, tenants)
    for _ in range(MOST_ROUNDS):
        relaxed = relax(problem.sets, problem.gpus, tenants, left)
        bound = min(bound, relaxed.bound)
        net = None if best is None else best.net(left)
        columns, all_of_them = _candidates(problem, relaxed, net)
        chosen = choose(columns, problem.gpus, tenants, left)
        if all_of_them and net is not None:
            bound = min(bound, max(chosen.bound, net))
        best = _better(left, best, _known(problem, columns, chosen))
        unknown = _unknown(problem, columns, chosen)
        if best is not None and bound - best.net(left) <= ENOUGH * (
            max(bound, best.value) - problem.asked
        ):
            break
        unplanned = [*unknown, *problem.unplanned(relaxed.used)]
        if not unplanned or problem.budget.spent:
            break
        problem.plan_sets(unplanned)
    solution = best
    if best is None or (problem.budget.spent and not problem.budget.late):
        solution = _better(left, best, _solve_with_likely_values(problem, tenants))
    assert solution is not None, "tenants may be left over, so some choice is always known"
    return replace(solution, bound=max(bound, solution.value))


def _solve_with_likely_values(problem: PlacementProblem, tenants: Ints) -> Solution:
    """The best placement found with the likely goodput of unplanned sets.

    The sets of the placement are planned as far as the time allows.
    """
    best: Solution | None = None
    left = left_over_costs(problem, tenants)
    relaxed = relax(problem.sets, problem.gpus, tenants, left)
    for _ in range(MOST_ROUNDS):
        columns, _ = _candidates(problem, relaxed, None)
        values = likely_values(problem)
        realistic = [
            replace(column, value=float(values[column.board][column.index])) for column in columns
        ]
        chosen = choose(realistic, problem.gpus, tenants, left)
        unknown = _unknown(problem, columns, chosen)
        problem.plan_sets(unknown)
        best = _better(left, best, _known(problem, columns, chosen))
        if not unknown or problem.budget.late:
            break
    return best or _solution(problem, columns, chosen)


def left_over_costs(problem: PlacementProblem, tenants: Ints) -> LeftOver:
    """Costs of leaving tenants out: above what two GPUs could gain, higher for served tenants."""
    per_tenant = np.full(len(tenants), largest_gain(problem))
    served = np.minimum(problem.served, tenants)
    return LeftOver(
        costs=np.column_stack([per_tenant, SERVED_BEFORE * per_tenant]),
        most=np.column_stack([tenants - served, served]),
    )


def largest_gain(problem: PlacementProblem) -> float:
    """A value above what two GPUs can gain from any change of one tenant."""
    return 1.0 + 2.0 * max(float(sets.value.max()) for sets in problem.sets)


def _candidates(
    problem: PlacementProblem, relaxed: Relaxed, net: float | None
) -> tuple[list[Column], bool]:
    """Columns that a better placement could use, and whether these are all of them.

    A set with a reduced cost below minus the gap cannot be part of a better placement.
    """
    columns: list[Column] = []
    all_of_them = net is not None
    for b, sets in enumerate(problem.sets):
        slack = relaxed.bound - net if net is not None else np.inf
        reduced = relaxed.reduced[b]
        paying = np.flatnonzero(reduced >= -slack - 1e-9 * abs(relaxed.bound))
        paying = paying[np.argsort(-reduced[paying], kind="stable")]
        all_of_them = all_of_them and len(paying) <= MOST_COLUMNS and sets.all_listed
        for index in dict.fromkeys([0, *paying[:MOST_COLUMNS].tolist()]):
            columns.append(column_of(problem.sets, b, int(index)))
    return columns, all_of_them


def likely_values(problem: PlacementProblem) -> tuple[Floats, ...]:
    """Per board, [set]: planned value, or the bound times the usual ratio."""
    return tuple(
        np.where(sets.exact, sets.value, sets.value * realism(sets)) for sets in problem.sets
    )


def realism(sets: Sets) -> float:
    """Median ratio of planned goodput to the bound by prices."""
    planned = np.flatnonzero(sets.exact)[1 : 1 + _LOOKED_AT]  # without the empty set
    if not len(planned):
        return _AT_FIRST
    bounds: Floats = np.min([sets.counts[planned] @ v + rent for v, rent in sets.pool], axis=0)
    ratio = sets.value[planned][bounds > 0] / bounds[bounds > 0]
    return float(np.median(ratio)) if len(ratio) else _AT_FIRST


def _unknown(
    problem: PlacementProblem, columns: Sequence[Column], chosen: ChosenSets
) -> list[tuple[int, int]]:
    used = (columns[int(i)] for i in np.flatnonzero(chosen.number))
    return problem.unplanned((column.board, column.index) for column in used)


def _known(
    problem: PlacementProblem, columns: Sequence[Column], chosen: ChosenSets
) -> Solution | None:
    """The choice as a placement if all its sets are planned."""
    return None if _unknown(problem, columns, chosen) else _solution(problem, columns, chosen)


def _solution(problem: PlacementProblem, columns: Sequence[Column], chosen: ChosenSets) -> Solution:
    values, used = likely_values(problem), np.flatnonzero(chosen.number)
    chosen_columns = tuple(
        replace(column, value=float(values[column.board][column.index]))
        for column in (columns[int(i)] for i in used)
    )
    value = float(chosen.number[used] @ np.array([column.value for column in chosen_columns]))
    return Solution(chosen_columns, chosen.number[used], chosen.left_over, value, np.inf)


def _better(left: LeftOver, first: Solution | None, second: Solution | None) -> Solution | None:
    if first is None or second is None:
        return first or second
    return first if first.net(left) >= second.net(left) else second
