"""The rows that both charges share: retraining, patterns, sharing of slices.

Retraining has one family of decisions: y[m,t,c,i] = 1 when tenant m starts retraining at slot t in
configuration c on placement i. The paper has one configuration. Everything it derives from y with
products and a variable index is linear in y:

    running[m,s,c,i]  = sum of y[m,t,c,i] over t <= s < t + RT    (its C and its X of (m,r))
    Completion[m,c,s] = sum of y[m,t,c,i] over t + RT <= s, all i

Both are written as recurrences over the slots, which keeps the rows short. Starts that would not
end inside the window have no column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from migrator.core.catalogue import Multiset
from migrator.core.errors import PlanError
from migrator.core.problem import Kind, Plan, Retraining, Task
from migrator.planning.ilp.layout import Holding, pattern_of
from migrator.planning.ilp.model import ABSENT, BoolArray, Group, IntArray, ModelBuilder, Terms
from migrator.planning.ilp.tables import POST, FloatArray, Tables, TenantTable


@dataclass(frozen=True)
class RetrainingColumns:
    """Column numbers; ABSENT where there is none."""

    tables: Tables
    start: IntArray
    """y[tenant, slot, configuration, placement]."""
    running: IntArray
    """[tenant, slot, configuration, placement]; constant for a retraining that runs already."""
    completion: IntArray
    """[tenant, configuration, slot]; one slot more than the window: its last entry is the window's
    end."""


def add_retraining(builder: ModelBuilder, tables: Tables) -> RetrainingColumns:
    """Columns and rows of every tenant's retraining."""
    configurations = max(1, *(len(table.choices) for table in tables.tenants))
    tenants, slots = len(tables.tenants), tables.problem.slots
    shape = (tenants, slots, configurations, len(tables.placements))
    columns = RetrainingColumns(
        tables,
        np.full(shape, ABSENT),
        np.full(shape, ABSENT),
        np.full((tenants, configurations, slots + 1), ABSENT),
    )
    for m, table in enumerate(tables.tenants):
        if table.running is not None:
            last = min(table.running.slots_left, tables.problem.slots)
            for s in range(last):
                columns.running[m, s, 0, table.running.placement] = builder.constant(1.0)
            later = table.later_goodput(table.choices[0])
            columns.completion[m, 0, -1] = builder.constant(1.0, later)
        elif tables.problem.may_retrain(table.tenant):
            _add_columns(builder, columns, m, table)
            _add_rows(builder, columns, m, table)
    return columns


def _add_columns(
    builder: ModelBuilder, columns: RetrainingColumns, m: int, table: TenantTable
) -> None:
    slots = columns.tables.problem.slots
    for (c, i), duration in table.durations.items():
        for s in range(slots):
            columns.running[m, s, c, i] = builder.continuous(1.0)
            if s + duration <= slots:
                columns.start[m, s, c, i] = builder.binary()
    for c, choice in enumerate(table.choices):
        for s in range(slots + 1):
            later = table.later_goodput(choice) if s == slots else 0.0
            columns.completion[m, c, s] = builder.continuous(1.0, later)


def _add_rows(
    builder: ModelBuilder, columns: RetrainingColumns, m: int, table: TenantTable
) -> None:
    name, slots = table.tenant.name, columns.tables.problem.slots
    start, running, completion = columns.start[m], columns.running[m], columns.completion[m]
    builder.at_most(Group.RETRAIN_START, [name], Terms().add(start), 1.0)
    if not table.tenant.retraining_optional:
        builder.equal(Group.RETRAIN_5, [name], Terms().add(completion[:, slots]), 1.0)
    for s in range(slots):
        builder.at_most(Group.RETRAIN_1_INSTANCE, [name, s], Terms().add(running[s]), 1.0)
        for (c, i), duration in table.durations.items():
            terms = Terms().add(running[s, c, i]).add(start[s, c, i], -1.0)
            if s > 0:
                terms.add(running[s - 1, c, i], -1.0)
            if s >= duration:
                terms.add(start[s - duration, c, i])
            where = columns.tables.placements[i]
            key = [name, s, f"{where.gpcs}g@{where.start}", *_named(table, c)]
            builder.equal(Group.RETRAIN_NO_INTERRUPTION, key, terms, 0.0)
    for c in range(len(table.choices)):
        for s in range(slots + 1):
            terms = Terms().add(completion[c, s])
            if s > 0:
                terms.add(completion[c, s - 1], -1.0)
            for (other, i), duration in table.durations.items():
                if other == c and s >= duration:
                    terms.add(start[s - duration, c, i], -1.0)
            builder.equal(Group.RETRAIN_END, [name, s, *_named(table, c)], terms, 0.0)


def _named(table: TenantTable, c: int) -> list[str]:
    """The name of a configuration, for the names of rows; nothing if there is only one."""
    return [table.choices[c].name] if len(table.choices) > 1 else []


def read_retrainings(
    columns: RetrainingColumns, values: FloatArray
) -> tuple[tuple[Retraining, ...], dict[tuple[int, int], int]]:
    """The retrainings of a solution, and (tenant, slot) -> the placement one runs on."""
    retrainings: list[Retraining] = []
    where: dict[tuple[int, int], int] = {}
    for m, table in enumerate(columns.tables.tenants):
        if table.running is not None:
            begin, c, i, end = 0, 0, table.running.placement, table.running.slots_left
        elif table.durations:
            present = columns.start[m] != ABSENT
            chosen = np.where(present, values[columns.start[m]], 0.0)
            if table.tenant.retraining_optional and chosen.max() < 0.5:
                continue
            begin, c, i = (int(at) for at in np.unravel_index(chosen.argmax(), chosen.shape))
            end = begin + table.durations[c, i]
        else:
            continue
        gpcs = columns.tables.placements[i].gpcs
        name = table.choices[c].name
        retrainings.append(Retraining(table.tenant.name, begin, end, gpcs, name))
        for s in range(begin, min(end, columns.tables.problem.slots)):
            where[m, s] = i
    return tuple(retrainings), where


def write_retrainings(columns: RetrainingColumns, plan: Plan, values: FloatArray) -> None:
    """Set the retraining columns of `values` to what the plan does."""
    for m, table in enumerate(columns.tables.tenants):
        if table.running is not None:
            fixed = columns.running[m]
            values[fixed[fixed != ABSENT]] = 1.0
            values[columns.completion[m, 0, -1]] = 1.0
        elif table.durations:
            if _is_left_out(plan, table):
                continue
            begin, c, i = _start_of(columns, plan, table)
            end = begin + table.durations[c, i]
            values[columns.start[m, begin, c, i]] = 1.0
            values[columns.running[m, begin:end, c, i]] = 1.0
            values[columns.completion[m, c, end:]] = 1.0


def _is_left_out(plan: Plan, table: TenantTable) -> bool:
    """Whether the plan does not retrain a tenant whose retraining is optional."""
    retrained = {retraining.tenant for retraining in plan.retrainings}
    return table.tenant.retraining_optional and table.tenant.name not in retrained


def _start_of(columns: RetrainingColumns, plan: Plan, table: TenantTable) -> tuple[int, int, int]:
    """The slot, configuration and placement of the tenant's retraining in the plan."""
    task = Task(table.tenant.name, Kind.RETRAINING)
    names = {
        retraining.configuration
        for retraining in plan.retrainings
        if retraining.tenant == table.tenant.name
    }
    for s, allocation in enumerate(plan.slots):
        for instance in allocation.instances:
            if instance.task == task:
                for (c, i), duration in table.durations.items():
                    where = columns.tables.placements[i]
                    fits = s + duration <= columns.tables.problem.slots
                    fits = fits and table.choices[c].name in names
                    if (where.start, where.gpcs) == (instance.start, instance.gpcs) and fits:
                        return s, c, i
    raise PlanError(
        f"the start plan has no retraining of {table.tenant.name} that ends inside the window; "
        "give a plan of this problem or none"
    )


def add_patterns(
    builder: ModelBuilder,
    table: TenantTable,
    worth: FloatArray,
    allowed: BoolArray,
    penalty: FloatArray,
) -> IntArray:
    """Binaries [slot, pattern, stage] where allowed[slot, pattern], worth accuracy x worth less
    penalty[slot, pattern]."""
    columns = np.full((*worth.shape, max(2, len(table.accuracy))), ABSENT)
    for s, p in zip(*np.nonzero(allowed), strict=True):
        for c in table.stages(int(s)):
            columns[s, p, c] = builder.binary(
                table.accuracy[c] * float(worth[s, p]) - float(penalty[s, p])
            )
    return columns


def add_choice(
    builder: ModelBuilder, table: TenantTable, chosen: Sequence[IntArray], completion: IntArray
) -> None:
    """Exactly one of the `chosen` columns per slot, in the stage that Completion names."""
    for s in range(completion.shape[1] - 1):
        key = [table.tenant.name, s]
        every = Terms()
        for columns in chosen:
            every.add(columns[s])
        builder.equal(Group.INFERENCE_STARVATION, key, every, 1.0)
        for stage in table.stages(s)[1:]:
            after = Terms().add(completion[stage - POST, s], -1.0)
            for columns in chosen:
                after.add(columns[s, :, stage])
            builder.equal(Group.GOODPUT, [*key, *_named(table, stage - POST)], after, 0.0)


def size_terms(
    terms: Terms, table: TenantTable, chosen: Sequence[IntArray], slot: int, size: int
) -> Terms:
    """`terms` plus how many instances of `size` the chosen patterns hold."""
    for p, pattern in enumerate(table.patterns):
        number = Counter(pattern)[size]
        if number:
            for columns in chosen:
                terms.add(columns[slot, p], number)
    return terms


def add_instance_sharing(
    builder: ModelBuilder, retraining: RetrainingColumns, inference: Sequence[IntArray]
) -> None:
    """Every memory slice under at most one instance; `inference` are columns [slot, placement].

    Placements are intervals of slices, so these rows are all of the stable set polytope.
    The GPCs follow from the slices on every packaged board; one row says it for any board.
    """
    board, tables = retraining.tables.problem.board, retraining.tables
    gpcs = [place.gpcs for place in tables.placements]
    for s in range(tables.problem.slots):
        running = retraining.running[:, s].reshape(-1, len(tables.placements))
        held = [*(columns[s] for columns in inference), *running]
        for slice_ in range(board.memory_slices):
            terms = Terms()
            for columns in held:
                terms.add(columns[tables.covering(slice_)])
            builder.at_most(Group.INSTANCE_SHARING, [s, f"slice {slice_}"], terms, 1.0)
        terms = Terms()
        for columns in held:
            for column, size in zip(columns, gpcs, strict=True):
                terms.add(column, size)
        builder.at_most(Group.INSTANCE_SHARING, [s, "gpcs"], terms, board.compute_slices)


def pattern_number(table: TenantTable, holding: Holding) -> int:
    """The number of the pattern that the tenant's inference holds in a plan's slot."""
    pattern: Multiset = pattern_of(holding, table.tenant.name)
    if pattern not in table.patterns:
        sizes = "+".join(map(str, pattern)) or "nothing"
        raise PlanError(
            f"the start plan gives {table.tenant.name}'s inference {sizes}, which this problem "
            "does not allow; give a plan of this problem or none"
        )
    return table.patterns.index(pattern)


def stage_of(table: TenantTable, completion: IntArray, values: FloatArray, slot: int) -> int:
    """The stage in `slot`, once the retraining columns of `values` are set."""
    possible = table.stages(slot)
    done = (stage for stage in possible[1:] if values[completion[stage - POST, slot]] > 0.5)
    return next(done, possible[0])
