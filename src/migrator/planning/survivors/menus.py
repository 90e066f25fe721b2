"""What a slot can hold, position by position: every way to share the free slices out.

Under the `survivors` charge holding more never hurts (nothing is charged for an instance that
serves no requests yet), so only allocations to which nothing can be added need to be looked at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.core.catalogue import Board, PlacementSet, multiset_of, placement_sets
from migrator.core.problem import Problem
from migrator.planning.arrays import Bools, Int32s, Ints
from migrator.planning.exact.geometry import Geometry, geometry
from migrator.planning.exact.space import Space

Needs = tuple[tuple[frozenset[int], int], ...]
"""Per tenant, the sizes that can serve it and its min_gpcs."""
_MOST_MENUS = 16
_MENUS: dict[tuple[Board, Needs], Menus] = {}


class Menu(NamedTuple):
    """The shares of one mask of occupied slices."""

    shares: Ints
    """[share, tenant] -> number of the set of placements that the tenant holds"""
    joint: Ints
    """[share] -> the joint pattern it is"""
    sets: Ints
    """[tenant, n]: the placement sets that occur in `shares`; -1 ends"""
    order: Int32s
    """[n] -> share: by joint pattern, then by the sets of the first tenant, of the second, ..."""
    after: Int32s
    """[n, tenant]: the next place in `order` with another joint pattern, or where another set is
    held by this tenant or one before it"""
    begin: Ints
    """[group + 1]: where the shares of a joint pattern begin in `order`"""
    patterns: Ints
    """[group, tenant] -> its pattern"""
    pattern_of: Ints
    """[tenant, set of placements] -> its pattern"""


def menus_of(problem: Problem, space: Space) -> Menus:
    """The menus of a problem, cached: replanning meets the same tenants every second."""
    needs = tuple((frozenset(tenant.capability), tenant.min_gpcs) for tenant in problem.tenants)
    key = problem.board, needs
    if key not in _MENUS:
        if len(_MENUS) >= _MOST_MENUS:
            _MENUS.clear()
        _MENUS[key] = Menus(problem.board, needs, space)
    return _MENUS[key]


class Menus:
    """Own sets, numbered for all tenants alike, and the menu of every mask, made on demand."""

    def __init__(self, board: Board, needs: Needs, space: Space) -> None:
        """Number the placement sets of the board."""
        self._needs = needs
        # joint patterns as numbers in a mixed base, so that all shares are looked up at once
        self._base = np.cumprod([1, *(len(patterns) for patterns in space.patterns[:-1])])
        self._joint = np.full(int(self._base[-1]) * len(space.patterns[-1]), -1, np.int64)
        self._joint[space.joint @ self._base] = np.arange(len(space.joint))
        self._geo: Geometry = geometry(board)
        self._sets: tuple[PlacementSet, ...] = placement_sets(board)
        at = {place: i for i, place in enumerate(self._geo.places)}
        longest = max(map(len, self._sets))
        self.places = np.full((len(self._sets), longest + 1), -1, np.int64)
        self._number = np.full(1 << len(self._geo.places), -1, np.int64)
        for number, chosen in enumerate(self._sets):
            where = [at[place] for place in chosen]
            self.places[number, : len(where)] = where
            self._number[sum(1 << i for i in where)] = number
        self._allowed = [self._allowed_to(*need) for need in needs]
        of_set = [multiset_of(chosen) for chosen in self._sets]
        self._pattern = np.array(
            [
                [patterns.index(p) if p in patterns else -1 for p in of_set]
                for patterns in space.patterns
            ]
        )
        self._known: dict[int, Menu] = {}

    def menu(self, mask: int) -> Menu:
        """Every share of the slices that `mask` leaves free."""
        if mask not in self._known:
            self._known[mask] = self._make(mask)
        return self._known[mask]

    def _allowed_to(self, sizes: frozenset[int], min_gpcs: int) -> Bools:
        return np.array(
            [
                all(place.gpcs in sizes for place in chosen)
                and any(place.gpcs >= min_gpcs for place in chosen)
                for chosen in self._sets
            ]
        )

    def _make(self, mask: int) -> Menu:
        tenants = len(self._needs)
        assigned = [self._assigned(chosen) for chosen in self._sets if self._is_full(chosen, mask)]
        shares = np.concatenate([np.empty((0, tenants), np.int64), *assigned])
        occurring_sets = [np.unique(shares[:, m]) for m in range(tenants)]
        sets = np.full((tenants, max(map(len, occurring_sets)) + 1), -1, np.int64)
        for m, occurring in enumerate(occurring_sets):
            sets[m, : len(occurring)] = occurring
        patterns = np.take_along_axis(self._pattern.T, shares, axis=0)
        joint = self._joint[patterns @ self._base]
        order = np.lexsort((*shares.T[::-1], joint))
        begin = np.flatnonzero(np.diff(joint[order], prepend=-1))
        return Menu(
            shares=np.ascontiguousarray(shares),
            joint=joint,
            sets=sets,
            order=order.astype(np.int32),
            after=_after(joint[order], shares[order]),
            begin=np.append(begin, len(order)),
            patterns=patterns[order[begin]],
            pattern_of=self._pattern,
        )

    def _is_full(self, chosen: PlacementSet, mask: int) -> bool:
        taken = mask
        for place in chosen:
            if place.mask & taken:
                return False
            taken |= place.mask
        usable = {size for sizes, _ in self._needs for size in sizes}
        if any(place.gpcs not in usable for place in chosen):
            return False
        return all(place.mask & taken or place.gpcs not in usable for place in self._geo.places)

    def _assigned(self, chosen: PlacementSet) -> Ints:
        """[share, tenant]: every assignment of the chosen placements to tenants that is legal."""
        tenants = len(self._needs)
        owners = np.indices((tenants,) * len(chosen)).reshape(len(chosen), -1)
        bits = np.array([1 << self._geo.places.index(place) for place in chosen])
        shares = np.empty((owners.shape[1], tenants), np.int64)
        legal = np.ones(owners.shape[1], np.bool_)
        for m in range(tenants):
            number = self._number[((owners == m) * bits[:, None]).sum(axis=0)]
            legal &= (number >= 0) & self._allowed[m][number]
            shares[:, m] = number
        return shares[legal]


def _after(joint: Ints, shares: Ints) -> Int32s:
    """[n, tenant]: see `Menu.after`, of sorted shares."""
    after = np.empty(shares.shape, np.int32)
    differs = np.diff(joint, append=-1) != 0
    for m in range(shares.shape[1]):
        differs |= np.diff(shares[:, m], append=-1) != 0
        ends = np.flatnonzero(differs) + 1
        after[:, m] = np.repeat(ends, np.diff(ends, prepend=0))
    return after
