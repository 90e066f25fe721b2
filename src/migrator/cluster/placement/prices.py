"""Upper bounds on goodput by prices of instances.

They are a Lagrangian relaxation.

For one GPU: `values` + `rent` bounds every plan of every set of tenants on one board, for any
non-negative prices. In a slot the plan's instances fit on the board, so their total price is at
most that of the most expensive configuration: over the window at most `rent`. The plan's goodput
is therefore at most `rent` plus, per tenant, its goodput minus the price of its instances. A tenant
holds one pattern of instances per slot for inference and possibly one instance for its retraining;
its goodput in a slot is at most accuracy x E[min(received, capability of the pattern)]. `values` is
the maximum of that difference over all schedules of the tenant, with free changes and an optional
retraining anywhere in the window. The other tenants on the board do not matter.

For many GPUs: the total goodput is at most the sum of the rents plus, for every tenant, its value
on the board where that is highest. The sum is convex in the prices; subgradient steps against the
surplus lower it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from migrator.cluster.placement.tables import BoardTable, Floats, Ints
from migrator.planning.exact.prices import LAST_STEP, move
from migrator.planning.exact.tables import NEVER

POOLED_STEPS, OWN_STEPS = 200, 100
"""Subgradient steps for the whole cluster, and for one set of tenants or another load."""


@dataclass(frozen=True, eq=False)
class Responses:
    """Best responses of the kinds and of the board to prices."""

    values: Floats
    """[kind]: its best schedule's goodput minus cost; NEVER if the board cannot serve it."""
    rent: float
    """Price of the most expensive configuration, summed over the slots."""
    schedules: tuple[Ints, Ints, Ints]
    """[kind, slot] pattern; [kind] end and size of its retraining, -1 without one."""


def best_responses(table: BoardTable, prices: Floats) -> Responses:
    """The best response of every kind and of the board to `prices` [slot, size]."""
    slots, sizes = prices.shape
    cost = prices @ table.counts.T
    before, after = table.before - cost, table.after - cost
    until, later, rents = _sums(before.max(axis=2)), _sums(after.max(axis=2)), _sums(prices.T)
    best, end, size = until[:, -1].copy(), np.full(len(before), slots), np.full(len(before), -1)
    if table.durations.any():
        begins, may_end = table.retrainings
        gained = until + (later[:, -1:] - later)
        value = gained[:, None] - (rents - rents[np.arange(sizes)[:, None], begins])
        value = np.where(may_end, value, NEVER).reshape(len(before), -1)
        best_at = value.argmax(axis=1)
        with_retraining = value[np.arange(len(best_at)), best_at]
        better = with_retraining > best
        best[better] = with_retraining[better]
        size[better], end[better] = np.divmod(best_at[better], slots + 1)
    held_first, held_then = before.argmax(axis=2), after.argmax(axis=2)
    pattern = np.where(np.arange(slots) < end[:, None], held_first, held_then)
    rent = float((prices @ table.offered.T).max(axis=1).sum())
    return Responses(np.where(table.able, best, NEVER), rent, (pattern, end, size))


def used(table: BoardTable, responses: Responses, weights: Floats) -> Floats:
    """[slot, size]: instances that `weights` tenants of each kind hold in their best schedules."""
    pattern, end, size = responses.schedules
    total: Floats = np.einsum("k,kts->ts", weights, table.counts[pattern])
    for kind in np.flatnonzero((size >= 0) & (weights != 0)):
        begin = end[kind] - table.durations[kind, size[kind]]
        total[begin : end[kind], size[kind]] += weights[kind]
    return total


def offered(table: BoardTable, prices: Floats) -> Floats:
    """[slot, size]: instances of the configuration with the highest price."""
    rented: Floats = table.offered[(prices @ table.offered.T).argmax(axis=1)]
    return rented


def _sums(values: Floats) -> Floats:
    """Cumulative sums along the last axis, beginning with 0."""
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    return sums


@dataclass(frozen=True, eq=False)
class Priced:
    """The values, rents and bound that follow from prices."""

    values: Floats
    """[board, kind]"""
    rents: Floats
    """[board]"""
    bound: float
    """For `gpus` GPUs of each board and `weights` tenants of each kind."""


def find_prices(
    tables: Sequence[BoardTable], gpus: Sequence[float], weights: Floats, steps: int
) -> Priced:
    """Find good prices for `gpus` and `weights`; the bound holds for any prices.

    The search uses blocks of slots and only kinds of positive weight.
    """
    present = np.flatnonzero(weights)
    sought = [table.coarse.of_kinds(present) for table in tables]
    blocks = _ascended(sought, gpus, weights[present], steps)
    prices = []
    for table, block in zip(tables, blocks, strict=True):
        per_block = table.before.shape[1] // len(block)
        prices.append(np.repeat(block / per_block, per_block, axis=0))
    values, rents = _values_and_rents(list(map(best_responses, tables, prices)))
    return Priced(values, rents, _bound(values, rents, gpus, weights))


def _ascended(
    tables: Sequence[BoardTable], gpus: Sequence[float], weights: Floats, steps: int
) -> list[Floats]:
    """The best prices found in `steps` steps."""
    total = max(float(sum(gpus)), 1e-9)
    share, part = np.array(gpus, np.float64) / total, weights / total
    prices = [_first(table, part) for table in tables]
    length = 2.0 * max(float(np.mean([price[:, 0].mean() for price in prices])), 1e-9)
    means = [np.zeros_like(price) for price in prices]
    squares = [np.zeros_like(price) for price in prices]
    best, lowest = prices, np.inf
    for step in range(steps):
        responses = list(map(best_responses, tables, prices))
        values, rents = _values_and_rents(responses)
        bound = _bound(values, rents, gpus, weights)
        if bound < lowest:
            best, lowest = [price.copy() for price in prices], bound
        home = values.argmax(axis=0)
        for b, table in enumerate(tables):
            surplus = share[b] * offered(table, prices[b])
            surplus -= used(table, responses[b], np.where(home == b, part, 0.0))
            step_length = length * LAST_STEP ** (step / steps)
            move(prices[b], surplus, means[b], squares[b], step, step_length, 0.0)
    return best


def _bound(values: Floats, rents: Floats, gpus: Sequence[float], weights: Floats) -> float:
    """Upper bound on the goodput of any placement of `weights` tenants on `gpus` GPUs."""
    return float(rents @ np.array(gpus, np.float64) + weights @ values.max(axis=0))


def _values_and_rents(responses: Sequence[Responses]) -> tuple[Floats, Floats]:
    """([board, kind] values, [board] rents)."""
    values = np.array([response.values for response in responses])
    return values, np.array([response.rent for response in responses])


def _first(table: BoardTable, part: Floats) -> Floats:
    """Initial prices: a GPC costs half of a slot's goodput per GPC of the board."""
    slot = part @ np.maximum(table.after.max(axis=2), 0.0)
    return np.outer(0.5 * slot / table.gpcs[-1], table.gpcs)
