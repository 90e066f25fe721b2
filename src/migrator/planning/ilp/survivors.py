"""The ILP under the `survivors` charge: inference, its reconfiguration and its throughput.

Charge `survivors`: an instance new to its tenant is cold for the overhead. An instance's identity
is its placement and its tenant, so the holder is decided on the slices: held[m,s,i] = 1 when tenant
m's inference holds placement i in slot s. An instance that its tenant (inference or retraining) has
held for g slots before serves the share clip(g + 1 - o, 0, 1) of its capability, o = overhead in
slots. Only the ages floor(o) and floor(o) + 1 matter: warm[m,s,i] of such an age is bounded by
having held i all that time. Those bounds have one +1 and one -1 each, so by themselves they relax
exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from migrator.core.catalogue import Placement
from migrator.core.problem import Allocation, Kind, Plan, Retraining, Task
from migrator.planning.ilp.constraints import (
    RetrainingColumns,
    add_choice,
    add_instance_sharing,
    add_patterns,
    add_retraining,
    pattern_number,
    read_retrainings,
    size_terms,
    stage_of,
    write_retrainings,
)
from migrator.planning.ilp.layout import Holding, allocation_of, holdings_of
from migrator.planning.ilp.model import ABSENT, Group, IlpModel, IntArray, ModelBuilder, Terms
from migrator.planning.ilp.tables import (
    POST,
    FloatArray,
    Tables,
    TenantTable,
    expected_throughput,
    pieces,
)

_NEGLIGIBLE = 1e-9
"""Shares below this are the rounding of overhead / slot length, and below HiGHS's notice."""


@dataclass(frozen=True)
class TenantColumns:
    """One tenant's columns."""

    pattern: IntArray
    """[slot, pattern, stage]."""
    held: IntArray
    """[slot, placement]."""
    warm: dict[int, IntArray]
    """Age in slots -> [slot, placement]: held now by inference, and for that long before."""
    served: IntArray
    """[slot, stage] throughput."""
    short: IntArray
    """[slot] requests short of the floor."""


@dataclass(frozen=True)
class SurvivorsIlp:
    """The model and where its columns are; reads plans from solutions and the reverse."""

    tables: Tables
    model: IlpModel
    retraining: RetrainingColumns
    tenants: tuple[TenantColumns, ...]

    def read(self, values: FloatArray) -> tuple[tuple[Retraining, ...], tuple[Allocation, ...]]:
        """The plan of a solution, which names the placements itself."""
        retrainings, where = read_retrainings(self.retraining, values)
        holdings: list[Holding] = [{} for _ in range(self.tables.problem.slots)]
        for (m, s), i in where.items():
            task = Task(self.tables.tenants[m].tenant.name, Kind.RETRAINING)
            holdings[s][self.tables.placements[i]] = task
        for table, columns in zip(self.tables.tenants, self.tenants, strict=True):
            task = Task(table.tenant.name, Kind.INFERENCE)
            chosen = (columns.held != ABSENT) & (values[columns.held] > 0.5)
            for s, i in zip(*np.nonzero(chosen), strict=True):
                holdings[s][self.tables.placements[i]] = task
        return retrainings, tuple(allocation_of(holding) for holding in holdings)

    def write(self, plan: Plan) -> FloatArray:
        """The solution that a plan is."""
        values = np.zeros(self.model.columns)
        write_retrainings(self.retraining, plan, values)
        holdings = holdings_of(self.tables.problem, plan)
        for m, table in enumerate(self.tables.tenants):
            ages = _ages(self.tables, table, holdings)
            for s, holding in enumerate(holdings):
                stage = stage_of(table, self.retraining.completion[m], values, s)
                self._write_slot(values, m, s, stage, holding, ages[s])
        return values

    def _write_slot(
        self,
        values: FloatArray,
        m: int,
        s: int,
        stage: int,
        holding: Holding,
        ages: dict[Placement, float],
    ) -> None:
        table, columns = self.tables.tenants[m], self.tenants[m]
        values[columns.pattern[s, pattern_number(table, holding), stage]] = 1.0
        capability = 0.0
        for i, where in enumerate(self.tables.placements):
            if holding.get(where) != Task(table.tenant.name, Kind.INFERENCE):
                continue
            values[columns.held[s, i]] = 1.0
            for age, share in _shares(self.tables, table).items():
                if ages[where] >= age:
                    values[columns.warm[age][s, i]] = 1.0
                    capability += share * table.tenant.capability[where.gpcs]
        received = np.array(table.tenant.received)[:, s : s + 1]
        served = expected_throughput(received, np.array(capability))[0]
        values[columns.served[s, stage]] = served
        if columns.short[s] != ABSENT:
            values[columns.short[s]] = max(0.0, table.enough(s) - served)


def build_survivors(tables: Tables) -> SurvivorsIlp:
    """The whole model."""
    builder = ModelBuilder()
    retraining = add_retraining(builder, tables)
    tenants: list[TenantColumns] = []
    for m, table in enumerate(tables.tenants):
        columns = _add_columns(builder, tables, table)
        add_choice(builder, table, [columns.pattern], retraining.completion[m])
        _add_survivors_feasibility(builder, tables, table, columns)
        _add_survivors_reconfiguration(builder, tables, table, columns, retraining.running[m])
        _add_throughput(builder, tables, table, columns)
        tenants.append(columns)
    add_instance_sharing(builder, retraining, [tenant.held for tenant in tenants])
    return SurvivorsIlp(tables, builder.build(), retraining, tuple(tenants))


def _shares(tables: Tables, table: TenantTable) -> dict[int, float]:
    """Age in slots -> the share of its capability an instance gains on reaching it."""
    overhead = table.tenant.overhead_s / tables.problem.slot_s
    age = int(overhead)
    part = overhead - age
    gains = {age: 1.0 - part, age + 1: part}
    return {at: share for at, share in gains.items() if share > _NEGLIGIBLE}


def _add_columns(builder: ModelBuilder, tables: Tables, table: TenantTable) -> TenantColumns:
    shape = (tables.problem.slots, len(tables.placements))
    held = np.full(shape, ABSENT)
    warm = {age: np.full(shape, ABSENT) for age in _shares(tables, table)}
    served = np.full((shape[0], max(2, len(table.accuracy))), ABSENT)
    short = np.full(shape[0], ABSENT)
    for s in range(shape[0]):
        for i in tables.of_sizes(table.serving):
            held[s, i] = builder.binary()
            for age, columns in warm.items():
                if s >= age or i in table.warm:
                    columns[s, i] = builder.continuous(1.0)
        most = float(table.kept[s].max(initial=0.0))
        for c in table.stages(s):
            served[s, c] = builder.continuous(most, table.accuracy[c])
        if table.enough(s) > 0:
            short[s] = builder.continuous(table.enough(s), -table.penalty)
    worthless = np.zeros_like(table.kept)
    everywhere = np.ones(table.kept.shape, dtype=np.bool_)
    patterns = add_patterns(builder, table, worthless, everywhere, worthless)
    return TenantColumns(patterns, held, warm, served, short)


def _add_survivors_feasibility(
    builder: ModelBuilder, tables: Tables, table: TenantTable, columns: TenantColumns
) -> None:
    """The tenant holds as many placements of each size as its pattern says."""
    for s in range(tables.problem.slots):
        for size in sorted(table.serving):
            terms = Terms().add(columns.held[s, tables.of_sizes([size])], -1.0)
            size_terms(terms, table, [columns.pattern], s, size)
            key = [table.tenant.name, s, f"{size}g"]
            builder.equal(Group.FEASIBILITY, key, terms, 0.0)


def _add_survivors_reconfiguration(
    builder: ModelBuilder,
    tables: Tables,
    table: TenantTable,
    columns: TenantColumns,
    running: IntArray,
) -> None:
    """Warm at an age only where inference holds it now and the tenant held it all the time."""
    for age, warm in columns.warm.items():
        for s, i in zip(*np.nonzero(warm != ABSENT), strict=True):
            where = tables.placements[i]
            for back in range(min(age, int(s)) + 1):
                terms = Terms().add(warm[s, i]).add(columns.held[s - back, i], -1.0)
                if back:
                    terms.add(running[s - back, :, i], -1.0)
                key = [table.tenant.name, s, f"{where.gpcs}g@{where.start}", age, back]
                builder.at_most(Group.RECONFIGURATION, key, terms, 0.0)


def _add_throughput(
    builder: ModelBuilder, tables: Tables, table: TenantTable, columns: TenantColumns
) -> None:
    """Served <= E[min(received, warm capability)] by its linear pieces, and <= the pattern's.

    The second is implied for whole numbers; it is what makes the relaxation tight, and ties
    each stage's part to Completion.
    """
    received = np.array(table.tenant.received, dtype=np.float64)
    most = max((sum(table.tenant.capability[k] for k in p) for p in table.patterns), default=0.0)
    for s in range(tables.problem.slots):
        key = [table.tenant.name, s]
        for slope, intercept in pieces(received[:, s], most):
            terms = Terms().add(columns.served[s])
            for age, share in _shares(tables, table).items():
                for i in tables.of_sizes(table.serving):
                    gain = share * table.tenant.capability[tables.placements[i].gpcs]
                    terms.add(columns.warm[age][s, i], -slope * gain)
            builder.at_most(Group.THROUGHPUT, [*key, f"slope {slope:.3g}"], terms, intercept)
        if columns.short[s] != ABSENT:
            terms = Terms().add(columns.short[s], -1.0).add(columns.served[s], -1.0)
            builder.at_most(Group.FLOOR, key, terms, -table.enough(s))
        for c in table.stages(s):
            terms = Terms().add(columns.served[s, c])
            for p, worth in enumerate(table.kept[s]):
                terms.add(columns.pattern[s, p, c], -float(worth))
            stage = f"post {c}" if c > POST else "post" if c else "pre"
            builder.at_most(Group.THROUGHPUT, [*key, stage], terms, 0.0)


def _ages(
    tables: Tables, table: TenantTable, holdings: list[Holding]
) -> list[dict[Placement, float]]:
    """For every slot and placement the tenant holds: for how many slots before it held it."""
    warm = {tables.placements[i] for i in table.warm}
    ages: list[dict[Placement, float]] = []
    before: dict[Placement, float] = dict.fromkeys(warm, np.inf)
    for holding in holdings:
        mine = [where for where, task in holding.items() if task.tenant == table.tenant.name]
        now = {where: before.get(where, -1.0) + 1.0 for where in mine}
        ages.append(now)
        before = now
    return ages
