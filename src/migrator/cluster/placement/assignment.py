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

    living: dict[str, list[Unit]]
    """GPU -> its units"""
    given: dict[str, Column]
    """GPU -> its set"""
    homeless: list[Unit]


def assign_names(
    problem: PlacementProblem, homes: GroupPlacement, held: Mapping[str, Sequence[tuple[int, Unit]]]
) -> NamedPlacement:
    """Assign units to GPUs; a unit stays if its GPU still holds that item."""
    given = _given(homes)
    living: dict[str, list[Unit]] = {name: [] for name in given}
    room = {name: column.counts.copy() for name, column in given.items()}
    staying: set[Unit] = set()
    for name, free in room.items():
        for item, unit in held.get(name, ()):
            if free[item] > 0:
                living[name].append(unit)
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
            living[name] += [coming[item].pop(0) for _ in range(int(number))]
    return NamedPlacement(living, given, [unit for units in coming for unit in units])


def _given(homes: GroupPlacement) -> dict[str, Column]:
    """GPU -> its set, the GPUs of a group in their order."""
    given: dict[str, Column] = {}
    waiting = [list(group.gpus) for group in homes.groups]
    for column, number in zip(homes.columns, homes.number, strict=True):
        for _ in range(int(number)):
            given[waiting[column.group].pop(0).name] = column
    return given
