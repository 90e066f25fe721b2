"""A mixed-integer program whose rows carry the paper's names.

Built row by row because a reader should find each constraint where it is written; turned into
compressed rows once, because that is what a solver takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from migrator.planning.ilp.tables import FloatArray

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

ABSENT = -1
"""In an array of column numbers: this combination has no column."""


class Group(StrEnum):
    """The paper's labels (`constraint:...`, `objective:...`); every row belongs to one."""

    FEASIBILITY = "feasibility"
    INSTANCE_SHARING = "instance_sharing"
    RETRAIN_1_INSTANCE = "retrain_1_instance"
    RETRAIN_START = "retrain_start"
    RETRAIN_NO_INTERRUPTION = "retrain_no_interruption"
    RETRAIN_5 = "retrain_5"
    RETRAIN_END = "retrain_end"
    INFERENCE_STARVATION = "inference_starvation"
    RECONFIGURATION = "reconfiguration"
    THROUGHPUT = "throughput"
    GOODPUT = "goodput"
    FLOOR = "floor"
    """Not in the paper."""


@dataclass(frozen=True)
class IlpModel:
    """Maximise cost @ x over lower <= x <= upper, row_lower <= A x <= row_upper (A by rows)."""

    cost: FloatArray
    lower: FloatArray
    upper: FloatArray
    integer: BoolArray
    row_lower: FloatArray
    row_upper: FloatArray
    row_starts: IntArray
    entry_columns: IntArray
    entry_values: FloatArray
    row_groups: tuple[Group, ...]
    row_names: tuple[str, ...]

    @property
    def rows(self) -> int:
        """How many constraints."""
        return len(self.row_groups)

    @property
    def columns(self) -> int:
        """How many variables."""
        return len(self.cost)

    @cached_property
    def entry_rows(self) -> IntArray:
        """The row of every entry of the matrix."""
        return np.repeat(np.arange(self.rows), np.diff(self.row_starts))

    def rows_of(self, group: Group) -> tuple[str, ...]:
        """The names of a group's rows."""
        return tuple(
            name for name, its in zip(self.row_names, self.row_groups, strict=True) if its is group
        )

    def broken_row(self, values: FloatArray, tolerance: float = 1e-6) -> str | None:
        """The name of the row (or the column's number) that `values` breaks most, if any."""
        outside = np.maximum(self.lower - values, values - self.upper)
        if outside.max(initial=0.0) > tolerance:
            return f"column {int(outside.argmax())}"
        activity = np.bincount(
            self.entry_rows,
            weights=self.entry_values * values[self.entry_columns],
            minlength=self.rows,
        )
        broken = np.maximum(self.row_lower - activity, activity - self.row_upper)
        worst = float(broken.max(initial=0.0))
        scale = max(1.0, float(np.abs(values).max(initial=0.0)))
        return self.row_names[int(broken.argmax())] if worst > tolerance * scale else None


@dataclass
class ModelBuilder:
    """Collects columns and rows; `build` freezes them into an `IlpModel`."""

    _costs: list[float] = field(default_factory=list)
    _uppers: list[float] = field(default_factory=list)
    _lowers: list[float] = field(default_factory=list)
    _integers: list[bool] = field(default_factory=list)
    _row_lowers: list[float] = field(default_factory=list)
    _row_uppers: list[float] = field(default_factory=list)
    _row_lengths: list[int] = field(default_factory=list)
    _entry_columns: list[int] = field(default_factory=list)
    _entry_values: list[float] = field(default_factory=list)
    _groups: list[Group] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)

    def binary(self, cost: float = 0.0) -> int:
        """A new 0/1 column's number."""
        return self._column(cost, 0.0, 1.0, integer=True)

    def continuous(self, upper: float, cost: float = 0.0) -> int:
        """A new column of any value from 0 to `upper`."""
        return self._column(cost, 0.0, upper, integer=False)

    def constant(self, value: float, cost: float = 0.0) -> int:
        """A new column that can only be `value`."""
        return self._column(cost, value, value, integer=False)

    def _column(self, cost: float, lower: float, upper: float, *, integer: bool) -> int:
        self._costs.append(cost)
        self._lowers.append(lower)
        self._uppers.append(upper)
        self._integers.append(integer)
        return len(self._costs) - 1

    def equal(self, group: Group, key: Sequence[object], terms: Terms, value: float) -> None:
        """The row `terms` = `value`, named GROUP[key]."""
        self._row(group, key, terms, value, value)

    def at_most(self, group: Group, key: Sequence[object], terms: Terms, value: float) -> None:
        """The row `terms` <= `value`, named GROUP[key]."""
        self._row(group, key, terms, -np.inf, value)

    def _row(
        self, group: Group, key: Sequence[object], terms: Terms, lower: float, upper: float
    ) -> None:
        self._groups.append(group)
        self._names.append(f"{group}[{','.join(map(str, key))}]")
        self._row_lowers.append(lower)
        self._row_uppers.append(upper)
        self._row_lengths.append(len(terms.columns))
        self._entry_columns.extend(terms.columns)
        self._entry_values.extend(terms.values)

    def build(self) -> IlpModel:
        """The collected program."""
        return IlpModel(
            cost=np.array(self._costs, dtype=np.float64),
            lower=np.array(self._lowers, dtype=np.float64),
            upper=np.array(self._uppers, dtype=np.float64),
            integer=np.array(self._integers, dtype=np.bool_),
            row_lower=np.array(self._row_lowers, dtype=np.float64),
            row_upper=np.array(self._row_uppers, dtype=np.float64),
            row_starts=np.concatenate([[0], np.cumsum(self._row_lengths, dtype=np.int64)]),
            entry_columns=np.array(self._entry_columns, dtype=np.int64),
            entry_values=np.array(self._entry_values, dtype=np.float64),
            row_groups=tuple(self._groups),
            row_names=tuple(self._names),
        )


@dataclass
class Terms:
    """A linear expression: columns with their factors; absent columns are left out."""

    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, columns: int | Iterable[int] | IntArray, factor: float = 1.0) -> Terms:
        """Itself with `factor` times each of `columns` added."""
        for column in _ints(columns):
            if column != ABSENT:
                self.columns.append(column)
                self.values.append(factor)
        return self


def _ints(columns: int | Iterable[int] | IntArray) -> Iterable[int]:
    if isinstance(columns, int | np.integer):
        return (int(columns),)
    if isinstance(columns, np.ndarray):
        return [int(column) for column in columns.ravel()]
    return columns


def value_of(values: FloatArray, columns: IntArray) -> FloatArray:
    """The values of columns, 0 for the absent ones."""
    chosen: FloatArray = np.where(columns == ABSENT, 0.0, values[columns])
    return chosen
