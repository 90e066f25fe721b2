"""What a state of the search can still earn at the prices: the bound on all plans through it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from migrator.planning.arrays import Float32s, Floats, Ints
from migrator.planning.exact.space import Space
from migrator.planning.exact.tables import NEVER
from migrator.planning.kernels import compiled, compiled_inner
from migrator.planning.survivors.board import (
    RETRAINING,
    WAITING,
    Shares,
    empty_best_shares,
    extras_beside,
    find_shares,
)
from migrator.planning.survivors.prices import ServingPrices, fill_waited, is_used, sums_before
from migrator.planning.survivors.serving import ServingTables

AFTER, NOW = 0, 1
"""What a pattern is worth from the next slot on, and from this one."""


class Ahead(NamedTuple):
    """What each tenant can still earn at the prices, and what the board can still rent out.

    `closed`: slots in which nothing that is new to the tenant can begin to serve.
    """

    values: Floats
    """[stage, tenant, slot, closed, pattern serving before the slot]; stage: 0 where the retraining
    has not started, 1 + c where it has completed in configuration c"""
    running: Float32s
    """[row, pattern]; row = first + end x stride + (end - slot)"""
    row: Ints
    """[tenant, option, 2]: (first, stride)"""
    waited: Floats
    """[size, slot]: sums of the prices of waiting before the slot"""
    retrained: Floats
    """[size, slot]: the same of the prices of retraining"""
    rent: Floats
    """[tenants still to start, mask, slot]: best rents summed up to the slot"""


def tabulate(
    serving: ServingTables,
    shares: Shares,
    prices: ServingPrices,
    space: Space,
    masks: Collection[int],
) -> Ahead:
    """The values to go at these prices; `masks`: what retrainings may occupy."""
    tenants, slots, width = prices.pattern.shape
    options, stages = serving.durations.shape[1], serving.accuracy.shape[1]
    row, rows = np.zeros((tenants, options, 2), np.int64), 0
    values = np.full((stages, tenants, slots + 1, int(serving.lead.max()) + 1, width), NEVER)
    for m, patterns in enumerate(serving.patterns):
        values[1:, m, slots, :, :patterns] = serving.later[m, 1:, None, None]
        if serving.optional[m]:
            values[0, m, slots, :, :patterns] = 0.0
        for option in range(options):
            if serving.durations[m, option] > 0:
                row[m, option] = rows, serving.durations[m, option] + 1
                rows += (slots + 1) * int(serving.durations[m, option] + 1)
        if serving.end_size[m] >= 0:
            row[m, serving.end_size[m]] = rows, 0
            rows += int(serving.end[m]) + 1
    sums = sums_before(prices.beside)
    ahead = Ahead(
        values=values,
        running=np.full((rows + 1, width), NEVER, np.float32),
        row=row,
        waited=sums[WAITING],
        retrained=sums[RETRAINING],
        rent=_sum_rents(shares, prices, space, masks),
    )
    _fill(serving, prices.pattern, sums, ahead, np.empty((slots, width)), np.empty((2, width)))
    return ahead


def _sum_rents(
    shares: Shares, prices: ServingPrices, space: Space, masks: Collection[int]
) -> Floats:
    """[tenants still to start, mask, slot]: best rents of the free slices up to the slot."""
    slots = prices.pattern.shape[1]
    rent = np.zeros((space.most_waiting + 1, len(shares.placeable), slots + 1))
    best = empty_best_shares(shares, slots)
    for mask in sorted(masks):
        alike = int(space.geometry.alike[mask])
        if alike < mask and alike in masks:
            rent[:, mask] = rent[:, alike]
            continue
        for still in range(len(rent)):
            extras = extras_beside(shares, mask, still)
            find_shares(0, slots, shares, extras, prices.pattern, prices.beside, best)
            rent[still, mask, 1:] = best.rent.cumsum()
    return rent


@compiled
def _fill(
    serving: ServingTables,
    price: Floats,
    rents: Floats,
    ahead: Ahead,
    waited: Floats,
    worth: Floats,
) -> None:
    """Fill `values` and `running` backwards from the window's end.

    waited [slot, pattern], worth [AFTER or NOW, pattern]: room for numbers.
    """
    tenants, slots, _ = price.shape
    values, lead, patterns = ahead.values, serving.lead, serving.patterns
    for m in range(tenants):
        fill_waited(m, serving, rents, waited)
        # retrained first: what starts now ends in it
        for stage in range(values.shape[0] - 1, -1, -1):
            if stage > 0 and not is_used(m, stage - 1, serving):
                continue
            accuracy = serving.accuracy[m, stage]
            for t in range(slots - 1, -1, -1):
                # closed slots: nothing new can serve, as it has not waited for the lead yet
                for closed in range(lead[m] + 1):
                    for p in range(patterns[m]):
                        worth[AFTER, p] = values[stage, m, t + 1, max(closed - 1, 0), p]
                    first_new = slots if closed > 0 else serving.first_new[m]
                    _step_back(t, m, first_new, accuracy, serving, price, waited, worth)
                    for p in range(patterns[m]):
                        values[stage, m, t, closed, p] = worth[NOW, p]
                    if stage == 0:
                        _start_now(t, m, closed, serving, rents, ahead)
            if stage > 0:  # what runs needs the values of its end, what waits those of `running`
                for k in range(rents.shape[1]):
                    option = (stage - 1) * rents.shape[1] + k
                    if serving.durations[m, option] > 0 or option == serving.end_size[m]:
                        _fill_running(m, option, serving, price, waited, worth, ahead)


@compiled_inner
def _start_now(
    t: int, m: int, closed: int, serving: ServingTables, rents: Floats, ahead: Ahead
) -> None:
    """Instead of waiting, start on some size in slot t and pay its price to the end."""
    values, row = ahead.values, ahead.row
    sizes, slots = rents.shape[1], rents.shape[2] - 1
    for option in range(serving.durations.shape[1]):
        duration, k = serving.durations[m, option], option % sizes
        end = t + duration
        if duration == 0 or end > slots:
            continue
        at = row[m, option, 0] + end * row[m, option, 1] + duration
        paid = rents[RETRAINING, k, end] - rents[RETRAINING, k, t]
        for p in range(serving.patterns[m]):
            started = ahead.running[at, p] - paid
            values[0, m, t, closed, p] = max(values[0, m, t, closed, p], started)


@compiled_inner
def _fill_running(
    m: int,
    option: int,
    serving: ServingTables,
    price: Floats,
    waited: Floats,
    worth: Floats,
    ahead: Ahead,
) -> None:
    """What tenant m can earn while it retrains in an option, for every end it may have."""
    patterns, row, sizes = serving.patterns[m], ahead.row, serving.counts.shape[2]
    first_row, stride = row[m, option, 0], row[m, option, 1]
    stage, k = 1 + option // sizes, option % sizes
    longest, low, high = serving.durations[m, option], 1, price.shape[1]
    first_new, accuracy = serving.first_new[m], serving.accuracy[m, 0]
    if longest == 0:  # it runs already
        longest = low = high = serving.end[m]
    for end in range(low, high + 1):
        for p in range(patterns):
            worth[NOW, p] = ahead.values[stage, m, end, 0, serving.with_size[m, p, k]]
        for slots_left in range(min(end, longest) + 1):
            if slots_left > 0:
                for p in range(patterns):
                    worth[AFTER, p] = worth[NOW, p]
                _step_back(end - slots_left, m, first_new, accuracy, serving, price, waited, worth)
            for p in range(patterns):
                # rounded up: single precision must keep it a bound
                up = worth[NOW, p] + abs(worth[NOW, p]) * 1.2e-7 + 1e-6
                ahead.running[first_row + end * stride + slots_left, p] = up


@compiled_inner
def _step_back(
    t: int,
    m: int,
    first_new: int,
    accuracy: float,
    serving: ServingTables,
    price: Floats,
    waited: Floats,
    worth: Floats,
) -> None:
    """worth[NOW, p]: best from slot t on when p served before; new ones begin from `first_new` on.

    worth[AFTER, p]: the same from slot t + 1 on.
    """
    steps, fewer = serving.steps, serving.fewer
    for p in range(serving.patterns[m]):
        worth[NOW, p] = NEVER
    for s in range(steps.shape[1]):
        stays, serves, begins = steps[m, s, 0], steps[m, s, 1], steps[m, s, 2]
        if stays < 0:
            break
        if stays != serves and t < first_new:
            continue
        earned = (
            accuracy * serving.served[m, t, s]
            - serving.lost[m, t, s]
            - price[m, t, serves]
            - waited[t, begins]
            + worth[AFTER, serves]
        )
        worth[NOW, stays] = max(worth[NOW, stays], earned)
    # dropping instances costs nothing: a pattern is worth at least what any part of it is
    for i in range(fewer.shape[1]):
        p, less = fewer[m, i, 0], fewer[m, i, 1]
        if p < 0:
            break
        worth[NOW, p] = max(worth[NOW, p], worth[NOW, less])
