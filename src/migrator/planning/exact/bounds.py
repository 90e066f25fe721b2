"""What a label of the search can still earn at the prices: the bound on all plans through it."""
# ruff: noqa: PLR0912 (a kernel in one piece: handing arrays to another one costs more than a row)

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.planning.arrays import Float32s, Floats
from migrator.planning.exact.prices import Prices
from migrator.planning.exact.responses import empty_answers, find_shares, rent_retrainings
from migrator.planning.exact.space import Space
from migrator.planning.exact.tables import NEVER, GoodputTables
from migrator.planning.kernels import compiled, compiled_inner


class Bounds(NamedTuple):
    """Per tenant what it can still earn, and what the board can still rent its slices for."""

    waiting: Floats
    """[tenant, slot, pattern held before the slot]: retraining not yet started"""
    running: Float32s
    """[tenant, configuration, end, end - slot, pattern]: retraining runs until `end`, its price
    left out"""
    done: Floats
    """[tenant, configuration, slot, pattern]"""
    rent: Floats
    """[waiting tenants, mask, slot]: best rent of the free slices, summed up to `slot`"""
    most_waiting: Floats
    """[tenant, slot]: the maximum of `waiting` over patterns, and so on: enough to drop most labels
    without looking closer"""
    most_running: Floats
    """[tenant, configuration, end, end - slot]"""
    most_done: Floats
    """[tenant, configuration, slot]"""


def tabulate_bounds(space: Space, tables: GoodputTables, prices: Prices) -> Bounds:
    """The bounds that these prices give."""
    bounds = empty_bounds(space, tables)
    tenants, _, slots, width = tables.keep.shape
    patterns = prices.rows[: tenants * width].reshape(tenants, width, slots)
    rents = np.zeros((len(prices.rows) - tenants * width, slots + 1))
    np.cumsum(prices.rows[tenants * width :], axis=1, out=rents[:, 1:])
    cost = np.ascontiguousarray(patterns.transpose(0, 2, 1))
    _fill_values(tables, cost, rents, bounds, np.empty(width))
    _sum_rents(space, tables, prices.rows, bounds.rent)
    return bounds


def empty_bounds(space: Space, tables: GoodputTables) -> Bounds:
    """Room for the bounds."""
    tenants, stages, slots, width = tables.keep.shape
    longest = int(max(tables.durations.max(), tables.slots_left.max(), 0))
    return Bounds(
        waiting=np.full((tenants, slots + 1, width), NEVER),
        running=np.full((tenants, stages - 1, slots + 1, longest + 1, width), NEVER, np.float32),
        done=np.full((tenants, stages - 1, slots + 1, width), NEVER),
        rent=np.zeros((space.most_waiting + 1, len(space.arrays.fitting), slots + 1)),
        most_waiting=np.full((tenants, slots + 1), NEVER),
        most_running=np.full((tenants, stages - 1, slots + 1, longest + 1), NEVER),
        most_done=np.full((tenants, stages - 1, slots + 1), NEVER),
    )


def _sum_rents(space: Space, tables: GoodputTables, prices: Floats, rent: Floats) -> None:
    arrays = space.priced
    answers = empty_answers(tables, *space.beside.shape)
    rent_retrainings(arrays.beside_sizes, prices, answers.earns)
    for mask in space.reachable:
        alike = space.geometry.alike[mask]
        if arrays.fitting[mask, 0] < 0:
            continue
        # An occupied slice means a retraining under way, so not every tenant is waiting then,
        # unless it ran already before the window: most counts only those still to start.
        for waiting in range(len(rent)):
            if alike < mask and alike in space.reachable:
                rent[waiting, mask] = rent[waiting, alike]
                continue
            rooms = space.rooms(int(mask), waiting)
            find_shares(arrays, mask, 0, rooms[None], prices, answers)
            np.cumsum(answers.rent, out=rent[waiting, mask, 1:])


@compiled
def _fill_values(
    tables: GoodputTables, cost: Floats, rents: Floats, bounds: Bounds, value: Floats
) -> None:
    """Fill `waiting`, `running` and `done` backwards from the window's end.

    cost [tenant, slot, pattern]; rents [size, slot]: sums of retraining prices before the slot;
    value [pattern]: room for numbers.
    """
    waiting, running, done = bounds.waiting, bounds.running, bounds.done
    most_waiting, most_running = bounds.most_waiting, bounds.most_running
    keep, change, durations = tables.keep, tables.change, tables.durations
    tenants, slots, sizes = cost.shape[0], cost.shape[1], rents.shape[0]
    for m in range(tenants):
        patterns, retrains = tables.patterns[m], tables.slots_left[m] > 0
        for c in range(done.shape[1]):
            longest = tables.slots_left[m] if c == 0 else 0
            for k in range(sizes):
                longest = max(longest, durations[m, c * sizes + k])
            if c > 0 and longest == 0:  # it is not used; the first is that of a tenant done before
                continue
            retrains = retrains or longest > 0
            for p in range(patterns):
                done[m, c, slots, p] = tables.later[m, 1 + c]
            for t in range(slots - 1, -1, -1):
                top = NEVER
                for p in range(patterns):
                    top = max(top, change[m, 1 + c, t, p] - cost[m, t, p] + done[m, c, t + 1, p])
                for p in range(patterns):
                    kept = keep[m, 1 + c, t, p] - cost[m, t, p] + done[m, c, t + 1, p]
                    done[m, c, t, p] = max(kept, top)
            for end in range(slots + 1):
                most = NEVER
                for p in range(patterns):
                    value[p] = done[m, c, end, p]
                    most = max(most, value[p])
                    running[m, c, end, 0, p] = _round_up(value[p])
                bounds.most_done[m, c, end] = most
                most_running[m, c, end, 0] = _round_up(_round_up(most))
                for ahead in range(1, min(end, longest) + 1):
                    t, top, most = end - ahead, NEVER, NEVER
                    for p in range(patterns):
                        top = max(top, change[m, 0, t, p] - cost[m, t, p] + value[p])
                    for p in range(patterns):
                        value[p] = max(keep[m, 0, t, p] - cost[m, t, p] + value[p], top)
                        most = max(most, value[p])
                        running[m, c, end, ahead, p] = _round_up(value[p])
                    most_running[m, c, end, ahead] = _round_up(_round_up(most))
        if tables.optional[m]:
            for p in range(patterns):
                waiting[m, slots, p] = 0.0
            most_waiting[m, slots] = 0.0
        if not retrains:
            continue
        # wait a slot, or start now in some configuration on some size and pay its price to the end
        for t in range(slots - 1, -1, -1):
            top = NEVER
            for p in range(patterns):
                top = max(top, change[m, 0, t, p] - cost[m, t, p] + waiting[m, t + 1, p])
            for p in range(patterns):
                waiting[m, t, p] = max(keep[m, 0, t, p] - cost[m, t, p] + waiting[m, t + 1, p], top)
            for option in range(durations.shape[1]):
                duration = durations[m, option]
                end, c, k = t + duration, option // sizes, option % sizes
                if duration > 0 and end <= slots:
                    paid = rents[k, end] - rents[k, t]
                    for p in range(patterns):
                        started = running[m, c, end, duration, p] - paid
                        waiting[m, t, p] = max(waiting[m, t, p], started)
            for p in range(patterns):
                most_waiting[m, t] = max(most_waiting[m, t], waiting[m, t, p])


@compiled_inner
def _round_up(value: float) -> float:
    """Far enough that storing it in single precision keeps it a bound."""
    return value + abs(value) * 1.2e-7 + 1e-6
