"""What is placed as one: tenants that must be together, grouped by what tells them apart.

Units that are alike (the same kinds, apart from the same others) are interchangeable, so a
placement first says how many of each item a GPU gets, and names come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.core.cluster import Rules

Unit = tuple[str, ...]
"""Tenants that share a GPU whatever happens: often one."""


@dataclass(frozen=True)
class Item:
    """Units that are alike."""

    kinds: tuple[int, ...]
    """Of a unit's tenants, ascending."""
    apart: frozenset[int]
    """The rules of which a unit has a tenant."""
    units: tuple[Unit, ...]


def items_of(kind_of: Mapping[str, int], rules: Rules) -> tuple[Item, ...]:
    """Every tenant in one unit of one item."""
    alike: dict[tuple[tuple[int, ...], frozenset[int]], list[Unit]] = {}
    for unit in _units(list(kind_of), rules.together):
        kinds = tuple(sorted(kind_of[name] for name in unit))
        apart = frozenset(
            index for index, group in enumerate(rules.apart) if not group.isdisjoint(unit)
        )
        alike.setdefault((kinds, apart), []).append(unit)
    return tuple(Item(kinds, apart, tuple(units)) for (kinds, apart), units in alike.items())


def _units(names: Sequence[str], together: Sequence[frozenset[str]]) -> list[Unit]:
    """The tenants in units; rules that share a tenant make one unit."""
    groups: list[set[str]] = []
    for rule in together:
        joined = set(rule)
        for other in [each for each in groups if not each.isdisjoint(rule)]:
            groups.remove(other)
            joined |= other
        groups.append(joined)
    of = {name: group for group in groups for name in group}
    units: dict[int, list[str]] = {}
    for name in names:
        units.setdefault(id(of[name]) if name in of else -1 - len(units), []).append(name)
    return [tuple(each) for each in units.values()]


def members_of(items: Sequence[Item], kinds: int) -> NDArray[np.int64]:
    """[item, kind]: how many tenants of the kind one unit has."""
    members = np.zeros((len(items), kinds), np.int64)
    for index, item in enumerate(items):
        np.add.at(members[index], list(item.kinds), 1)
    return members


def apart_of(items: Sequence[Item], rules: int) -> NDArray[np.int64]:
    """[item, rule]: 1 where a unit has a tenant of the rule."""
    return np.array([[rule in item.apart for rule in range(rules)] for item in items], np.int64)
