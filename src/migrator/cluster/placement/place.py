"""The one entry: a cluster scenario in, where everybody lives out, with a bound.

Kinds of tenants -> sets of them with what they are worth at most -> a program over sets that
asks the planner where it matters -> names on GPUs, moving few -> what one more GPU would bring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from migrator.cluster.placement.alike import representatives
from migrator.cluster.placement.demand import Kind, kinds_of
from migrator.cluster.placement.items import items_of
from migrator.cluster.placement.market import Budget, Market, open_market
from migrator.cluster.placement.moves import Named, groups_of, held_now, homes_of, named, unmoved
from migrator.cluster.placement.one_more import one_more_rps
from migrator.cluster.placement.pooled import pooled_bound
from migrator.cluster.placement.room import filled
from migrator.cluster.placement.solve import Solution, solve
from migrator.cluster.placement.themselves import planned_themselves, values_of
from migrator.cluster.placement.words import notes_on, without_gpu
from migrator.cluster.placement.workers import Here, Workers
from migrator.cluster.placement.worth import Floats
from migrator.core.cluster import ClusterGpu, ClusterPlan, ClusterScenario, GpuPlacement
from migrator.workload.load import highest_rps

MOST_PLANNED = 160
"""Sets that the planner is asked about, unless the caller says otherwise."""
_PART_FOR_LIKES = 0.35
"""Of the budget, where near kinds are placed alike: the rest is for the tenants themselves."""
_BEGUN = 0.85
"""Of the time: no plan is begun after it, so that the answer is there when the time is over."""


def place(
    scenario: ClusterScenario,
    workers: Workers | None = None,
    *,
    current: Mapping[str, str] | None = None,
    seconds: float | None = None,
    most_planned: int = MOST_PLANNED,
    told: Callable[[], None] = lambda: None,
) -> ClusterPlan:
    """Who lives where. `current`: tenant -> GPU of now; `seconds`: to be done by then, about.

    Without `seconds` only work is counted, so that the same scenario has the same placement.
    """
    began = perf_counter()
    kinds = _Kinds.of(scenario)
    part = _PART_FOR_LIKES if kinds.merged else 1.0
    until = None if seconds is None else began + part * _BEGUN * seconds
    budget = Budget(round(part * most_planned), until)
    market = open_market(
        scenario,
        kinds.classes,
        items_of(kinds.class_of, scenario.rules),
        workers or Here(),
        budget,
        current or {},
    )
    market.told = told
    solution = _placed(market)
    homes = _homes(scenario, market, solution, current or {})
    names = {
        gpu: tuple(sorted(name for unit in each for name in unit))
        for gpu, each in homes.living.items()
    }
    if kinds.merged:
        budget.until = None if seconds is None else began + _BEGUN * seconds
        worth = planned_themselves(scenario, market, names, homes, kinds.of_tenant)
        bound = pooled_bound(scenario, [kinds.of_tenant[n] for e in names.values() for n in e])
    else:
        worth = values_of(market, homes)
        bound = solution.bound
    placements = tuple(_gpu(scenario, each, names, kinds, worth) for each in scenario.gpus)
    return ClusterPlan(
        scenario=scenario.name,
        gpus=placements,
        unplaced=without_gpu(market, homes.homeless),
        upper_bound_rps=max(
            bound / scenario.window_s, sum(each.goodput_rps for each in placements)
        ),
        one_more_rps=one_more_rps(market, scenario.window_s),
        moved=_moved(names, current or {}),
        notes=notes_on(scenario, names, current or {}, merged=kinds.merged),
        place_s=perf_counter() - began,
    )


@dataclass(frozen=True)
class _Kinds:
    """The kinds of a scenario, and the classes that stand for them where they are too many."""

    of_tenant: dict[str, Kind]
    classes: list[Kind]
    class_of: dict[str, int]
    merged: bool

    @staticmethod
    def of(scenario: ClusterScenario) -> _Kinds:
        by_entry = kinds_of(scenario)
        entries, kinds = list(by_entry), list(by_entry.values())
        stands_for = representatives(kinds, scenario.boards, scenario.window_s)
        chosen = sorted(set(stands_for))
        number = {entry: chosen.index(stands_for[i]) for i, entry in enumerate(entries)}
        return _Kinds(
            of_tenant={each.name: by_entry[each.entry] for each in scenario.tenants},
            classes=[kinds[each] for each in chosen],
            class_of={each.name: number[each.entry] for each in scenario.tenants},
            merged=len(chosen) < len(kinds),
        )


def _placed(market: Market) -> Solution:
    """The best placement; where units are left over, the best one of those that are not."""
    solution = solve(market, market.units)
    if not solution.left_over.any():
        return solution
    if not all(each.whole for each in market.sets):
        return filled(market, solution)
    again = solve(market, market.units - solution.left_over)
    return replace(again, left_over=again.left_over + solution.left_over)


def _homes(
    scenario: ClusterScenario,
    market: Market,
    solution: Solution,
    current: Mapping[str, str],
) -> Named:
    held = held_now(market.items, current)
    groups = groups_of(market, scenario, held)
    if not current:
        return named(market, unmoved(solution, groups), held)
    homes = homes_of(market, solution, groups, _move_costs(scenario, market))
    return named(market, homes, held)


def _move_costs(scenario: ClusterScenario, market: Market) -> Floats:
    """[item]: requests that are lost when a unit moves; one at least, so that nobody moves idly."""
    rates = [each.mean_rps * next(iter(each.views.values())).accuracy for each in market.kinds]
    each: Floats = np.maximum(scenario.rules.move_s * np.array(rates), 1.0)
    costs: Floats = market.members.astype(np.float64) @ each
    return costs


def _gpu(
    scenario: ClusterScenario,
    gpu: ClusterGpu,
    names: Mapping[str, tuple[str, ...]],
    kinds: _Kinds,
    worth: Mapping[str, tuple[float, bool]],
) -> GpuPlacement:
    tenants = names.get(gpu.name, ())
    value, planned = worth[gpu.name] if tenants else (0.0, True)
    load = 0.0
    for each in map(kinds.of_tenant.__getitem__, tenants):
        most_rps = highest_rps(each.views[gpu.board.name].service, gpu.board)
        load += each.mean_rps / most_rps * (1 - scenario.rules.spare)
    return GpuPlacement(gpu, tenants, value / scenario.window_s, load, planned)


def _moved(names: Mapping[str, tuple[str, ...]], current: Mapping[str, str]) -> tuple[str, ...]:
    homes = {name: gpu for gpu, tenants in names.items() for name in tenants}
    return tuple(sorted(n for n, gpu in homes.items() if current.get(n, gpu) != gpu))
