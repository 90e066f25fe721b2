"""Units of tenants that share a GPU, and items: units that are interchangeable.

Tenants that must be together form a unit. Units with the same kinds and the same `apart` rules
form an item: a placement first counts units per item and GPU, and assigns names last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.cluster.scenario import ClusterScenario, Rules, merge_groups

Unit = tuple[str, ...]
"""Tenants that must share a GPU; usually one tenant."""


@dataclass(frozen=True)
class Item:
    """Interchangeable units."""

    kinds: tuple[int, ...]
    """Kinds of a unit's tenants, ascending."""
    apart: frozenset[int]
    """The `apart` rules that name a tenant of the unit."""
    units: tuple[Unit, ...]


def group_items(kind_of: Mapping[str, int], rules: Rules) -> tuple[Item, ...]:
    """Group the tenants into units and the units into items."""
    alike: dict[tuple[tuple[int, ...], frozenset[int]], list[Unit]] = {}
    for unit in group_units(list(kind_of), rules.together):
        kinds = tuple(sorted(kind_of[name] for name in unit))
        apart = frozenset(
            index for index, group in enumerate(rules.apart) if not group.isdisjoint(unit)
        )
        alike.setdefault((kinds, apart), []).append(unit)
    return tuple(Item(kinds, apart, tuple(units)) for (kinds, apart), units in alike.items())


def group_units(names: Sequence[str], together: Sequence[frozenset[str]]) -> list[Unit]:
    """Group tenants into units; rules that share a tenant are joined."""
    group_of = {name: group for group in merge_groups(together) for name in group}
    units: dict[frozenset[str], list[str]] = {}
    for name in names:
        units.setdefault(group_of.get(name, frozenset((name,))), []).append(name)
    return [tuple(unit) for unit in units.values()]


def served_units(
    item: Item, current: Mapping[str, str], scenario: ClusterScenario
) -> tuple[Unit, ...]:
    """Units of the item whose tenants are all on GPUs of the cluster."""
    gpus = {gpu.name for gpu in scenario.gpus}
    return tuple(unit for unit in item.units if all(current.get(name) in gpus for name in unit))


def members_of(items: Sequence[Item], kinds: int) -> NDArray[np.int64]:
    """[item, kind]: number of tenants of the kind in one unit."""
    members = np.zeros((len(items), kinds), np.int64)
    for index, item in enumerate(items):
        np.add.at(members[index], list(item.kinds), 1)
    return members
