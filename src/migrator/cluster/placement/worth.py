"""What kinds of tenants are worth on a board when instances have prices, each kind alone.

`values` + `rent` is a bound on every plan of every set of tenants on one board, for any prices
that are not negative. Let a plan be given. In a slot its instances fit on the board, so the sizes
held are part of some configuration and cost at most what the dearest configuration earns: over
the window at most `rent`. So the plan's goodput is at most `rent` + the sum, over its tenants, of
goodput less the price of what that tenant holds. What one tenant holds are patterns for
inference, one per slot, and perhaps one instance for its retraining, for as many slots as that
takes on its size; its goodput in a slot is at most accuracy x E[min(received, capability of the
pattern)], since a change or a cold instance only takes away from it. `values` is the largest
difference over all such lives, changes free, retraining optional and anywhere in the window: no
tenant's part of the plan is worth more. The argument never says who else is on the board.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from migrator.core.catalogue import Board
from migrator.core.placement import configurations, multisets
from migrator.core.problem import Tenant
from migrator.plan.exact.tables import NEVER, expected_throughput

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCKS = 40
"""Into about so many a window is divided to look for prices."""


@dataclass(frozen=True, eq=False)
class Worth:
    """Tables of some kinds on one board; [kind, ...] throughout."""

    gpcs: Floats
    """[size]"""
    counts: Floats
    """[pattern, size]"""
    offered: Floats
    """[configuration, size]"""
    before: Floats
    """[kind, slot, pattern]: goodput of a slot before a retraining; NEVER where it may not be."""
    after: Floats
    """The same once retrained."""
    durations: Ints
    """[kind, size]: slots of a retraining, 0 where it cannot be."""
    needs: Ints
    """[kind, size]: 1 where it must always hold an instance of that size or a larger one."""
    able: NDArray[np.bool_]
    """[kind]: the board can serve it."""

    @cached_property
    def coarse(self) -> Worth:
        """The same in blocks of slots, for looking for prices: quicker, and a bound of nothing."""
        slots = self.before.shape[1]
        per_block = next(
            each for each in range(-(-slots // BLOCKS), slots + 1) if slots % each == 0
        )
        blocks = slots // per_block
        shape = (len(self.before), blocks, per_block, -1)
        return replace(
            self,
            before=self.before.reshape(shape).sum(axis=2),
            after=self.after.reshape(shape).sum(axis=2),
            durations=-(-self.durations // per_block),
        )

    def only(self, kinds: Ints) -> Worth:
        """The tables of some kinds."""
        return replace(
            self,
            before=self.before[kinds],
            after=self.after[kinds],
            durations=self.durations[kinds],
            needs=self.needs[kinds],
            able=self.able[kinds],
        )


def worth_of(board: Board, slots: int, tenants: Sequence[Tenant | None]) -> Worth:
    """Tabulate tenants, one of each kind; None: the board cannot serve that kind."""
    known = multisets(board)
    counts = np.array([[p.count(size) for size in board.sizes] for p in known], np.float64)
    shape = (len(tenants), slots, len(known))
    before, after = np.full(shape, NEVER), np.full(shape, NEVER)
    durations = np.zeros((len(tenants), len(board.sizes)), np.int64)
    needs = np.zeros_like(durations)
    for kind, tenant in enumerate(tenants):
        if tenant is None:
            continue
        able = np.array([_may_hold(tenant, p) for p in known])
        total = counts[able] @ np.array([tenant.capability.get(size, 0.0) for size in board.sizes])
        served = expected_throughput(tenant, total)
        before[kind][:, able] = tenant.accuracy_pre * served
        after[kind][:, able] = tenant.accuracy_post * served
        for size, taken in (tenant.retraining_slots or {}).items():
            durations[kind, board.sizes.index(size)] = taken
        least = min(size for size in tenant.capability if size >= tenant.min_gpcs)
        needs[kind] = [size <= least for size in board.sizes]
    return Worth(
        gpcs=np.array(board.sizes, np.float64),
        counts=counts,
        offered=np.array(
            [[p.count(size) for size in board.sizes] for p in configurations(board)], np.float64
        ),
        before=before,
        after=after,
        durations=durations,
        needs=needs,
        able=np.array([each is not None for each in tenants]),
    )


def _may_hold(tenant: Tenant, pattern: tuple[int, ...]) -> bool:
    return max(pattern) >= tenant.min_gpcs and all(size in tenant.capability for size in pattern)


@dataclass(frozen=True, eq=False)
class Answers:
    """What the kinds and the board make of prices."""

    values: Floats
    """[kind]: its best life less what that costs; NEVER where the board cannot serve it."""
    rent: float
    """What the board earns at most."""
    lives: tuple[Ints, Ints, Ints]
    """[kind, slot] pattern; [kind] end and size of its retraining, -1 where there is none."""


def answers(worth: Worth, prices: Floats) -> Answers:
    """Every kind's answer to `prices` [slot, size], and the board's."""
    slots, sizes = prices.shape
    cost = prices @ worth.counts.T
    first, then = worth.before - cost, worth.after - cost
    held_first, held_then = first.argmax(axis=2), then.argmax(axis=2)
    until = _sums(np.take_along_axis(first, held_first[:, :, None], 2)[:, :, 0])
    later = _sums(np.take_along_axis(then, held_then[:, :, None], 2)[:, :, 0])
    rents = _sums(prices.T)
    best, end, size = until[:, -1].copy(), np.full(len(first), slots), np.full(len(first), -1)
    moments = np.arange(slots + 1)
    for k in range(sizes):
        taken = worth.durations[:, k, None]
        begins = np.maximum(moments - taken, 0)
        value = until + (later[:, -1:] - later) - (rents[k][None, :] - rents[k][begins])
        value = np.where((taken > 0) & (moments >= taken), value, NEVER)
        at = value.argmax(axis=1)
        found = value[np.arange(len(at)), at]
        better = found > best
        best[better], end[better], size[better] = found[better], at[better], k
    held = np.where(np.arange(slots) < end[:, None], held_first, held_then)
    rent = float((prices @ worth.offered.T).max(axis=1).sum())
    return Answers(np.where(worth.able, best, NEVER), rent, (held, end, size))


def used(worth: Worth, found: Answers, weights: Floats) -> Floats:
    """[slot, size]: what `weights` tenants of each kind hold in their best lives."""
    held, end, size = found.lives
    total: Floats = np.einsum("k,kts->ts", weights, worth.counts[held])
    for kind in np.flatnonzero((size >= 0) & (weights != 0)):
        begin = end[kind] - worth.durations[kind, size[kind]]
        total[begin : end[kind], size[kind]] += weights[kind]
    return total


def offered(worth: Worth, prices: Floats) -> Floats:
    """[slot, size]: what the board rents out at these prices."""
    rented: Floats = worth.offered[(prices @ worth.offered.T).argmax(axis=1)]
    return rented


def _sums(values: Floats) -> Floats:
    """Sums before each slot, along the last axis, the whole at its end."""
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    return sums
