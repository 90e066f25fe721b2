"""The sets of tenants that one GPU can hold, and the choice of the sets that the GPUs do hold.

A set is a number of units per item. Sets that break a rule (minimum instances do not fit together,
tenants that must be apart, a kind that the board cannot serve) are not listed. The upper bound on a
set's goodput comes from prices until the planner has computed that goodput.

The choice is a linear program with column generation, then an integer program. Rows: every unit of
an item is placed once or left out (which costs more than any goodput, most if it is currently
served), and no more GPUs are used than exist. Columns: sets, of which only those with positive
reduced cost are passed to the solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import highspy
import numpy as np
from numpy.typing import NDArray

from migrator.cluster.placement.prices import Floats, Ints, Worth
from migrator.core.errors import SolverError
from migrator.plan.exact.tables import IMPOSSIBLE

MOST_SETS = 120_000
"""Limit per board; larger sets are not listed, and the bound accounts for them."""
MOST_NUMBERS = 24_000_000
"""Limit of sets x items per board."""

Bools = NDArray[np.bool_]
PRICED_AT_ONCE = 60
WHOLE_NODES = 400
WHOLE_GAP = 1e-4


@dataclass(frozen=True, eq=False)
class SetLimits:
    """The constraints on sets of one board."""

    needs: Ints
    """[item, size]: instances of at least that size that a unit always needs."""
    room: Floats
    """[configuration, size]: instances of at least that size."""
    apart: Ints
    """[item, rule]: 1 if a unit has a tenant of the rule."""
    able: Bools
    """[item]: whether the board can serve it."""
    available: Ints
    """[item]: number of units."""

    @cached_property
    def rivals(self) -> Bools:
        """[item, item]: whether units of both must not share a GPU."""
        rules = self.apart.astype(np.float64)
        return np.asarray(rules @ rules.T > 0)

    def takes(self, counts: Ints, needed: Ints, item: int) -> Bools:
        """[set]: whether a set, with its minimum instances `needed`, has room for one more unit."""
        fits = counts[:, item] < self.available[item]
        fits &= ~counts[:, np.flatnonzero(self.rivals[item])].any(axis=1)
        return np.asarray(fits & self.able[item] & _fits(needed + self.needs[item], self.room))

    def allow(self, counts: Ints) -> bool:
        """Whether a set satisfies all constraints."""
        held = np.flatnonzero(counts)
        return bool(
            (counts <= self.available).all()
            and self.able[held].all()
            and (counts @ self.apart <= 1).all()
            and _fits((counts @ self.needs)[None, :], self.room)[0]
        )


@dataclass(eq=False)
class Sets:
    """The sets of one board; the first one is empty, with value 0."""

    counts: Ints
    """[set, item]"""
    value: Floats
    """[set]: an upper bound, or the planner's goodput where `exact`."""
    exact: Bools
    largest: int
    """All sets of up to this many units are listed."""
    most: int
    """The largest number of units that fit."""
    limits: SetLimits
    pool: list[tuple[Floats, float]] = field(default_factory=list)
    """Prices found so far: [item] values and the rent."""
    _index: dict[bytes, int] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether every set that fits is listed."""
        return self.largest >= self.most

    def lower(self, values: Floats, rent: float) -> None:
        """Lower the bounds by new prices: no set exceeds its items' values plus the rent."""
        self.pool.append((values, rent))
        bound = np.maximum(self.counts @ np.maximum(values, IMPOSSIBLE) + rent, 0.0)
        bound[0] = 0.0
        self.value = np.where(self.exact, self.value, np.minimum(self.value, bound))

    def settle(self, alike: Bools, goodput: float) -> None:
        """Record the planner's goodput for these equivalent sets."""
        self.value[alike], self.exact[alike] = goodput, True

    def find(self, counts: Ints) -> int | None:
        if not self._index:
            self._index = {_key(row): i for i, row in enumerate(self.counts)}
        return self._index.get(_key(counts))

    def add(self, rows: Sequence[Ints]) -> list[int | None]:
        """Add missing sets and return all indices; None for a set that breaks a rule."""
        new = {_key(row): row for row in rows if self.find(row) is None and self.limits.allow(row)}
        if new:
            counts = np.array(list(new.values()), np.int64)
            self._index |= {key: len(self.counts) + at for at, key in enumerate(new)}
            self.counts = np.concatenate([self.counts, counts])
            self.value = np.append(self.value, self._bounds(counts))
            self.exact = np.append(self.exact, np.zeros(len(new), np.bool_))
        return [self.find(row) for row in rows]

    def _bounds(self, counts: Ints) -> Floats:
        """[set]: upper bounds by all prices found so far."""
        found = np.full(len(counts), np.inf)
        for values, rent in self.pool:
            found = np.minimum(found, counts @ np.maximum(values, IMPOSSIBLE) + rent)
        return np.asarray(np.maximum(found, 0.0))

    def beyond(self, prices: Floats) -> float:
        """The highest reduced value that a set which is not listed could have."""
        if self.whole:
            return -np.inf
        found = np.inf
        for values, rent in self.pool:
            each = float((np.maximum(values, IMPOSSIBLE) - prices).max())
            units = self.most if each > 0 else self.largest + 1
            found = min(found, rent + units * each)
        return found


def list_sets(
    worth: Worth, members: Ints, apart: Ints, available: Ints, most_sets: int = MOST_SETS
) -> Sets:
    """List sets by size; `members` [item, kind], `apart` [item, rule], `available` [item]."""
    limits = SetLimits(
        needs=members @ worth.needs,
        room=worth.offered[:, ::-1].cumsum(axis=1)[:, ::-1],
        apart=apart,
        able=(members @ ~worth.able) == 0,
        available=available,
    )
    left = min(most_sets, MOST_NUMBERS // len(members)) - 1
    layer: tuple[Ints, Ints] = np.zeros((1, len(members)), np.int64), np.zeros(1, np.int64)
    layers, most = [layer[0]], int(worth.offered.sum(axis=1).max())
    largest = most
    while len(layer[0]):
        # sets of one unit are always listed: otherwise tenants would seem to have no room
        larger = _grown(*layer, limits, left if len(layers) > 1 else len(members))
        if larger is None:
            largest = len(layers) - 1
            break
        layer = larger
        layers.append(layer[0])
        left -= len(layer[0])
    counts = np.concatenate(layers)
    return Sets(
        counts=counts,
        value=np.where(counts.any(axis=1), np.inf, 0.0),
        exact=np.logical_not(counts.any(axis=1)),
        largest=largest,
        most=most,
        limits=limits,
    )


def _grown(layer: Ints, last: Ints, limits: SetLimits, most: int) -> tuple[Ints, Ints] | None:
    """All sets with one more unit, each generated once: items are added in ascending order.

    None if there are more than `most`.
    """
    needed = layer @ limits.needs
    grown, at = [layer[:0]], [last[:0]]
    for item in np.flatnonzero(limits.able).tolist():
        larger = layer[limits.takes(layer, needed, item) & (last <= item)]
        larger[:, item] += 1
        grown.append(larger)
        at.append(np.full(len(larger), item))
        most -= len(larger)
        if most < 0:
            return None
    return np.concatenate(grown), np.concatenate(at)


def _key(counts: Ints) -> bytes:
    return np.ascontiguousarray(counts, np.int64).tobytes()


def _fits(needs: Ints, room: Floats) -> Bools:
    """[set]: whether some configuration has enough instances of at least every size."""
    fits = np.zeros(len(needs), np.bool_)
    for each in room:
        fits |= (needs <= each).all(axis=1)
    return fits


@dataclass(frozen=True, eq=False)
class LeftOver:
    """Costs of leaving units out: [item, 0] not currently served, [item, 1] currently served."""

    costs: Floats
    """Per unit."""
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
    """Upper bound on the goodput of any placement of these units on these GPUs."""
    goodput: float
    """Goodput of the fractional placement."""
    item_prices: Floats
    gpu_prices: Floats
    used: tuple[tuple[int, int], ...]
    """(board, set) pairs with a positive number of GPUs."""
    reduced: tuple[Floats, ...]
    """Per board: the reduced cost of each set, at most 0."""
    left_over: Floats
    """[item]"""


def relax(sets: Sequence[Sets], gpus: Ints, units: Ints, left: LeftOver) -> Relaxed:
    """Solve the linear program over all listed sets by column generation."""
    taken: set[tuple[int, int]] = {(b, 0) for b in range(len(sets))}
    while True:
        keys = sorted(taken)
        columns = [column_of(sets, b, index) for b, index in keys]
        solved = _solve(columns, gpus, units, left, whole=False)
        items, boards = solved.duals[: len(units)], solved.duals[len(units) :]
        reduced = tuple(each.value - each.counts @ items - boards[b] for b, each in enumerate(sets))
        more = _paying(reduced, taken, 1e-7 * max(1.0, abs(solved.value)))
        if not more:
            break
        taken |= more
    over = [_excess(each, reduced[b], items, boards[b]) for b, each in enumerate(sets)]
    share = solved.values[: len(columns)]
    chosen = share > 1e-7
    return Relaxed(
        bound=float(items @ units + boards @ gpus + np.array(over) @ gpus),
        goodput=float(share @ np.array([each.value for each in columns])),
        item_prices=items,
        gpu_prices=boards,
        used=tuple(key for key, use in zip(keys, chosen, strict=True) if use),
        reduced=reduced,
        left_over=_by_item(solved, columns),
    )


def dual_prices(
    columns: Sequence[Column], gpus: Ints, units: Ints, left: LeftOver
) -> tuple[Floats, Floats]:
    """Dual prices of a unit of each item and of a GPU of each group."""
    duals = _solve(columns, gpus, units, left, whole=False).duals
    return duals[: len(units)], duals[len(units) :]


def _paying(
    reduced: Sequence[Floats], taken: set[tuple[int, int]], least: float
) -> set[tuple[int, int]]:
    found = set()
    for b, each in enumerate(reduced):
        pays = np.flatnonzero(each > least)
        best = pays[np.argsort(-each[pays], kind="stable")[:PRICED_AT_ONCE]]
        found |= {(b, int(index)) for index in best}
    return found - taken


def _excess(sets: Sets, reduced: Floats, items: Floats, board: float) -> float:
    """Possible gain of a GPU above the dual prices, by rounding or with an unlisted set."""
    return max(0.0, float(reduced.max()), sets.beyond(items) - float(board))


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
    """Bound on the best choice among these columns, minus the costs of units left out."""


def choose(
    columns: Sequence[Column], gpus: Ints, units: Ints, left: LeftOver, gap: float = WHOLE_GAP
) -> ChosenSets:
    """Return the best integer solution found; `gpus` is per group."""
    solved = _solve(columns, gpus, units, left, whole=True, gap=gap)
    number = np.rint(solved.values[: len(columns)]).astype(np.int64)
    left_over = np.rint(_by_item(solved, columns)).astype(np.int64)
    return ChosenSets(number, left_over, solved.value)


def _by_item(solved: _Solved, columns: Sequence[Column]) -> Floats:
    total: Floats = solved.values[len(columns) :].reshape(-1, 2).sum(axis=1)
    return total


@dataclass(frozen=True, eq=False)
class _Solved:
    values: Floats
    duals: Floats
    value: float


def _solve(
    columns: Sequence[Column],
    gpus: Ints,
    units: Ints,
    left: LeftOver,
    *,
    whole: bool,
    gap: float = WHOLE_GAP,
) -> _Solved:
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
    solver.passModel(_model(columns, gpus, units, left, whole=whole))
    solver.run()
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        status = solver.modelStatusToString(solver.getModelStatus())
        raise SolverError(f"HiGHS stopped with {status!r} while placing tenants; use fewer kinds")
    solution, info = solver.getSolution(), solver.getInfo()
    bound = info.mip_dual_bound if whole else info.objective_function_value
    return _Solved(np.array(solution.col_value), np.array(solution.row_dual), float(bound))


def _model(
    columns: Sequence[Column], gpus: Ints, units: Ints, left: LeftOver, *, whole: bool
) -> highspy.HighsLp:
    """Columns of sets first, then two per item for units that are left out."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(columns) + 2 * len(units), len(units) + len(gpus)
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = np.array([*(each.value for each in columns), *(-left.costs.ravel()).tolist()])
    most = [float(gpus[each.group]) for each in columns]
    lp.col_lower_ = np.zeros(lp.num_col_)
    lp.col_upper_ = np.array([*most, *left.most.ravel().tolist()], np.float64)
    lp.row_lower_ = np.array([*units.tolist(), *(-highspy.kHighsInf for _ in gpus)], np.float64)
    lp.row_upper_ = np.array([*units.tolist(), *gpus.tolist()], np.float64)
    starts, rows, entries = _matrix(columns, len(units))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = starts, rows, entries
    if whole:
        lp.integrality_ = [highspy.HighsVarType.kInteger] * lp.num_col_
    return lp


def _matrix(
    columns: Sequence[Column], items: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
    starts, rows, entries = [0], [], []
    for each in columns:
        held = np.flatnonzero(each.counts)
        rows += [*held.tolist(), items + each.group]
        entries += [*each.counts[held].tolist(), 1.0]
        starts.append(len(rows))
    for item in range(items):
        for _ in range(2):
            rows.append(item)
            entries.append(1.0)
            starts.append(len(rows))
    return np.array(starts, np.int32), np.array(rows, np.int32), np.array(entries, np.float64)
