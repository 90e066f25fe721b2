"""Best responses of kinds and of the board to prices of instances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from migrator.cluster.placement.tables import BoardTable, Floats, Ints
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
