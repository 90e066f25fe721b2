"""From numbers of units to names on GPUs, moving as few tenants as pays.

GPUs of one board that hold the same items now are a group. A set that a group's GPU is given is
worth its goodput less, for every unit that has to come, the price of a move. Every unit that is
new somewhere comes once whatever is chosen, so only real moves decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from migrator.cluster.placement.changes import Changes, Group
from migrator.cluster.placement.choose import Column, choose
from migrator.cluster.placement.items import Item, Unit
from migrator.cluster.placement.market import Market
from migrator.cluster.placement.solve import Solution, left_over_of, most_of
from migrator.cluster.placement.worth import Floats, Ints
from migrator.core.cluster import ClusterGpu, ClusterScenario

MOST_ROUNDS = 12
_MOVES_FOR_A_HOME = 20.0
"""So many moves are rather made than that somebody has no GPU."""
_GAP = 1e-7
"""Of goodput and all charges together: a move is a small part of them."""


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


def homes_of(market: Market, solution: Solution, groups: Sequence[Group], costs: Floats) -> Homes:
    """What every group is given: goodput less `costs` [item] of units that come.

    A move touches two GPUs, so one that costs more than two can gain never pays: dearer ones are
    not told apart, which keeps numbers of one size together.
    """
    gpus = np.array([len(each.gpus) for each in groups], np.int64)
    units = market.units - solution.left_over
    left = left_over_of(market, units)
    left = replace(left, costs=_MOVES_FOR_A_HOME * left.costs)
    changes = Changes.of(market, solution, groups, np.minimum(costs, most_of(market)))
    everybody = changes.columns()
    for _ in range(MOST_ROUNDS):
        changes.widen(gpus, units, left)
        columns = changes.columns()
        chosen = choose(columns, gpus, units, left, _GAP)
        if chosen.left_over.any():
            # the placement without moves has everybody, whichever GPUs hold which of its sets
            columns, chosen = everybody, choose(everybody, gpus, units, left, _GAP)
        used = [columns[i] for i in np.flatnonzero(chosen.number)]
        unknown = [(c.board, c.index) for c in used if not market.sets[c.board].exact[c.index]]
        if not unknown or market.budget.spent:
            break
        market.settle(unknown)
    return Homes(tuple(groups), tuple(used), chosen.number[np.flatnonzero(chosen.number)])


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
    served = {unit for units in held.values() for _, unit in units}
    coming = [
        # who is served now finds a place before who is not
        sorted((unit for unit in item.units if unit not in staying), key=lambda u: u not in served)
        for item in market.items
    ]
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
