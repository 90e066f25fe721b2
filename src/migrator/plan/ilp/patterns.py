"""The ILP's inference constraints that are the same under both charges.

Which multiset of sizes a tenant's inference holds in a slot is one binary per pattern and
stage; which slices are taken is one row per memory slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from migrator.core.errors import PlanError
from migrator.core.placement import Multiset
from migrator.plan.ilp.layout import Holding, pattern_of
from migrator.plan.ilp.model import (
    ABSENT,
    BoolArray,
    FloatArray,
    Group,
    IntArray,
    ModelBuilder,
    Terms,
)
from migrator.plan.ilp.retraining import RetrainingColumns
from migrator.plan.ilp.tables import POST, PRE, TenantTable


def add_patterns(
    builder: ModelBuilder, table: TenantTable, worth: FloatArray, allowed: BoolArray
) -> IntArray:
    """Binaries [slot, pattern, stage] where allowed[slot, pattern], worth accuracy x worth."""
    columns = np.full((*worth.shape, 2), ABSENT)
    for s, p in zip(*np.nonzero(allowed), strict=True):
        for c in table.stages(int(s)):
            columns[s, p, c] = builder.binary(table.accuracy[c] * float(worth[s, p]))
    return columns


def add_choice(
    builder: ModelBuilder, table: TenantTable, chosen: Sequence[IntArray], completion: IntArray
) -> None:
    """Exactly one of the `chosen` columns per slot, in the stage that Completion names."""
    for s in range(len(completion) - 1):
        key = [table.tenant.name, s]
        every = Terms()
        after = Terms().add(completion[s], -1.0)
        for columns in chosen:
            every.add(columns[s])
            after.add(columns[s, :, POST])
        builder.equal(Group.INFERENCE_STARVATION, key, every, 1.0)
        if len(table.stages(s)) > 1:
            builder.equal(Group.GOODPUT, key, after, 0.0)


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
    gpcs = [each.gpcs for each in tables.placements]
    for s in range(tables.problem.slots):
        held = [*(columns[s] for columns in inference), *retraining.running[:, s]]
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
    if len(possible) == 1:
        return possible[0]
    return POST if values[completion[slot]] > 0.5 else PRE
