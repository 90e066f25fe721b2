"""One slot of serving: from what a label held to every joint pattern that the slot can hold."""

# ruff: noqa: PLR0912 (a kernel in one piece: handing arrays to another one costs more than a row)

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.planning.arrays import Floats, Int32s, Ints
from migrator.planning.exact.space import Space, SpaceArrays
from migrator.planning.exact.tables import ANY, IMPOSSIBLE, NEVER, GoodputTables
from migrator.planning.kernels import compiled_inner

WAITING, DONE = -1, -2
"""Retraining status of a tenant, beside the number of the way it runs. DONE is that of one
completed in the first configuration; in configuration c it is DONE - c."""


class LabelTable(NamedTuple):
    """Labels as columns, one row each. Only joint patterns that may still win have an entry."""

    way: Ints
    """[row, tenant]: WAITING, DONE - configuration, or the way"""
    end: Ints
    """[row, tenant]: first slot after a running retraining"""
    entries: Ints
    """[row]: how many entries the label has"""
    joint: Ints
    """[row, entry]: joint pattern that the last slot held"""
    value: Floats
    """[row, entry]: best goodput so far"""
    story: Int32s
    """[row, entry]: node of the finished retrainings that lead to that value"""
    bound: Floats
    """[row]: no plan through this label is better"""
    spot: Ints
    """[row]: where it stands in the hash table"""


def empty_labels(rows: int, tenants: int, joints: int) -> LabelTable:
    """Columns for that many labels, not filled."""
    return LabelTable(
        way=np.empty((rows, tenants), np.int64),
        end=np.empty((rows, tenants), np.int64),
        entries=np.empty(rows, np.int64),
        joint=np.empty((rows, joints), np.int64),
        value=np.empty((rows, joints)),
        story=np.empty((rows, joints), np.int32),
        bound=np.empty(rows),
        spot=np.empty(rows, np.int64),
    )


class SlotTransition(NamedTuple):
    """Room for what a transition works out, and its result."""

    reached: Floats
    """[joint]: best goodput when the slot holds it"""
    origin: Ints
    """[joint]: the entry of the label that it comes from"""
    best_of_class: Floats
    """[class]: best value of an entry; all NEVER before and after"""
    entry_of_class: Ints
    """[class]: that entry"""
    gain: Floats
    """[kept, tenant, pattern]: goodput of the slot"""


def empty_step(space: Space, tables: GoodputTables) -> SlotTransition:
    """Room for a transition."""
    joints, tenants = space.joint.shape
    return SlotTransition(
        reached=np.empty(joints),
        origin=np.empty(joints, np.int64),
        best_of_class=np.full(joints, NEVER),
        entry_of_class=np.zeros(joints, np.int64),
        gain=np.empty((2, tenants, tables.keep.shape[3])),
    )


@compiled_inner
def stage_of(status: int) -> int:
    """0 before a retraining is completed, then 1 more than its configuration."""
    return DONE + 1 - status if status <= DONE else 0


@compiled_inner
def transition(
    slot: int,
    status: Ints,
    mask: int,
    space: SpaceArrays,
    tables: GoodputTables,
    now: LabelTable,
    label: int,
    step: SlotTransition,
) -> float:
    """Fill `reached` and `origin` for the joint patterns that fit beside `mask`; the largest value.

    A charge does not depend on what was held before, only on whether it was the same. So for each
    of the 2^tenants subsets of tenants that keep their pattern, the best entry in which these
    tenants hold those patterns is enough; the other tenants may have held anything. (If one of
    them held the same, it pays for a change that it does not make; another subset has it right.)
    """
    joint, fitting, kept_class = space.joint, space.fitting, space.kept_class
    held_before = now.joint
    reached, best_of_class = step.reached, step.best_of_class
    entry_of_class, gain = step.entry_of_class, step.gain
    joints, tenants = joint.shape
    top, entries = NEVER, now.entries[label]
    for m in range(tenants):
        stage, initially = stage_of(status[m]), tables.held_before[m]
        for p in range(tables.patterns[m]):
            kept = tables.keep[m, stage, slot, p]
            free = slot == 0 and initially in (ANY, p)
            gain[0, m, p] = kept if free else tables.change[m, stage, slot, p]
            gain[1, m, p] = kept
    for n in range(joints):
        j = fitting[mask, n]
        if j < 0:
            break
        reached[j] = NEVER
    # in slot 0 the one entry stands for "nothing is known", so no tenant keeps what it holds
    for subset in range(kept_class.shape[0] if slot > 0 else 1):
        # entries are alike to a subset if its tenants hold the same in them: one class each
        for i in range(entries):
            c = kept_class[subset, held_before[label, i]]
            if now.value[label, i] > best_of_class[c]:
                best_of_class[c], entry_of_class[c] = now.value[label, i], i
        for n in range(joints):
            j = fitting[mask, n]
            if j < 0:
                break
            c = kept_class[subset, j]
            total = best_of_class[c]
            if total <= IMPOSSIBLE:
                continue
            for m in range(tenants):
                total += gain[(subset >> m) & 1, m, joint[j, m]]
            if total > reached[j]:
                reached[j], step.origin[j] = total, entry_of_class[c]
                top = max(top, total)
        # only the classes that were used are cleared: most are not
        for i in range(entries):
            best_of_class[kept_class[subset, held_before[label, i]]] = NEVER
    return top
