"""Every set of tenants that one GPU of a board could hold, with what it is worth at most.

A set counts items; those that break a rule (minimum instances that do not fit together, tenants
that must be apart, a kind the board cannot serve) are not listed. What a set is worth at most
comes from prices, until the planner has said what it is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from migrator.cluster.placement.worth import Floats, Ints, Worth
from migrator.plan.exact.tables import IMPOSSIBLE

MOST_SETS = 120_000
"""Listed per board; larger sets are then left out, and the bound accounts for them."""
MOST_NUMBERS = 24_000_000
"""Sets x items listed per board: fewer sets where rules tell nearly all tenants apart."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Limits:
    """What a set has to keep on one board."""

    needs: Ints
    """[item, size]: instances of that size or a larger one that a unit must always hold."""
    room: Floats
    """[configuration, size]: instances of that size or a larger one that there are."""
    apart: Ints
    """[item, rule]: 1 where a unit has a tenant of the rule."""
    able: Bools
    """[item]: the board can serve it."""
    available: Ints
    """[item]: units that there are."""

    @cached_property
    def rivals(self) -> Bools:
        """[item, item]: no GPU has a unit of both; of an item with itself: only one of them."""
        rules = self.apart.astype(np.float64)
        return np.asarray(rules @ rules.T > 0)

    def takes(self, counts: Ints, needed: Ints, item: int) -> Bools:
        """[set]: whether a set that needs so much may have one more unit of the item."""
        fits = counts[:, item] < self.available[item]
        fits &= ~counts[:, np.flatnonzero(self.rivals[item])].any(axis=1)
        return np.asarray(fits & self.able[item] & _fits(needed + self.needs[item], self.room))

    def allow(self, counts: Ints) -> bool:
        """Whether a set keeps all of it."""
        held = np.flatnonzero(counts)
        return bool(
            (counts <= self.available).all()
            and self.able[held].all()
            and (counts @ self.apart <= 1).all()
            and _fits((counts @ self.needs)[None, :], self.room)[0]
        )


@dataclass(eq=False)
class Sets:
    """The sets of one board; the first is the empty one, which needs nothing and brings nothing."""

    counts: Ints
    """[set, item]"""
    value: Floats
    """[set]: an upper bound, or the planner's goodput where `exact`."""
    exact: Bools
    largest: int
    """Every set of up to so many units is listed."""
    most: int
    """Units that fit at most."""
    limits: Limits
    pool: list[tuple[Floats, float]] = field(default_factory=list)
    """Prices met: [item] values and the rent."""
    _index: dict[bytes, int] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether every set that fits is listed."""
        return self.largest >= self.most

    def lower(self, values: Floats, rent: float) -> None:
        """Take new prices into account: no set is worth more than its items and the rent."""
        self.pool.append((values, rent))
        bound = np.maximum(self.counts @ np.maximum(values, IMPOSSIBLE) + rent, 0.0)
        bound[0] = 0.0
        self.value = np.where(self.exact, self.value, np.minimum(self.value, bound))

    def settle(self, alike: Bools, goodput: float) -> None:
        """The planner has spoken, of sets that are alike to it."""
        self.value[alike], self.exact[alike] = goodput, True

    def find(self, counts: Ints) -> int | None:
        """The number of a set, None where it is not listed."""
        if not self._index:
            self._index = {_key(row): i for i, row in enumerate(self.counts)}
        return self._index.get(_key(counts))

    def add(self, rows: Sequence[Ints]) -> list[int | None]:
        """The numbers of these sets, listed now if they were not; None where one breaks a rule."""
        new = {_key(row): row for row in rows if self.find(row) is None and self.limits.allow(row)}
        if new:
            counts = np.array(list(new.values()), np.int64)
            self._index |= {key: len(self.counts) + at for at, key in enumerate(new)}
            self.counts = np.concatenate([self.counts, counts])
            self.value = np.append(self.value, self._bounds(counts))
            self.exact = np.append(self.exact, np.zeros(len(new), np.bool_))
        return [self.find(row) for row in rows]

    def _bounds(self, counts: Ints) -> Floats:
        """[set]: what sets are worth at most, by all prices met."""
        found = np.full(len(counts), np.inf)
        for values, rent in self.pool:
            found = np.minimum(found, counts @ np.maximum(values, IMPOSSIBLE) + rent)
        return np.asarray(np.maximum(found, 0.0))

    def beyond(self, prices: Floats) -> float:
        """The most that a set left out could be worth less its items' `prices`."""
        if self.whole:
            return -np.inf
        found = np.inf
        for values, rent in self.pool:
            each = float((np.maximum(values, IMPOSSIBLE) - prices).max())
            units = self.most if each > 0 else self.largest + 1
            found = min(found, rent + units * each)
        return found


def list_sets(
    worth: Worth, members: Ints, apart: Ints, available: Ints, most_sets: int = MOST_SETS
) -> Sets:
    """Sets by growing size; `members` [item, kind], `apart` [item, rule], `available` [item]."""
    limits = Limits(
        needs=members @ worth.needs,
        room=worth.offered[:, ::-1].cumsum(axis=1)[:, ::-1],
        apart=apart,
        able=(members @ ~worth.able) == 0,
        available=available,
    )
    left = min(most_sets, MOST_NUMBERS // len(members)) - 1
    layer: tuple[Ints, Ints] = np.zeros((1, len(members)), np.int64), np.zeros(1, np.int64)
    layers, most = [layer[0]], int(worth.offered.sum(axis=1).max())
    largest = most
    while len(layer[0]):
        # the sets of one unit are always listed, or some tenants would seem to have no room
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


def _grown(layer: Ints, last: Ints, limits: Limits, most: int) -> tuple[Ints, Ints] | None:
    """Every set with one more unit, no item before its last one: so each is made once.

    None where they are more than `most`.
    """
    needed = layer @ limits.needs
    grown, at = [layer[:0]], [last[:0]]
    for item in np.flatnonzero(limits.able).tolist():
        larger = layer[limits.takes(layer, needed, item) & (last <= item)]
        larger[:, item] += 1
        grown.append(larger)
        at.append(np.full(len(larger), item))
        most -= len(larger)
        if most < 0:
            return None
    return np.concatenate(grown), np.concatenate(at)


def _key(counts: Ints) -> bytes:
    return np.ascontiguousarray(counts, np.int64).tobytes()


def _fits(needs: Ints, room: Floats) -> Bools:
    """Whether some configuration has, for every size, enough instances of it or larger ones."""
    fits = np.zeros(len(needs), np.bool_)
    for each in room:
        fits |= (needs <= each).all(axis=1)
    return fits
