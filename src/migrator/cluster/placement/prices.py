"""Prices for many GPUs at once: a bound on every placement, and on every set of tenants.

One table of prices per board serves all GPUs of that board. By `worth`, the goodput of a GPU is
at most its board's rent plus the values of its tenants there; so all GPUs together have at most
the rents of all of them plus, for every tenant, its value on the board where that is highest.
That holds for any prices; the sum is convex in them, and steps against the surplus lower it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from migrator.cluster.placement.worth import Floats, Worth, answers, offered, used
from migrator.plan.exact.prices import LAST_STEP, move

POOLED_STEPS, OWN_STEPS = 200, 100
"""Steps for the whole cluster, and for one set of tenants or another load."""


@dataclass(frozen=True, eq=False)
class Priced:
    """Prices with what follows from them; one of each per board."""

    prices: tuple[Floats, ...]
    values: Floats
    """[board, kind]"""
    rents: Floats
    """[board]"""
    bound: float
    """On `gpus` GPUs of each board and `weights` tenants of each kind."""


def find_prices(
    worths: Sequence[Worth], gpus: Sequence[float], weights: Floats, steps: int
) -> Priced:
    """Good prices for so many GPUs and tenants; what follows from them is exact whatever they are.

    They are sought on blocks of slots and only with the kinds that weigh anything.
    """
    present = np.flatnonzero(weights)
    sought = [each.coarse.only(present) for each in worths]
    blocks = _ascended(sought, gpus, weights[present], steps)
    prices = []
    for worth, each in zip(worths, blocks, strict=True):
        per_block = worth.before.shape[1] // len(each)
        prices.append(np.repeat(each / per_block, per_block, axis=0))
    values, rents = values_at(worths, prices)
    return Priced(tuple(prices), values, rents, bound_of(values, rents, gpus, weights))


def _ascended(
    worths: Sequence[Worth], gpus: Sequence[float], weights: Floats, steps: int
) -> list[Floats]:
    """The best prices met in `steps` steps."""
    total = max(float(sum(gpus)), 1e-9)
    share, part = np.array(gpus, np.float64) / total, weights / total
    prices = [_first(worth, part) for worth in worths]
    length = 2.0 * max(float(np.mean([each[:, 0].mean() for each in prices])), 1e-9)
    means = [np.zeros_like(each) for each in prices]
    squares = [np.zeros_like(each) for each in prices]
    best, lowest = prices, np.inf
    for step in range(steps):
        found = [answers(worth, each) for worth, each in zip(worths, prices, strict=True)]
        values = np.array([each.values for each in found])
        bound = bound_of(values, np.array([each.rent for each in found]), gpus, weights)
        if bound < lowest:
            best, lowest = [each.copy() for each in prices], bound
        home = values.argmax(axis=0)
        for b, worth in enumerate(worths):
            surplus = share[b] * offered(worth, prices[b])
            surplus -= used(worth, found[b], np.where(home == b, part, 0.0))
            now = length * LAST_STEP ** (step / steps)
            move(prices[b], surplus, means[b], squares[b], step, now, 0.0)
    return best


def bound_of(values: Floats, rents: Floats, gpus: Sequence[float], weights: Floats) -> float:
    """No placement of `weights` tenants on `gpus` GPUs has more goodput."""
    return float(rents @ np.array(gpus, np.float64) + weights @ values.max(axis=0))


def values_at(worths: Sequence[Worth], prices: Sequence[Floats]) -> tuple[Floats, Floats]:
    """([board, kind] values, [board] rents) at given prices."""
    found = [answers(worth, each) for worth, each in zip(worths, prices, strict=True)]
    return np.array([each.values for each in found]), np.array([each.rent for each in found])


def _first(worth: Worth, part: Floats) -> Floats:
    """A GPC costs about half of what a slot's goodput is over the board's GPCs."""
    slot = part @ np.maximum(worth.after.max(axis=2), 0.0)
    return np.outer(0.5 * slot / worth.gpcs[-1], worth.gpcs)
