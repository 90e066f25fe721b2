"""Sets of tenants that one GPU can hold, each with an upper bound on its value.

A set is a number of tenants per item. Sets that break a rule (minimum instances do not fit on one
GPU, tenants that must be apart, a kind that the board cannot serve) are not listed. The upper bound
on a set's value comes from prices until the planner has made its plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from migrator.cluster.placement.tables import BoardTable, Floats, Ints
from migrator.cluster.scenario import Worth
from migrator.planning.exact.tables import IMPOSSIBLE

MOST_SETS = 120_000
"""Limit per board; larger sets are not listed, and the bound accounts for them."""
MOST_NUMBERS = 24_000_000
"""Limit of sets x items per board."""
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class SetLimits:
    """The constraints on sets of one board."""

    needs: Ints
    """[item, size]: instances of at least that size that a tenant always needs."""
    room: Floats
    """[configuration, size]: instances of at least that size."""
    apart: Ints
    """[item, rule]: 1 if the rule names the item's tenants."""
    able: Bools
    """[item]: whether the board can serve it."""
    available: Ints
    """[item]: number of tenants."""

    @cached_property
    def rivals(self) -> Bools:
        """[item, item]: whether tenants of both must not share a GPU."""
        rules = self.apart.astype(np.float64)
        return np.asarray(rules @ rules.T > 0)

    def has_room(self, counts: Ints, needed: Ints, item: int) -> Bools:
        """[set]: whether a set with these minimum instances has room for one more tenant."""
        fits = counts[:, item] < self.available[item]
        fits &= ~counts[:, np.flatnonzero(self.rivals[item])].any(axis=1)
        return np.asarray(fits & self.able[item] & _fits(needed + self.needs[item], self.room))

    def allows(self, counts: Ints) -> bool:
        """Whether a set satisfies all constraints."""
        items = np.flatnonzero(counts)
        return bool(
            (counts <= self.available).all()
            and self.able[items].all()
            and (counts @ self.apart <= 1).all()
            and _fits((counts @ self.needs)[None, :], self.room)[0]
        )


@dataclass(eq=False)
class Sets:
    """The sets of one board; the first one is empty, with value 0."""

    counts: Ints
    """[set, item]"""
    value: Floats
    """[set]: an upper bound, or the value of the planner's plan where `exact`."""
    exact: Bools
    largest: int
    """All sets of up to this many tenants are listed."""
    most: int
    """The largest number of tenants that fit."""
    limits: SetLimits
    pool: list[tuple[Floats, float]] = field(default_factory=list)
    """Prices found so far: [item] values and the rent."""
    planned: dict[int, Worth] = field(default_factory=lambda: {0: Worth()})
    """Set -> what its plan is worth, where `exact`."""
    _index: dict[bytes, int] = field(default_factory=dict)

    @property
    def all_listed(self) -> bool:
        """Whether every set that fits is listed."""
        return self.largest >= self.most

    def lower_bounds(self, values: Floats, rent: float) -> None:
        """Lower the bounds by new prices: no set exceeds its items' values plus the rent."""
        self.pool.append((values, rent))
        bound = np.maximum(self.counts @ np.maximum(values, IMPOSSIBLE) + rent, 0.0)
        bound[0] = 0.0
        self.value = np.where(self.exact, self.value, np.minimum(self.value, bound))

    def record(self, alike: Bools, worth: Worth) -> None:
        """Record what the planner's plan is worth for these equivalent sets."""
        self.value[alike], self.exact[alike] = worth.value, True
        self.planned |= dict.fromkeys(np.flatnonzero(alike).tolist(), worth)

    def worth(self, index: int, value: float) -> Worth:
        """What the set's plan is worth; if there is none, what others of that value are."""
        if index in self.planned:
            return self.planned[index]
        typical = [worth for worth in self.planned.values() if worth.value > 0]
        total = sum(worth.value for worth in typical)
        if not total:
            return Worth(value, value, planned=False)
        goodput, short = (
            sum(getattr(worth, name) for worth in typical) for name in ("goodput", "short")
        )
        return Worth(goodput, total, short, planned=False).scaled(value / total)

    def find(self, counts: Ints) -> int | None:
        if not self._index:
            self._index = {_key(row): i for i, row in enumerate(self.counts)}
        return self._index.get(_key(counts))

    def add(self, rows: Sequence[Ints]) -> list[int | None]:
        """Add missing sets and return all indices; None for a set that breaks a rule."""
        new = {_key(row): row for row in rows if self.find(row) is None and self.limits.allows(row)}
        if new:
            counts = np.array(list(new.values()), np.int64)
            self._index |= {key: len(self.counts) + position for position, key in enumerate(new)}
            self.counts = np.concatenate([self.counts, counts])
            self.value = np.append(self.value, self._bounds(counts))
            self.exact = np.append(self.exact, np.zeros(len(new), np.bool_))
        return [self.find(row) for row in rows]

    def _bounds(self, counts: Ints) -> Floats:
        """[set]: upper bounds by all prices found so far."""
        bounds = np.full(len(counts), np.inf)
        for values, rent in self.pool:
            bounds = np.minimum(bounds, counts @ np.maximum(values, IMPOSSIBLE) + rent)
        return np.asarray(np.maximum(bounds, 0.0))

    def highest_unlisted(self, prices: Floats) -> float:
        """The highest reduced value that a set which is not listed could have."""
        if self.all_listed:
            return -np.inf
        highest = np.inf
        for values, rent in self.pool:
            per_tenant = float((np.maximum(values, IMPOSSIBLE) - prices).max())
            tenants = self.most if per_tenant > 0 else self.largest + 1
            highest = min(highest, rent + tenants * per_tenant)
        return highest


def list_sets(
    table: BoardTable, members: Ints, apart: Ints, available: Ints, most_sets: int = MOST_SETS
) -> Sets:
    """List sets by size; `members` [item, kind], `apart` [item, rule], `available` [item]."""
    limits = SetLimits(
        needs=members @ table.needs,
        room=table.offered[:, ::-1].cumsum(axis=1)[:, ::-1],
        apart=apart,
        able=(members @ ~table.able) == 0,
        available=available,
    )
    left = min(most_sets, MOST_NUMBERS // len(members)) - 1
    layer: tuple[Ints, Ints] = np.zeros((1, len(members)), np.int64), np.zeros(1, np.int64)
    layers, most = [layer[0]], int(table.offered.sum(axis=1).max())
    largest = most
    while len(layer[0]):
        # sets of one tenant are always listed: otherwise tenants would seem to have no room
        larger = _grown(*layer, limits, left if len(layers) > 1 else len(members))
        if larger is None:
            largest = len(layers) - 1
            break
        layer = larger
        layers.append(layer[0])
        left -= len(layer[0])
    counts = np.concatenate(layers)
    return Sets(
        counts=counts,
        value=np.where(counts.any(axis=1), np.inf, 0.0),
        exact=np.logical_not(counts.any(axis=1)),
        largest=largest,
        most=most,
        limits=limits,
    )


def _grown(layer: Ints, last: Ints, limits: SetLimits, most: int) -> tuple[Ints, Ints] | None:
    """All sets with one more tenant, each generated once: items are added in ascending order.

    None if there are more than `most`.
    """
    needed = layer @ limits.needs
    grown, added = [layer[:0]], [last[:0]]
    for item in np.flatnonzero(limits.able).tolist():
        larger = layer[limits.has_room(layer, needed, item) & (last <= item)]
        larger[:, item] += 1
        grown.append(larger)
        added.append(np.full(len(larger), item))
        most -= len(larger)
        if most < 0:
            return None
    return np.concatenate(grown), np.concatenate(added)


def _key(counts: Ints) -> bytes:
    return np.ascontiguousarray(counts, np.int64).tobytes()


def _fits(needs: Ints, room: Floats) -> Bools:
    """[set]: whether some configuration has enough instances of at least every size."""
    fits = np.zeros(len(needs), np.bool_)
    for configuration in room:
        fits |= (needs <= configuration).all(axis=1)
    return fits
