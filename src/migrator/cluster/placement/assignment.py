"""A placement of groups with names: which units go to which GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migrator.cluster.placement.items import Unit
from migrator.cluster.placement.linear_program import Column
from migrator.cluster.placement.moves import GroupPlacement
from migrator.cluster.placement.problem import PlacementProblem


@dataclass(frozen=True, eq=False)
class NamedPlacement:
    """Tenants by GPU."""

    units_of: dict[str, list[Unit]]
    """GPU -> its units"""
    set_of: dict[str, Column]
    """GPU -> its set"""
    unplaced: list[Unit]


def assign_names(
    problem: PlacementProblem, homes: GroupPlacement, held: Mapping[str, Sequence[tuple[int, Unit]]]
) -> NamedPlacement:
    """Assign units to GPUs; a unit stays if its GPU still holds that item."""
    set_of = _given(homes)
    units_of: dict[str, list[Unit]] = {name: [] for name in set_of}
    room = {name: column.counts.copy() for name, column in set_of.items()}
    staying: set[Unit] = set()
    for name, free in room.items():
        for item, unit in held.get(name, ()):
            if free[item] > 0:
                units_of[name].append(unit)
                staying.add(unit)
                free[item] -= 1
    served = {unit for units in held.values() for _, unit in units}
    coming = [
        # units that are currently served are assigned first
        sorted((unit for unit in item.units if unit not in staying), key=lambda u: u not in served)
        for item in problem.items
    ]
    for name, free in room.items():
        for item, number in enumerate(free):
            units_of[name] += [coming[item].pop(0) for _ in range(int(number))]
    return NamedPlacement(units_of, set_of, [unit for units in coming for unit in units])


def _given(homes: GroupPlacement) -> dict[str, Column]:
    """GPU -> its set, the GPUs of a group in their order."""
    set_of: dict[str, Column] = {}
    waiting = [list(group.gpus) for group in homes.groups]
    for column, number in zip(homes.columns, homes.number, strict=True):
        for _ in range(int(number)):
            set_of[waiting[column.group].pop(0).name] = column
    return set_of
