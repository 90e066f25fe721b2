"""Assign tenants to the GPUs of a placement; move a tenant only if the gain exceeds the cost.

GPUs of one board that currently hold the same items form a group. A set on a group's GPU is worth
its goodput minus the cost of a move for every unit that is not on that GPU yet. The columns of a
group are its current set, the sets of the placement without moves, and then, round by round, the
sets with positive reduced cost.

If there are too many kinds of tenants to consider every set, the placement is chosen for one
representative per cluster of kinds. All kinds of a cluster need the same minimum instances, so a
placement that has room for the representative has room for all of them. Afterwards as many GPUs as
the time allows are planned with their real tenants. The others are estimated: the representatives'
goodput, scaled by the ratio of the real tenants' potential to theirs and by the mean error of these
estimates on the planned GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from migrator.cluster.placement.market import Item, Market, Unit
from migrator.cluster.placement.prices import (
    Floats,
    Ints,
    TenantKind,
    observation_of,
    planned_goodput,
)
from migrator.cluster.placement.sets import Column, LeftOver, choose, dual_prices
from migrator.cluster.placement.solve import Solution, largest_gain, left_over_costs, likely_values
from migrator.core.catalogue import Board
from migrator.core.cluster import ClusterGpu, ClusterScenario
from migrator.workload.arrivals import highest_rps, least_gpcs

MOST_ROUNDS = 12
_MOVES_FOR_A_HOME = 20.0
"""Number of moves accepted to avoid leaving one tenant without a GPU."""
_GAP = 1e-7
"""Relative gap of the integer program: small, because a move is a small part of the objective."""


@dataclass(frozen=True, eq=False)
class GroupPlacement:
    """Sets and numbers of GPUs per group."""

    groups: tuple[GpuGroup, ...]
    columns: tuple[Column, ...]
    number: Ints


def current_units(
    items: Sequence[Item], current: Mapping[str, str]
) -> dict[str, list[tuple[int, Unit]]]:
    """GPU -> the (item, unit) pairs with tenants on it; a unit may also have new tenants."""
    held: dict[str, list[tuple[int, Unit]]] = {}
    for index, item in enumerate(items):
        for unit in item.units:
            homes = {current[name] for name in unit if name in current}
            if len(homes) == 1:
                held.setdefault(homes.pop(), []).append((index, unit))
    return held


def gpu_groups(
    market: Market, scenario: ClusterScenario, held: Mapping[str, Sequence[tuple[int, Unit]]]
) -> tuple[GpuGroup, ...]:
    """Group the GPUs by board and current items."""
    names = [each.name for each in market.boards]
    found: dict[tuple[int, bytes], tuple[Ints, list[ClusterGpu]]] = {}
    for gpu in scenario.gpus:
        counts = np.zeros(len(market.items), np.int64)
        for index, _ in held.get(gpu.name, ()):
            counts[index] += 1
        key = names.index(gpu.board.name), counts.tobytes()
        found.setdefault(key, (counts, []))[1].append(gpu)
    return tuple(GpuGroup(b, counts, tuple(gpus)) for (b, _), (counts, gpus) in found.items())


def choose_moves(
    market: Market, solution: Solution, groups: Sequence[GpuGroup], costs: Floats
) -> GroupPlacement:
    """Choose sets per group with the highest goodput minus `costs` [item] of moved units.

    A move affects two GPUs, so costs are capped at what two GPUs can gain, which also keeps the
    program well scaled.
    """
    gpus = np.array([len(each.gpus) for each in groups], np.int64)
    units = market.units - solution.left_over
    left = left_over_costs(market, units)
    left = replace(left, costs=_MOVES_FOR_A_HOME * left.costs)
    changes = MoveColumns.of(market, solution, groups, np.minimum(costs, largest_gain(market)))
    original = changes.columns()
    for _ in range(MOST_ROUNDS):
        changes.widen(gpus, units, left)
        columns = changes.columns()
        chosen = choose(columns, gpus, units, left, _GAP)
        if chosen.left_over.any():
            # the sets of the original placement always have room for all units
            columns, chosen = original, choose(original, gpus, units, left, _GAP)
        used = [columns[i] for i in np.flatnonzero(chosen.number)]
        unknown = [(c.board, c.index) for c in used if not market.sets[c.board].exact[c.index]]
        if not unknown or market.budget.spent:
            break
        market.settle(unknown)
    return GroupPlacement(tuple(groups), tuple(used), chosen.number[np.flatnonzero(chosen.number)])


@dataclass(frozen=True, eq=False)
class NamedPlacement:
    """Tenants by GPU."""

    living: dict[str, list[Unit]]
    """GPU -> its units"""
    given: dict[str, Column]
    """GPU -> its set"""
    homeless: list[Unit]


def assign_names(
    market: Market, homes: GroupPlacement, held: Mapping[str, Sequence[tuple[int, Unit]]]
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
        for item in market.items
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


MOST_PRICE_ROUNDS = 30
_PRICED_AT_ONCE = 8
_NEARLY = 12
"""Sets with the highest negative reduced cost added per group: the integer program needs some."""


@dataclass(frozen=True, eq=False)
class GpuGroup:
    """GPUs of one board that currently hold the same items."""

    board: int
    held: Ints
    """[item]"""
    gpus: tuple[ClusterGpu, ...]


@dataclass(eq=False)
class MoveColumns:
    """The columns of every group, extended by column generation."""

    market: Market
    groups: Sequence[GpuGroup]
    costs: Floats
    """[item]: cost of moving a unit."""
    taken: list[dict[int, None]]
    """Per group: indices of sets, in the order in which they were added."""

    @staticmethod
    def of(
        market: Market, solution: Solution, groups: Sequence[GpuGroup], costs: Floats
    ) -> MoveColumns:
        """Start from the sets of the placement without moves and the current sets."""
        taken: list[dict[int, None]] = []
        for group in groups:
            good = [each.index for each in solution.columns if each.board == group.board]
            taken.append(dict.fromkeys([0, *good, *_held_set(market, group)]))
        return MoveColumns(market, groups, costs, taken)

    def columns(self) -> list[Column]:
        """All added sets with their value minus the cost of moves."""
        values, found = likely_values(self.market), []
        for index, (group, own) in enumerate(zip(self.groups, self.taken, strict=True)):
            numbers = np.array(list(own), np.int64)
            counts = self.market.sets[group.board].counts[numbers]
            worth = values[group.board][numbers] - np.maximum(counts - group.held, 0) @ self.costs
            found += [
                Column(index, group.board, int(number), float(value), row)
                for number, value, row in zip(numbers, worth, counts, strict=True)
            ]
        return found

    def widen(self, gpus: Ints, units: Ints, left: LeftOver) -> None:
        """Add sets until no reduced cost is positive, then a few sets with the highest ones."""
        least = 1e-7 * largest_gain(self.market)
        for _ in range(MOST_PRICE_ROUNDS):
            reduced = self._reduced(*dual_prices(self.columns(), gpus, units, left))
            if not self._take(reduced, least, _PRICED_AT_ONCE) or self.market.budget.late:
                break
        self._take(reduced, -np.inf, _NEARLY)

    def _reduced(self, items: Floats, gpus: Floats) -> list[tuple[Ints, Floats]]:
        """Per group: the sets with the highest reduced costs, and these costs."""
        sets = self.market.sets
        base: Mapping[int, Floats] = {
            b: value - sets[b].counts @ (items + self.costs)
            for b, value in enumerate(likely_values(self.market))
        }
        found = []
        for group, price, own in zip(self.groups, gpus, self.taken, strict=True):
            here = np.flatnonzero(group.held)
            stay = np.minimum(sets[group.board].counts[:, here], group.held[here])
            reduced = base[group.board] + stay @ self.costs[here] - price
            reduced[list(own)] = -np.inf
            best = np.argpartition(-reduced, min(_NEARLY, len(reduced) - 1))[:_NEARLY]
            best = best[np.lexsort((best, -reduced[best]))]
            found.append((best, reduced[best]))
        return found

    def _take(self, reduced: Sequence[tuple[Ints, Floats]], least: float, most: int) -> bool:
        took = False
        for own, (numbers, values) in zip(self.taken, reduced, strict=True):
            pays = numbers[values > least][:most]
            own.update(dict.fromkeys(pays.tolist()))
            took = took or bool(len(pays))
        return took


def _held_set(market: Market, group: GpuGroup) -> list[int]:
    """The index of the set that a group currently holds; empty if the set breaks a rule."""
    (number,) = market.sets[group.board].add([group.held])
    return [] if number is None else [number]


MOST_CLASSES = 20

_LOAD_WEIGHT = 4.0
"""Weight of the load: it counts most because it decides which tenants fit together."""


def representatives(
    kinds: Sequence[TenantKind],
    boards: Mapping[str, Board],
    window_s: float,
    most: int = MOST_CLASSES,
) -> list[int]:
    """Kind -> its representative; the kind itself if there are at most `most` kinds.

    There are more than `most` representatives only if there are more combinations of minimum
    instances than that.
    """
    if len(kinds) <= most:
        return list(range(len(kinds)))
    points = np.array([_features(each, boards, window_s) for each in kinds])
    alike: dict[tuple[int | None, ...], list[int]] = {}
    for index, each in enumerate(kinds):
        views = each.views
        needed = [least_gpcs(views[b].service, boards[b]) if b in views else None for b in boards]
        alike.setdefault(tuple(needed), []).append(index)
    stands_for = list(range(len(kinds)))
    for members in alike.values():
        some = 1 + max(0, most - len(alike)) * len(members) // len(kinds)
        for index, chosen in zip(members, _nearest(points[members], some), strict=True):
            stands_for[index] = members[chosen]
    return stands_for


def _nearest(points: NDArray[np.float64], most: int) -> list[int]:
    """Point -> the medoid of its cluster, by nearest centre."""
    centres = _far_apart(points, most)
    nearest = np.array([np.abs(points - points[at]).sum(axis=1) for at in centres]).argmin(axis=0)
    chosen = {each: _middle(points, np.flatnonzero(nearest == each)) for each in set(nearest)}
    return [chosen[each] for each in nearest]


def _features(kind: TenantKind, boards: Mapping[str, Board], window_s: float) -> list[float]:
    """A kind's rate, and per board its load, accuracies, retraining time and minimum size."""
    features = [math.log1p(kind.mean_rps)]
    for name, board in boards.items():
        view = kind.views.get(name)
        if view is None:
            features += [-9.0, 0.0, 0.0, 0.0, 0.0]
            continue
        job = view.retraining
        smallest = board.sms_of(board.sizes[0])
        features += [
            _LOAD_WEIGHT * kind.mean_rps / max(highest_rps(view.service, board), 1e-9),
            view.accuracy,
            0.0 if job is None else job.accuracy_post,
            0.0 if job is None else min(2.0, job.seconds.at(smallest) / window_s),
            float(view.service.min_gpcs),
        ]
    return features


def _far_apart(points: NDArray[np.float64], most: int) -> list[int]:
    """Farthest-point sampling, starting with the first point."""
    chosen = [0]
    distance = np.abs(points - points[0]).sum(axis=1)
    while len(chosen) < most and distance.max() > 0:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.abs(points - points[chosen[-1]]).sum(axis=1))
    return chosen


def _middle(points: NDArray[np.float64], members: NDArray[np.intp]) -> int:
    centre = np.median(points[members], axis=0)
    return int(members[np.abs(points[members] - centre).sum(axis=1).argmin()])


_AT_ONCE = 16
"""Number of GPUs planned between two checks of the time."""

Names = Mapping[str, tuple[str, ...]]


def representative_values(market: Market, homes: NamedPlacement) -> dict[str, tuple[float, bool]]:
    """GPU -> goodput of its set of items in a window, and whether it was planned."""
    values = likely_values(market)
    return {
        gpu: (
            float(values[each.board][each.index]),
            bool(market.sets[each.board].exact[each.index]),
        )
        for gpu, each in homes.given.items()
    }


def replan_real_tenants(
    scenario: ClusterScenario,
    market: Market,
    names: Names,
    homes: NamedPlacement,
    kind_of: Mapping[str, TenantKind],
) -> dict[str, tuple[float, bool]]:
    """GPU -> its goodput in a window, and whether that was planned with its own tenants."""
    guessed = {
        gpu: value * _more(market, homes, gpu, names[gpu], kind_of)
        for gpu, (value, _) in representative_values(market, homes).items()
    }
    gpus = _spread([each for each in scenario.gpus if names.get(each.name)])
    planned: dict[str, float] = {}
    for begin in range(0, len(gpus), _AT_ONCE):
        if market.budget.late:
            break
        some = gpus[begin : begin + _AT_ONCE]
        asked = [
            observation_of(
                gpu.board,
                scenario.slot_s,
                scenario.slots,
                [kind_of[name].views[gpu.board.name] for name in names[gpu.name]],
            )
            for gpu in some
        ]
        for gpu, value in zip(some, market.workers.map(planned_goodput, asked), strict=True):
            planned[gpu.name] = value
            market.on_planned()
    known = sum(guessed[gpu] for gpu in planned)
    realistic = sum(planned.values()) / known if known else 1.0
    return {
        gpu: (planned[gpu], True) if gpu in planned else (value * realistic, False)
        for gpu, value in guessed.items()
    }


def _spread(gpus: Sequence[ClusterGpu]) -> list[ClusterGpu]:
    """The GPUs ordered so that any prefix is representative, because neighbours are similar."""
    step = max(1, round(len(gpus) ** 0.5))
    return [gpu for first in range(step) for gpu in gpus[first::step]]


def _more(
    market: Market,
    homes: NamedPlacement,
    gpu: str,
    names: tuple[str, ...],
    kind_of: Mapping[str, TenantKind],
) -> float:
    """The potential of a GPU's real tenants relative to that of their representatives."""
    likes = market.weights(homes.given[gpu].counts)
    theirs = float(likes @ np.array([_potential(each) for each in market.kinds]))
    own = sum(_potential(kind_of[name]) for name in names)
    return own / theirs if theirs else 1.0


def _potential(kind: TenantKind) -> float:
    """Highest rate of correct answers, in requests per second."""
    view = next(iter(kind.views.values()))
    after = 0.0 if view.retraining is None else view.retraining.accuracy_post
    return kind.mean_rps * max(view.accuracy, after)
