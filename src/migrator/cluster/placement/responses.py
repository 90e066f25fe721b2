"""Best responses of kinds and of the board to prices of instances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from migrator.cluster.placement.tables import Floats, Ints, Worth
from migrator.planning.exact.tables import NEVER


@dataclass(frozen=True, eq=False)
class Responses:
    """Best responses of the kinds and of the board to prices."""

    values: Floats
    """[kind]: its best schedule's goodput minus cost; NEVER if the board cannot serve it."""
    rent: float
    """Price of the most expensive configuration, summed over the slots."""
    schedules: tuple[Ints, Ints, Ints]
    """[kind, slot] pattern; [kind] end and size of its retraining, -1 without one."""


def best_responses(worth: Worth, prices: Floats) -> Responses:
    """The best response of every kind and of the board to `prices` [slot, size]."""
    slots, sizes = prices.shape
    cost = prices @ worth.counts.T
    first, then = worth.before - cost, worth.after - cost
    until, later, rents = _sums(first.max(axis=2)), _sums(then.max(axis=2)), _sums(prices.T)
    best, end, size = until[:, -1].copy(), np.full(len(first), slots), np.full(len(first), -1)
    if worth.durations.any():
        begins, may_end = worth.retrainings
        gained = until + (later[:, -1:] - later)
        value = gained[:, None] - (rents - rents[np.arange(sizes)[:, None], begins])
        value = np.where(may_end, value, NEVER).reshape(len(first), -1)
        at = value.argmax(axis=1)
        found = value[np.arange(len(at)), at]
        better = found > best
        best[better] = found[better]
        size[better], end[better] = np.divmod(at[better], slots + 1)
    held_first, held_then = first.argmax(axis=2), then.argmax(axis=2)
    held = np.where(np.arange(slots) < end[:, None], held_first, held_then)
    rent = float((prices @ worth.offered.T).max(axis=1).sum())
    return Responses(np.where(worth.able, best, NEVER), rent, (held, end, size))


def used(worth: Worth, found: Responses, weights: Floats) -> Floats:
    """[slot, size]: instances that `weights` tenants of each kind hold in their best schedules."""
    held, end, size = found.schedules
    total: Floats = np.einsum("k,kts->ts", weights, worth.counts[held])
    for kind in np.flatnonzero((size >= 0) & (weights != 0)):
        begin = end[kind] - worth.durations[kind, size[kind]]
        total[begin : end[kind], size[kind]] += weights[kind]
    return total


def offered(worth: Worth, prices: Floats) -> Floats:
    """[slot, size]: instances of the configuration with the highest price."""
    rented: Floats = worth.offered[(prices @ worth.offered.T).argmax(axis=1)]
    return rented


def _sums(values: Floats) -> Floats:
    """Cumulative sums along the last axis, beginning with 0."""
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    return sums
