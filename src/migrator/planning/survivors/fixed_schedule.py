"""What serving around a fixed schedule of retrainings is still worth: ranks the beam's states.

Tenants hold multisets; an instance new to its tenant is cold for the overhead; the rest is
exact, jointly for all tenants, by one pass backwards over the joint patterns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from migrator.core.problem import (
    Problem,
)
from migrator.planning.arrays import Floats, Ints
from migrator.planning.exact.schedule import Schedule, occupied_by
from migrator.planning.exact.space import Space
from migrator.planning.exact.tables import NEVER
from migrator.planning.kernels import compiled, compiled_inner
from migrator.planning.survivors.arrivals import Arrivals, missed_by, worth_of


@dataclass(frozen=True, eq=False)
class Around:
    """A fixed schedule and all that ranks the inference around it."""

    schedule: Schedule
    masks: Ints
    """[slot]: slices that retrainings occupy"""
    accuracy: Floats
    """[tenant, slot]: times the tenant's weight"""
    ahead: Floats
    """[slot, joint pattern]: what is still to come, positions left aside"""
    later: float
    """goodput after the window that the schedule's retrainings add, weighted"""


def around_of(problem: Problem, space: Space, arrivals: Arrivals, schedule: Schedule) -> Around:
    """The schedule with everything that ranks allocations around it."""
    tenants, sizes = problem.tenants, space.geometry.sizes
    masks = occupied_by(space, schedule, problem.slots)
    accuracy = np.array([[t.weight * t.accuracy_pre] * problem.slots for t in tenants], np.float64)
    endings, later = np.full((len(tenants), 2), -1, np.int64), 0.0
    for m, start in enumerate(schedule):
        if start is not None:
            chosen = tenants[m].configurations[start.configuration]
            accuracy[m, start.end :] = tenants[m].weight * chosen.accuracy
            endings[m] = start.end, space.geometry.place_size[start.place]
            later += tenants[m].weight * tenants[m].later_goodput(chosen)
    ahead = np.zeros((problem.slots + 1, len(space.joint)))
    patterns = np.array(
        [len(patterns_of_tenant) for patterns_of_tenant in space.patterns], np.int64
    )
    _fill(
        space.joint,
        space.arrays.fitting,
        space.arrays.kept_class[(1 << (len(tenants) - 1)) - 1],
        space.pattern_sizes,
        _changes(space.pattern_sizes, patterns),
        np.array([[t.capability.get(size, 0.0) for size in sizes] for t in tenants], np.float64),
        np.array([t.overhead_s / problem.slot_s for t in tenants], np.float64),
        arrivals,
        masks,
        accuracy,
        endings,
        ahead,
        _empty_scratch(space, patterns),
    )
    return Around(schedule, masks, accuracy, ahead, later)


class Changes(NamedTuple):
    """Changes of a tenant's pattern, as far as the goodput of a slot can tell them apart."""

    number: Ints
    """[tenant, pattern before, pattern now] -> change"""
    kept: Floats
    """[tenant, change, size]: instances that stay"""
    now: Ints
    """[tenant, change]: the pattern now; -1 ends"""


def _changes(counts: Floats, patterns: Ints) -> Changes:
    """All changes. Which instances stay and which pattern follows is all that matters."""
    tenants, width, _ = counts.shape
    # of a change: the sizes that stay, counted in base 8, and the pattern that follows
    common = np.minimum(counts[:, :, None, :], counts[:, None, :, :])
    codes = common.astype(np.int64) @ 8 ** np.arange(counts.shape[2]) * width + np.arange(width)
    number = np.zeros((tenants, width, width), np.int64)
    kept = np.zeros((tenants, width * width, counts.shape[2]))
    now = np.full((tenants, width * width + 1), -1, np.int64)
    for m, count in enumerate(patterns):
        codes_of_tenant = codes[m, :count, :count]
        _, at, which = np.unique(codes_of_tenant, return_index=True, return_inverse=True)
        number[m, :count, :count] = which.reshape(count, count)
        before, after = np.divmod(at, count)
        kept[m, : len(at)], now[m, : len(at)] = common[m, before, after], after
    return Changes(number, kept, now)


class _SlotScratch(NamedTuple):
    """Room for what is worked out of one slot."""

    gain: Floats
    """[tenant, pattern before, pattern now]"""
    worth: Floats
    """[change]"""
    best: Floats
    """[group, pattern]: best with that pattern of the last tenant"""
    seen: Ints
    """[group]: slot for which `best` is known"""


def _empty_scratch(space: Space, patterns: Ints) -> _SlotScratch:
    tenants, width, joints = len(patterns), int(patterns.max()), len(space.joint)
    return _SlotScratch(
        gain=np.empty((tenants, width, width)),
        worth=np.empty(width * width + 1),
        best=np.empty((joints, width)),
        seen=np.full(joints, -1, np.int64),
    )


@compiled
def _fill(
    joint: Ints,
    fitting: Ints,
    groups: Ints,
    counts: Floats,
    changes: Changes,
    capability: Floats,
    over: Floats,
    arrivals: Arrivals,
    masks: Ints,
    accuracy: Floats,
    endings: Ints,
    values: Floats,
    scratch: _SlotScratch,
) -> None:
    """values[slot, joint pattern held warm before it]: the goodput from that slot on.

    `groups` [joint]: joint patterns that differ in the last tenant only have the same number.
    """
    for t in range(masks.shape[0] - 1, -1, -1):
        for m in range(joint.shape[1]):
            freed = endings[m, 1] if endings[m, 0] == t else -1
            rest = capability, over[m], arrivals, accuracy
            _find_gains(t, m, freed, counts, changes, *rest, scratch.worth, scratch.gain)
        _find_changes(t, joint, fitting, masks[t], groups, values, scratch)


@compiled_inner
def _find_changes(
    t: int,
    joint: Ints,
    fitting: Ints,
    mask: int,
    groups: Ints,
    values: Floats,
    scratch: _SlotScratch,
) -> None:
    """values[t, joint]: the best change from it, with what is worth after it.

    First for every pattern that the last tenant changes to, then its own change.
    """
    gain, best, last = scratch.gain, scratch.best, joint.shape[1] - 1
    for j in range(joint.shape[0]):
        group = groups[j]
        # all other tenants hold the same in a group: what they change to is worked out once
        if scratch.seen[group] != t:
            scratch.seen[group] = t
            for q in range(best.shape[1]):
                best[group, q] = NEVER
            for n in range(fitting.shape[1]):
                to = fitting[mask, n]
                if to < 0:
                    break
                total, q = values[t + 1, to], joint[to, last]
                for m in range(last):
                    total += gain[m, joint[j, m], joint[to, m]]
                best[group, q] = max(best[group, q], total)
        top = NEVER
        for q in range(best.shape[1]):
            if best[group, q] > NEVER:
                top = max(top, best[group, q] + gain[last, joint[j, last], q])
        values[t, j] = top


@compiled_inner
def _find_gains(
    t: int,
    m: int,
    freed: int,
    counts: Floats,
    changes: Changes,
    capability: Floats,
    over: float,
    arrivals: Arrivals,
    accuracy: Floats,
    worth: Floats,
    gain: Floats,
) -> None:
    """gain[m, p, q]: goodput of slot t when the tenant goes from pattern p to q, less what it
    will miss.

    `freed`: size index of the instance that a retraining of the tenant has just left to it.
    """
    sizes, stays = capability.shape[1], changes.kept
    for c in range(changes.now.shape[1]):
        q = changes.now[m, c]
        if q < 0:
            break
        kept, total = 0.0, 0.0
        for k in range(sizes):
            kept += capability[m, k] * stays[m, c, k]
            total += capability[m, k] * counts[m, q, k]
        worth[c] = _gain(t, m, kept, total, over, arrivals, accuracy)
    for p in range(gain.shape[1]):
        for q in range(gain.shape[1]):
            c = changes.number[m, p, q]
            gain[m, p, q] = worth[c]
            # the instance that a retraining leaves is warm: one more of its size stays
            if freed >= 0 and stays[m, c, freed] < counts[m, q, freed]:
                kept, total = 0.0, 0.0
                for k in range(sizes):
                    kept += capability[m, k] * stays[m, c, k]
                    total += capability[m, k] * counts[m, q, k]
                if counts[m, p, freed] < counts[m, q, freed]:
                    kept += capability[m, freed]
                gain[m, p, q] = _gain(t, m, kept, total, over, arrivals, accuracy)


@compiled_inner
def _gain(
    t: int,
    m: int,
    kept: float,
    total: float,
    over: float,
    arrivals: Arrivals,
    accuracy: Floats,
) -> float:
    """Goodput of slot t with this capability, of which only `kept` is warm, less what it will
    miss."""
    share = min(1.0, max(0.0, 1.0 - over))
    worth = worth_of(arrivals, m, t, accuracy[m, t], kept + share * (total - kept))
    then, age = t + 1, 1
    while share < 1.0 and kept < total and then < accuracy.shape[1]:
        share = min(1.0, max(0.0, age + 1.0 - over))
        warm = kept + share * (total - kept)
        worth -= missed_by(arrivals, m, then, accuracy[m, then], total, warm)
        then, age = then + 1, age + 1
    return worth
