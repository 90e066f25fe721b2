"""What is placed as one: tenants that must be together, grouped by what tells them apart.

Units that are alike (the same kinds, apart from the same others) are interchangeable, so a
placement first says how many of each item a GPU gets, and names come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.core.cluster import ClusterScenario, Rules, joined

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
    of = {name: group for group in joined(together) for name in group}
    units: dict[frozenset[str], list[str]] = {}
    for name in names:
        units.setdefault(of.get(name, frozenset((name,))), []).append(name)
    return [tuple(each) for each in units.values()]


def living_of(
    item: Item, current: Mapping[str, str], scenario: ClusterScenario
) -> tuple[Unit, ...]:
    """Its units that are served now: all their tenants live on GPUs that are still there."""
    there = {each.name for each in scenario.gpus}
    return tuple(unit for unit in item.units if all(current.get(name) in there for name in unit))


def members_of(items: Sequence[Item], kinds: int) -> NDArray[np.int64]:
    """[item, kind]: how many tenants of the kind one unit has."""
    members = np.zeros((len(items), kinds), np.int64)
    for index, item in enumerate(items):
        np.add.at(members[index], list(item.kinds), 1)
    return members


def apart_of(items: Sequence[Item], rules: int) -> NDArray[np.int64]:
    """[item, rule]: 1 where a unit has a tenant of the rule."""
    return np.array([[rule in item.apart for rule in range(rules)] for item in items], np.int64)
