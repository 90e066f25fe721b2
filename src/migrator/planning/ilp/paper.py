"""The ILP under the `paper` charge: inference and its reconfiguration.

Charge `paper`: a changed multiset costs overhead x mean instance capability. Inference of tenant m
in slot s is one binary per pattern p and stage c (before or after its completed retraining), and
whether p was held in the slot before: keep[m,s,p,c] or change[m,s,p,c]. For one tenant alone these
rows are a network (stay in a pattern, or pass through "change"), so their relaxation is exact; what
remains hard is sharing the slices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
from migrator.planning.ilp.layout import (
    Demand,
    Holding,
    allocation_of,
    holding_before,
    holdings_of,
    lay_out,
)
from migrator.planning.ilp.model import (
    ABSENT,
    BoolArray,
    Group,
    IlpModel,
    IntArray,
    ModelBuilder,
    Terms,
    value_of,
)
from migrator.planning.ilp.tables import PRE, FloatArray, Tables, TenantTable


@dataclass(frozen=True)
class PaperIlp:
    """The model and where its columns are; reads plans from solutions and the reverse."""

    tables: Tables
    model: IlpModel
    retraining: RetrainingColumns
    keep: tuple[IntArray, ...]
    change: tuple[IntArray, ...]
    """Per tenant [slot, pattern, stage]."""
    placed: IntArray
    """q[slot, placement]: inference instances there."""

    def read(self, values: FloatArray) -> tuple[tuple[Retraining, ...], tuple[Allocation, ...]]:
        """The plan of a solution: patterns laid on slices around the retrainings."""
        retrainings, where = read_retrainings(self.retraining, values)
        holding = holding_before(self.tables.problem)
        allocations: list[Allocation] = []
        for s in range(self.tables.problem.slots):
            demand = self._demand(values, where, s)
            holding = lay_out(self.tables.problem.board, demand, holding)
            allocations.append(allocation_of(holding))
        return retrainings, tuple(allocations)

    def _demand(self, values: FloatArray, where: dict[tuple[int, int], int], s: int) -> Demand:
        demand = Demand({}, {})
        for m, table in enumerate(self.tables.tenants):
            chosen = value_of(values, self.keep[m][s]) + value_of(values, self.change[m][s])
            pattern = table.patterns[int(chosen.sum(axis=1).argmax())]
            demand.inference[Task(table.tenant.name, Kind.INFERENCE)] = pattern
            if (m, s) in where:
                task = Task(table.tenant.name, Kind.RETRAINING)
                demand.retraining[task] = self.tables.placements[where[m, s]]
        return demand

    def write(self, plan: Plan) -> FloatArray:
        """The solution that a plan is."""
        values = np.zeros(self.model.columns)
        write_retrainings(self.retraining, plan, values)
        holdings = holdings_of(self.tables.problem, plan)
        for m, table in enumerate(self.tables.tenants):
            self._write_patterns(values, m, table, holdings)
        for s, holding in enumerate(holdings):
            for i, where in enumerate(self.tables.placements):
                if where in holding and holding[where].kind is Kind.INFERENCE:
                    values[self.placed[s, i]] = 1.0
        return values

    def _write_patterns(
        self, values: FloatArray, m: int, table: TenantTable, holdings: list[Holding]
    ) -> None:
        before = -1
        for s, holding in enumerate(holdings):
            p = pattern_number(table, holding)
            c = stage_of(table, self.retraining.completion[m], values, s)
            free = p == before if s else self.keep[m][0, p, c] != ABSENT
            values[(self.keep if free else self.change)[m][s, p, c]] = 1.0
            before = p


def build_paper(tables: Tables) -> PaperIlp:
    """The whole model."""
    builder = ModelBuilder()
    retraining = add_retraining(builder, tables)
    keep: list[IntArray] = []
    change: list[IntArray] = []
    for m, table in enumerate(tables.tenants):
        can_keep, can_change = _allowed(tables, table)
        keep.append(_add_worth(builder, table, table.kept, can_keep))
        change.append(_add_worth(builder, table, table.changed, can_change))
        add_choice(builder, table, (keep[m], change[m]), retraining.completion[m])
        _add_paper_reconfiguration(builder, table, keep[m], change[m])
    placed = _add_paper_feasibility(builder, tables, keep, change)
    add_instance_sharing(builder, retraining, [placed])
    return PaperIlp(tables, builder.build(), retraining, tuple(keep), tuple(change), placed)


def _add_worth(
    builder: ModelBuilder, table: TenantTable, served: FloatArray, allowed: BoolArray
) -> IntArray:
    """Pattern columns that are worth their goodput, less the penalty of the floor."""
    enough = np.array([[table.enough(s)] for s in range(len(served))])
    short = np.maximum(enough - np.maximum(served, 0.0), 0.0)
    return add_patterns(builder, table, served, allowed, table.penalty * short)


def _allowed(tables: Tables, table: TenantTable) -> tuple[BoolArray, BoolArray]:
    """Where [slot, pattern] keeping and changing exist: in slot 0 it is known which of them."""
    keep = np.ones(table.kept.shape, dtype=np.bool_)
    change = keep.copy()
    if tables.problem.initial is not None:
        keep[0] = [pattern == table.before for pattern in table.patterns]
    change[0] = ~keep[0]
    return keep, change


def _add_paper_reconfiguration(
    builder: ModelBuilder, table: TenantTable, keep: IntArray, change: IntArray
) -> None:
    """Keep only what was held: so anything else is a change, and is charged.

    The second row is implied for whole numbers (a tenant that has not completed
    had not completed before); without it the relaxation carries patterns from one stage into
    the other.
    """
    for s in range(1, len(keep)):
        for p, pattern in enumerate(table.patterns):
            key = [table.tenant.name, s, "+".join(map(str, pattern))]
            terms = Terms().add(keep[s, p]).add(keep[s - 1, p], -1.0).add(change[s - 1, p], -1.0)
            builder.at_most(Group.RECONFIGURATION, key, terms, 0.0)
            if len(table.stages(s)) > 1:
                terms = Terms().add(keep[s, p, PRE])
                terms.add(keep[s - 1, p, PRE], -1.0).add(change[s - 1, p, PRE], -1.0)
                builder.at_most(Group.RECONFIGURATION, [*key, "pre"], terms, 0.0)


def _add_paper_feasibility(
    builder: ModelBuilder, tables: Tables, keep: list[IntArray], change: list[IntArray]
) -> IntArray:
    """As many placed instances of each size as the chosen patterns hold; q's columns.

    q needs no integrality: for whole numbers of instances and whole retrainings, the rows on
    q have a solution only if they have a whole one (tested for every board and every set of
    taken slices).
    """
    placed = np.full((tables.problem.slots, len(tables.placements)), ABSENT)
    sizes = sorted({size for table in tables.tenants for size in table.serving})
    for s in range(tables.problem.slots):
        for size in sizes:
            terms = Terms()
            for i in tables.of_sizes([size]):
                placed[s, i] = builder.continuous(1.0)
                terms.add(placed[s, i], -1.0)
            for m, table in enumerate(tables.tenants):
                size_terms(terms, table, (keep[m], change[m]), s, size)
            builder.equal(Group.FEASIBILITY, [s, f"{size}g"], terms, 0.0)
    return placed
