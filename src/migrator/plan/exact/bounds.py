"""What each tenant can still earn under the prices: a bound on every way to finish a plan."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from migrator.plan.compiled import compiled
from migrator.plan.exact.alone import step_back
from migrator.plan.exact.prices import Prices
from migrator.plan.exact.share import best_share, rooms, scratch_for
from migrator.plan.exact.space import Floats, Ints, Space, SpaceArrays
from migrator.plan.exact.tables import NEVER, Tables

Float32s = npt.NDArray[np.float32]


class Bounds(NamedTuple):
    """Per tenant what it can still earn, and what the board can still rent its slices for."""

    waiting: Floats
    """[tenant, slot, pattern held before the slot]: retraining not yet started"""
    running: Float32s
    """[tenant, end, end - slot, pattern]: retraining runs until `end`, its price left out"""
    done: Floats
    """[tenant, slot, pattern]"""
    rent: Floats
    """[waiting tenants, mask, slot]: best rent of the free slices, summed up to `slot`"""


def tabulate_bounds(space: Space, tables: Tables, prices: Prices) -> Bounds:
    """The bounds that these prices give."""
    tenants, _, slots, width = tables.keep.shape
    longest = int(max(tables.durations.max(), tables.slots_left.max(), 0))
    bounds = Bounds(
        waiting=np.full((tenants, slots + 1, width), NEVER),
        running=np.full((tenants, slots + 1, longest + 1, width), NEVER, np.float32),
        done=np.full((tenants, slots + 1, width), NEVER),
        rent=np.zeros((space.most_waiting + 1, len(space.arrays.fitting), slots + 1)),
    )
    for m in range(tenants):
        _values_to_go(m, tables, prices.pattern[m], prices.retraining, bounds)
    _sum_rent(space.arrays, space.reachable, prices.pattern, prices.retraining, bounds.rent)
    return bounds


@compiled
def _values_to_go(m: int, tables: Tables, cost: Floats, retraining: Floats, bounds: Bounds) -> None:
    """Fill tenant m's `waiting`, `running` and `done` backwards from the window's end."""
    patterns, durations = tables.patterns[m], tables.durations[m]
    keep, change = tables.keep[m], tables.change[m]
    waiting, running, done = bounds.waiting[m], bounds.running[m], bounds.done[m]
    slots = retraining.shape[0]
    done[slots, :patterns] = 0.0
    for t in range(slots - 1, -1, -1):
        step_back(t, patterns, cost, keep[1], change[1], done[t + 1], done[t])
    longest = max(durations.max(), tables.slots_left[m])
    value, earlier = np.empty(patterns), np.empty(patterns)
    for end in range(slots + 1):
        value[:] = done[end, :patterns]
        for ahead in range(min(end, longest) + 1):
            if ahead > 0:
                step_back(end - ahead, patterns, cost, keep[0], change[0], value, earlier)
                value[:] = earlier
            for p in range(patterns):
                running[end, ahead, p] = _up(value[p])
    if durations.max() > 0:
        _fill_waiting(patterns, cost, keep[0], change[0], durations, retraining, running, waiting)


@compiled
def _fill_waiting(
    patterns: int,
    cost: Floats,
    keep: Floats,
    change: Floats,
    durations: Ints,
    retraining: Floats,
    running: Float32s,
    waiting: Floats,
) -> None:
    """Wait a slot, or start now on some size and pay its price to the end."""
    slots, sizes = retraining.shape
    rents = np.zeros((sizes, slots + 1))
    for t in range(slots):
        for k in range(sizes):
            rents[k, t + 1] = rents[k, t] + retraining[t, k]
    for t in range(slots - 1, -1, -1):
        step_back(t, patterns, cost, keep, change, waiting[t + 1], waiting[t])
        for k in range(sizes):
            end = t + durations[k]
            if durations[k] > 0 and end <= slots:
                paid = rents[k, end] - rents[k, t]
                for p in range(patterns):
                    waiting[t, p] = max(waiting[t, p], running[end, durations[k], p] - paid)


@compiled
def _up(value: float) -> float:
    """Rounded up far enough that storing it in single precision keeps it a bound."""
    return value + abs(value) * 1.2e-7 + 1e-6


@compiled
def _sum_rent(
    space: SpaceArrays, reachable: Ints, pattern: Floats, retraining: Floats, rent: Floats
) -> None:
    most, slots = rent.shape[0], rent.shape[2] - 1
    scratch = scratch_for(space)
    for mask in reachable:
        if space.fitting[mask, 0] < 0:
            continue
        # An occupied slice means a retraining under way, so not everybody is waiting then,
        # unless it ran already before the window: most counts only those still to start.
        for waiting in range(most):
            pairs = rooms(space, mask, waiting)
            for t in range(slots):
                earned, _, _ = best_share(t, space, mask, pairs, pattern, retraining, scratch)
                rent[waiting, mask, t + 1] = rent[waiting, mask, t] + earned
