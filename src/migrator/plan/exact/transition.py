"""From one slot to the next under the `paper` charge: the best way into each joint pattern."""

from __future__ import annotations

import numpy as np

from migrator.plan.compiled import compiled
from migrator.plan.exact.space import Floats, Ints, SpaceArrays
from migrator.plan.exact.tables import ANY, IMPOSSIBLE, NEVER, Tables

WAITING, DONE = -1, -2
"""Retraining status of a tenant, beside the index of the placement it runs on."""


@compiled
def transition(
    slot: int,
    own: Ints,
    mask: int,
    space: SpaceArrays,
    tables: Tables,
    value: Floats,
    base: Floats,
    origin: Ints,
) -> float:
    """base[j]: best goodput up to and including this slot when it holds joint pattern j.

    Only for the j that fit beside `mask`; returns the largest. Which tenants keep their
    pattern is one of 2^tenants subsets; the others may have held anything, and a charge does
    not depend on what it was.
    """
    joint, kept_class, fitting = space.joint, space.kept_class, space.fitting[mask]
    joints, tenants = joint.shape
    gain = np.empty((2, tenants, tables.keep.shape[3]))
    for m in range(tenants):
        after = 1 if own[m] == DONE else 0
        gain[0, m], gain[1, m] = tables.change[m, after, slot], tables.keep[m, after, slot]
    if slot == 0:
        return _first_slot(joint, fitting, tables.held_before, gain, base, origin)
    best, at, top = np.empty(joints), np.empty(joints, np.int64), NEVER
    held, alive = np.empty(joints, np.int64), 0
    for j in range(joints):
        if value[j] > IMPOSSIBLE:
            held[alive] = j
            alive += 1
    base[:] = NEVER
    for subset in range(kept_class.shape[0]):
        best[:] = NEVER
        for j in held[:alive]:
            c = kept_class[subset, j]
            if value[j] > best[c]:
                best[c], at[c] = value[j], j
        for j in fitting:
            if j < 0:
                break
            c = kept_class[subset, j]
            if best[c] <= IMPOSSIBLE:
                continue
            total = best[c]
            for m in range(tenants):
                total += gain[(subset >> m) & 1, m, joint[j, m]]
            if total > base[j]:
                base[j], origin[j] = total, at[c]
                top = max(top, total)
    return top


@compiled
def _first_slot(
    joint: Ints, fitting: Ints, held: Ints, gain: Floats, base: Floats, origin: Ints
) -> float:
    top = NEVER
    base[:] = NEVER
    for j in fitting:
        if j < 0:
            break
        base[j], origin[j] = 0.0, j
        for m in range(joint.shape[1]):
            p = joint[j, m]
            base[j] += gain[1 if held[m] in (ANY, p) else 0, m, p]
        top = max(top, base[j])
    return top
