"""The choice of sets: a linear program with column generation, then an integer program.

Rows: every tenant of an item is placed once or left out (this costs more than any goodput, most if
the tenant is currently served), and no more GPUs are used than exist. Columns: sets, of which only
those with positive reduced cost are passed to the solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from migrator.cluster.placement.sets import Sets
from migrator.cluster.placement.tables import Floats, Ints
from migrator.core.errors import SolverError

PRICED_AT_ONCE = 60
WHOLE_NODES = 400
WHOLE_GAP = 1e-4


@dataclass(frozen=True, eq=False)
class LeftOver:
    """Costs of leaving tenants out: [item, 0] not currently served, [item, 1] currently served."""

    costs: Floats
    """Per tenant."""
    most: Ints

    def total(self, left: Ints) -> float:
        others = np.minimum(left, self.most[:, 0])
        return float(others @ self.costs[:, 0] + (left - others) @ self.costs[:, 1])


@dataclass(frozen=True, eq=False)
class Column:
    """A set on the GPUs of one group."""

    group: int
    board: int
    index: int
    """The set's index among those of its board."""
    value: float
    counts: Ints


@dataclass(frozen=True, eq=False)
class Relaxed:
    """The solution of the linear program over all sets."""

    bound: float
    """Upper bound on the goodput of any placement of these tenants on these GPUs."""
    used: tuple[tuple[int, int], ...]
    """(board, set) pairs with a positive number of GPUs."""
    reduced: tuple[Floats, ...]
    """Per board: the reduced cost of each set, at most 0."""
    left_over: Floats
    """[item]"""


def relax(sets: Sequence[Sets], gpus: Ints, tenants: Ints, left: LeftOver) -> Relaxed:
    """Solve the linear program over all listed sets by column generation."""
    taken: set[tuple[int, int]] = {(b, 0) for b in range(len(sets))}
    while True:
        keys = sorted(taken)
        columns = [column_of(sets, b, index) for b, index in keys]
        solved = _solve(columns, gpus, tenants, left, whole=False)
        items, boards = solved.duals[: len(tenants)], solved.duals[len(tenants) :]
        reduced = tuple(s.value - s.counts @ items - boards[b] for b, s in enumerate(sets))
        more = _paying(reduced, taken, 1e-7 * max(1.0, abs(solved.value)))
        if not more:
            break
        taken |= more
    over = [_excess(of_board, reduced[b], items, boards[b]) for b, of_board in enumerate(sets)]
    chosen = solved.values[: len(columns)] > 1e-7
    return Relaxed(
        bound=float(items @ tenants + boards @ gpus + np.array(over) @ gpus),
        used=tuple(key for key, use in zip(keys, chosen, strict=True) if use),
        reduced=reduced,
        left_over=_by_item(solved, columns),
    )


def dual_prices(
    columns: Sequence[Column], gpus: Ints, tenants: Ints, left: LeftOver
) -> tuple[Floats, Floats]:
    """Dual prices of a tenant of each item and of a GPU of each group."""
    duals = _solve(columns, gpus, tenants, left, whole=False).duals
    return duals[: len(tenants)], duals[len(tenants) :]


def _paying(
    reduced: Sequence[Floats], taken: set[tuple[int, int]], least: float
) -> set[tuple[int, int]]:
    paying = set()
    for b, of_board in enumerate(reduced):
        pays = np.flatnonzero(of_board > least)
        best = pays[np.argsort(-of_board[pays], kind="stable")[:PRICED_AT_ONCE]]
        paying |= {(b, int(index)) for index in best}
    return paying - taken


def _excess(sets: Sets, reduced: Floats, items: Floats, board: float) -> float:
    """Possible gain of a GPU above the dual prices, by rounding or with an unlisted set."""
    return max(0.0, float(reduced.max()), sets.highest_unlisted(items) - float(board))


def column_of(sets: Sequence[Sets], b: int, index: int) -> Column:
    """The column of set `index` of board `b`, if the GPUs of every board are one group."""
    return Column(b, b, index, float(sets[b].value[index]), sets[b].counts[index])


@dataclass(frozen=True, eq=False)
class ChosenSets:
    """Numbers of GPUs per column."""

    number: Ints
    left_over: Ints
    """[item]"""
    bound: float
    """Bound on the best choice among these columns, minus the costs of tenants left out."""


def choose(
    columns: Sequence[Column], gpus: Ints, tenants: Ints, left: LeftOver, gap: float = WHOLE_GAP
) -> ChosenSets:
    """Return the best integer solution found; `gpus` is per group."""
    solved = _solve(columns, gpus, tenants, left, whole=True, gap=gap)
    number = np.rint(solved.values[: len(columns)]).astype(np.int64)
    left_over = np.rint(_by_item(solved, columns)).astype(np.int64)
    return ChosenSets(number, left_over, solved.value)


def _by_item(solved: _LinearSolution, columns: Sequence[Column]) -> Floats:
    total: Floats = solved.values[len(columns) :].reshape(-1, 2).sum(axis=1)
    return total


@dataclass(frozen=True, eq=False)
class _LinearSolution:
    values: Floats
    duals: Floats
    value: float


def _solve(
    columns: Sequence[Column],
    gpus: Ints,
    tenants: Ints,
    left: LeftOver,
    *,
    whole: bool,
    gap: float = WHOLE_GAP,
) -> _LinearSolution:
    solver = highspy.Highs()
    options: dict[str, bool | int | float | str] = {
        "output_flag": False,
        "threads": 1,
        "parallel": "off",
        "random_seed": 0,
        "mip_rel_gap": gap,
        "mip_max_nodes": WHOLE_NODES,
    }
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(_model(columns, gpus, tenants, left, whole=whole))
    solver.run()
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        status = solver.modelStatusToString(solver.getModelStatus())
        raise SolverError(f"HiGHS stopped with {status!r} while placing tenants; use fewer kinds")
    solution, info = solver.getSolution(), solver.getInfo()
    bound = info.mip_dual_bound if whole else info.objective_function_value
    return _LinearSolution(np.array(solution.col_value), np.array(solution.row_dual), float(bound))


def _model(
    columns: Sequence[Column], gpus: Ints, tenants: Ints, left: LeftOver, *, whole: bool
) -> highspy.HighsLp:
    """Columns of sets first, then two per item for tenants that are left out."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(columns) + 2 * len(tenants), len(tenants) + len(gpus)
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = np.array(
        [*(column.value for column in columns), *(-left.costs.ravel()).tolist()]
    )
    most = [float(gpus[column.group]) for column in columns]
    lp.col_lower_ = np.zeros(lp.num_col_)
    lp.col_upper_ = np.array([*most, *left.most.ravel().tolist()], np.float64)
    lp.row_lower_ = np.array([*tenants.tolist(), *(-highspy.kHighsInf for _ in gpus)], np.float64)
    lp.row_upper_ = np.array([*tenants.tolist(), *gpus.tolist()], np.float64)
    starts, rows, entries = _matrix(columns, len(tenants))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = starts, rows, entries
    if whole:
        lp.integrality_ = [highspy.HighsVarType.kInteger] * lp.num_col_
    return lp


def _matrix(
    columns: Sequence[Column], items: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
    starts, rows, entries = [0], [], []
    for column in columns:
        items_held = np.flatnonzero(column.counts)
        rows += [*items_held.tolist(), items + column.group]
        entries += [*column.counts[items_held].tolist(), 1.0]
        starts.append(len(rows))
    for item in range(items):
        for _ in range(2):
            rows.append(item)
            entries.append(1.0)
            starts.append(len(rows))
    return np.array(starts, np.int32), np.array(rows, np.int32), np.array(entries, np.float64)
