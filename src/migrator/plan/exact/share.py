"""What the board rents out in one slot: a joint pattern, and room for retraining beside it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.plan.compiled import compiled
from migrator.plan.exact.space import Floats, Ints, SpaceArrays
from migrator.plan.exact.tables import NEVER


class Scratch(NamedTuple):
    """Room to work in, so that the inner loop allocates nothing."""

    room: Floats
    """[multiset held by inference]: what retraining beside it earns at most"""
    which: Ints
    """[multiset]: the retraining set that does"""
    earns: Floats
    """[retraining set]"""


@compiled
def scratch_for(space: SpaceArrays) -> Scratch:
    """Scratch of the right size."""
    held, sets = space.beside.shape
    return Scratch(np.empty(held), np.empty(held, np.int64), np.empty(sets))


@compiled
def rooms(space: SpaceArrays, mask: int, waiting: int) -> Ints:
    """Pairs (what inference holds in all, what at most `waiting` tenants retrain beside it).

    Retraining earns, so a set is listed only if no larger one fits in its place. Pairs with
    the same inference stand together.
    """
    sizes = space.beside_sizes
    seen = np.zeros(space.beside.shape[0], np.bool_)
    pairs = np.empty((space.beside.size, 2), np.int64)
    listed = 0
    for j in space.fitting[mask]:
        if j < 0:
            break
        held = space.total[j]
        if seen[held]:
            continue
        seen[held] = True
        first = listed
        for r in range(space.beside.shape[1] - 1, -1, -1):  # large sets first
            union = space.beside[held, r]
            if space.beside_count[r] > waiting or union < 0 or not space.placeable[mask, union]:
                continue
            inside = False
            for i in range(first, listed):
                inside = inside or (sizes[r] <= sizes[pairs[i, 1]]).all()
            if not inside:
                pairs[listed, 0], pairs[listed, 1] = held, r
                listed += 1
    return pairs[:listed].copy()


@compiled
def best_share(
    t: int,
    space: SpaceArrays,
    mask: int,
    pairs: Ints,
    pattern: Floats,
    retraining: Floats,
    scratch: Scratch,
) -> tuple[float, int, int]:
    """(rent, joint pattern, retraining set) that earn most in slot t at these prices."""
    room, which, earns = scratch
    for r in range(earns.shape[0]):
        earns[r] = 0.0
        for k in range(retraining.shape[1]):
            earns[r] += space.beside_sizes[r, k] * retraining[t, k]
    for i in range(pairs.shape[0]):
        held, r = pairs[i, 0], pairs[i, 1]
        if i == 0 or held != pairs[i - 1, 0] or earns[r] > room[held]:
            room[held], which[held] = earns[r], r
    best, chosen = NEVER, 0
    for j in space.fitting[mask]:
        if j < 0:
            break
        earned = room[space.total[j]]
        for m in range(space.joint.shape[1]):
            earned += pattern[m, t, space.joint[j, m]]
        if earned > best:
            best, chosen = earned, j
    return best, chosen, which[space.total[chosen]]
