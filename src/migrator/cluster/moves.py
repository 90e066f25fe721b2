"""From numbers of units to names on GPUs, moving as few tenants as pays.

GPUs of one board that hold the same items now are a group. A set that a group's GPU is given is
worth its goodput less, for every unit that has to come, the price of a move. Every unit that is
new somewhere comes once whatever is chosen, so only real moves decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from migrator.cluster.choose import Column, choose
from migrator.cluster.items import Item, Unit
from migrator.cluster.market import Market
from migrator.cluster.solve import Solution, column_of, penalty_of, realism
from migrator.cluster.worth import Floats, Ints
from migrator.core.cluster import ClusterGpu, ClusterScenario

MOST_ROUNDS = 12
PER_GROUP = 40
"""Sets that a group may change to, the most promising ones."""


@dataclass(frozen=True, eq=False)
class Group:
    """GPUs of one board that hold the same items now."""

    board: int
    held: Ints
    """[item]"""
    gpus: tuple[ClusterGpu, ...]


@dataclass(frozen=True, eq=False)
class Homes:
    """What every group's GPUs are given."""

    groups: tuple[Group, ...]
    columns: tuple[Column, ...]
    number: Ints


def held_now(
    items: Sequence[Item], current: Mapping[str, str]
) -> dict[str, list[tuple[int, Unit]]]:
    """GPU -> the (item, unit) that live on it as a whole."""
    held: dict[str, list[tuple[int, Unit]]] = {}
    for index, item in enumerate(items):
        for unit in item.units:
            homes = {current.get(name) for name in unit}
            home = homes.pop()
            if home is not None and not homes:
                held.setdefault(home, []).append((index, unit))
    return held


def groups_of(
    market: Market, scenario: ClusterScenario, held: Mapping[str, Sequence[tuple[int, Unit]]]
) -> tuple[Group, ...]:
    """The GPUs in groups."""
    names = [each.name for each in market.boards]
    found: dict[tuple[int, bytes], tuple[Ints, list[ClusterGpu]]] = {}
    for gpu in scenario.gpus:
        counts = np.zeros(len(market.items), np.int64)
        for index, _ in held.get(gpu.name, ()):
            counts[index] += 1
        key = names.index(gpu.board.name), counts.tobytes()
        found.setdefault(key, (counts, []))[1].append(gpu)
    return tuple(Group(b, counts, tuple(gpus)) for (b, _), (counts, gpus) in found.items())


def homes_of(
    market: Market, solution: Solution, units: Ints, groups: Sequence[Group], costs: Floats
) -> Homes:
    """What every group is given: goodput less `costs` [item] of units that come."""
    gpus = np.array([len(each.gpus) for each in groups], np.int64)
    penalty = penalty_of(market) + 2 * float(costs.max())
    for _ in range(MOST_ROUNDS):
        columns = [
            column
            for index, group in enumerate(groups)
            for column in _changes(market, solution, index, group, costs)
        ]
        chosen = choose(columns, gpus, units, penalty)
        used = np.flatnonzero(chosen.number)
        unknown = [
            (columns[i].board, columns[i].index)
            for i in used
            if not market.sets[columns[i].board].exact[columns[i].index]
        ]
        if not unknown:
            break
        market.settle(unknown)
    return Homes(tuple(groups), tuple(columns[i] for i in used), chosen.number[used])


def _changes(
    market: Market, solution: Solution, index: int, group: Group, costs: Floats
) -> list[Column]:
    """What a group's GPU could hold next: what is good anyway, and what is near to what it has."""
    sets = market.sets[group.board]
    good = {each.index for each in solution.columns if each.board == group.board}
    near = {0, sets.find(group.held)}
    for item in range(len(market.items)):
        for step in (-1, 1):
            held = group.held.copy()
            held[item] += step
            if held[item] >= 0:
                near.add(sets.find(held))
    found = [
        _less_moves(market, column_of(market, index, group.board, each), group, costs)
        for each in sorted(good | {each for each in near if each is not None})
    ]
    always = [each for each in found if each.index in good or each.index == 0]
    other = sorted((each for each in found if each not in always), key=lambda c: -c.value)
    return [*always, *other[:PER_GROUP]]


def _less_moves(market: Market, column: Column, group: Group, costs: Floats) -> Column:
    known = bool(market.sets[column.board].exact[column.index])
    value = column.value * (1.0 if known else realism(market, column.board))
    return replace(column, value=value - float(np.maximum(column.counts - group.held, 0) @ costs))


def unmoved(solution: Solution, groups: Sequence[Group]) -> Homes:
    """Where nothing is held, a board's GPUs are one group and take what was found."""
    return Homes(tuple(groups), solution.columns, solution.number)


@dataclass(frozen=True, eq=False)
class Named:
    """Who lives where, by name."""

    living: dict[str, list[Unit]]
    """GPU -> its units"""
    given: dict[str, Column]
    """GPU -> its set"""
    homeless: list[Unit]


def named(market: Market, homes: Homes, held: Mapping[str, Sequence[tuple[int, Unit]]]) -> Named:
    """Names for the numbers: who lives on a GPU that still wants the like stays."""
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
    coming = [[unit for unit in item.units if unit not in staying] for item in market.items]
    for name, free in room.items():
        for item, number in enumerate(free):
            living[name] += [coming[item].pop(0) for _ in range(int(number))]
    return Named(living, given, [unit for units in coming for unit in units])


def _given(homes: Homes) -> dict[str, Column]:
    """GPU -> its set, the GPUs of a group in their order."""
    given: dict[str, Column] = {}
    waiting = [list(group.gpus) for group in homes.groups]
    for column, number in zip(homes.columns, homes.number, strict=True):
        for _ in range(int(number)):
            given[waiting[column.group].pop(0).name] = column
    return given
