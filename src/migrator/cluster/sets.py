"""Every set of tenants that one GPU of a board could hold, with what it is worth at most.

A set counts items; those that break a rule (minimum instances that do not fit together, tenants
that must be apart, a kind the board cannot serve) are not listed. What a set is worth at most
comes from prices, until the planner has said what it is worth.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from migrator.cluster.worth import Floats, Ints, Worth
from migrator.plan.exact.tables import IMPOSSIBLE

MOST_SETS = 120_000
"""Listed per board; larger sets are then left out, and the bound accounts for them."""


@dataclass(eq=False)
class Sets:
    """The sets of one board; the first is the empty one, which needs nothing and brings nothing."""

    counts: Ints
    """[set, item]"""
    value: Floats
    """[set]: an upper bound, or the planner's goodput where `exact`."""
    exact: NDArray[np.bool_]
    largest: int
    """Every set of up to so many units is listed."""
    most: int
    """Units that fit at most."""
    pool: list[tuple[Floats, float]] = field(default_factory=list)
    """Prices met: [item] values and the rent."""
    _index: dict[bytes, int] = field(default_factory=dict)

    def lower(self, values: Floats, rent: float) -> None:
        """Take new prices into account: no set is worth more than its items and the rent."""
        self.pool.append((values, rent))
        bound = np.maximum(self.counts @ np.maximum(values, IMPOSSIBLE) + rent, 0.0)
        bound[0] = 0.0
        self.value = np.where(self.exact, self.value, np.minimum(self.value, bound))

    def settle(self, index: int, goodput: float) -> None:
        """The planner has spoken."""
        self.value[index], self.exact[index] = goodput, True

    def find(self, counts: Ints) -> int | None:
        """The number of a set, None where it is not listed."""
        if not self._index:
            self._index = {row.tobytes(): i for i, row in enumerate(self.counts)}
        return self._index.get(np.ascontiguousarray(counts, np.int64).tobytes())

    def beyond(self, prices: Floats) -> float:
        """The most that a set left out could be worth less its items' `prices`."""
        if self.largest >= self.most:
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
    needs, able = members @ worth.needs, (members @ ~worth.able) == 0
    room = worth.offered[:, ::-1].cumsum(axis=1)[:, ::-1]
    usable = np.flatnonzero(able)
    layer, last = np.zeros((1, len(members)), np.int64), np.zeros(1, np.int64)
    layers, total, largest = [layer], 1, 0
    while len(layer):
        layer, last = _grown(layer, last, usable)
        fits = _fits(layer @ needs, room) & (layer <= available).all(axis=1)
        fits &= (layer @ apart <= 1).all(axis=1)
        layer, last = layer[fits], last[fits]
        if not len(layer) or total + len(layer) > most_sets:
            break
        layers.append(layer)
        total, largest = total + len(layer), largest + 1
    counts, most = np.concatenate(layers), int(worth.offered.sum(axis=1).max())
    return Sets(
        counts=counts,
        value=np.where(counts.any(axis=1), np.inf, 0.0),
        exact=np.logical_not(counts.any(axis=1)),
        largest=largest if len(layer) else most,
        most=most,
    )


def _grown(layer: Ints, last: Ints, usable: Ints) -> tuple[Ints, Ints]:
    """Every set with one more unit, no item before its last one: so each is made once."""
    grown, at = [], []
    for item in usable:
        larger = layer[last <= item].copy()
        larger[:, item] += 1
        grown.append(larger)
        at.append(np.full(len(larger), item))
    if not grown:
        return layer[:0], last[:0]
    return np.concatenate(grown), np.concatenate(at)


def _fits(needs: Ints, room: Floats) -> NDArray[np.bool_]:
    """Whether some configuration has, for every size, enough instances of it or larger ones."""
    fits = np.zeros(len(needs), np.bool_)
    for each in room:
        fits |= (needs <= each).all(axis=1)
    return fits
