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

from migrator.cluster.placement.responses import best_responses, offered, used
from migrator.cluster.placement.tables import Floats, Worth
from migrator.planning.exact.prices import LAST_STEP, move

POOLED_STEPS, OWN_STEPS = 200, 100
"""Subgradient steps for the whole cluster, and for one set of tenants or another load."""


@dataclass(frozen=True, eq=False)
class Priced:
    """Prices with the values, rents and bound that follow from them, per board."""

    prices: tuple[Floats, ...]
    values: Floats
    """[board, kind]"""
    rents: Floats
    """[board]"""
    bound: float
    """For `gpus` GPUs of each board and `weights` tenants of each kind."""


def find_prices(
    worths: Sequence[Worth], gpus: Sequence[float], weights: Floats, steps: int
) -> Priced:
    """Find good prices for `gpus` and `weights`; the bound holds for any prices.

    The search uses blocks of slots and only kinds of positive weight.
    """
    present = np.flatnonzero(weights)
    sought = [worth.coarse.only(present) for worth in worths]
    blocks = _ascended(sought, gpus, weights[present], steps)
    prices = []
    for worth, block in zip(worths, blocks, strict=True):
        per_block = worth.before.shape[1] // len(block)
        prices.append(np.repeat(block / per_block, per_block, axis=0))
    values, rents = values_at(worths, prices)
    return Priced(tuple(prices), values, rents, bound_of(values, rents, gpus, weights))


def _ascended(
    worths: Sequence[Worth], gpus: Sequence[float], weights: Floats, steps: int
) -> list[Floats]:
    """The best prices found in `steps` steps."""
    total = max(float(sum(gpus)), 1e-9)
    share, part = np.array(gpus, np.float64) / total, weights / total
    prices = [_first(worth, part) for worth in worths]
    length = 2.0 * max(float(np.mean([price[:, 0].mean() for price in prices])), 1e-9)
    means = [np.zeros_like(price) for price in prices]
    squares = [np.zeros_like(price) for price in prices]
    best, lowest = prices, np.inf
    for step in range(steps):
        found = [best_responses(worth, price) for worth, price in zip(worths, prices, strict=True)]
        values = np.array([each.values for each in found])
        bound = bound_of(values, np.array([each.rent for each in found]), gpus, weights)
        if bound < lowest:
            best, lowest = [price.copy() for price in prices], bound
        home = values.argmax(axis=0)
        for b, worth in enumerate(worths):
            surplus = share[b] * offered(worth, prices[b])
            surplus -= used(worth, found[b], np.where(home == b, part, 0.0))
            now = length * LAST_STEP ** (step / steps)
            move(prices[b], surplus, means[b], squares[b], step, now, 0.0)
    return best


def bound_of(values: Floats, rents: Floats, gpus: Sequence[float], weights: Floats) -> float:
    """Upper bound on the goodput of any placement of `weights` tenants on `gpus` GPUs."""
    return float(rents @ np.array(gpus, np.float64) + weights @ values.max(axis=0))


def values_at(worths: Sequence[Worth], prices: Sequence[Floats]) -> tuple[Floats, Floats]:
    """([board, kind] values, [board] rents) at given prices."""
    found = [best_responses(worth, price) for worth, price in zip(worths, prices, strict=True)]
    return np.array([each.values for each in found]), np.array([each.rent for each in found])


def _first(worth: Worth, part: Floats) -> Floats:
    """Initial prices: a GPC costs half of a slot's goodput per GPC of the board."""
    slot = part @ np.maximum(worth.after.max(axis=2), 0.0)
    return np.outer(0.5 * slot / worth.gpcs[-1], worth.gpcs)
