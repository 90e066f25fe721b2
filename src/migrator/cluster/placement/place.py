"""Entry point of placement: from a cluster scenario to a GPU for every tenant, with a bound.

Steps: group tenants into kinds (`kinds`, `representatives`) and interchangeable units (`items`);
list the sets that one GPU can hold with an upper bound on their goodput (`sets`, `prices`); choose
sets by a linear program that calls the single-GPU planner only for the sets it chooses
(`linear_program`, `solve`); assign tenants by name with few moves (`moves`, `assignment`); estimate
the gain from one more GPU (`solve`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from migrator.cluster.placement.assignment import NamedPlacement, assign_names
from migrator.cluster.placement.fill import fill_remaining
from migrator.cluster.placement.items import group_items
from migrator.cluster.placement.kinds import TenantKind, tenant_kinds
from migrator.cluster.placement.moves import GroupPlacement, choose_moves, current_units, gpu_groups
from migrator.cluster.placement.notes import explain_unplaced, placement_notes
from migrator.cluster.placement.pooled_bound import pooled_bound
from migrator.cluster.placement.problem import Budget, PlacementProblem, build_problem
from migrator.cluster.placement.real_tenants import replan_real_tenants, representative_worths
from migrator.cluster.placement.representatives import representatives
from migrator.cluster.placement.solve import Solution, one_more_rps, solve
from migrator.cluster.placement.tables import Floats
from migrator.cluster.scenario import ClusterGpu, ClusterPlan, ClusterScenario, GpuPlacement, Worth
from migrator.io.task_pool import TaskWorkers
from migrator.workload.capacity import highest_rps

MOST_PLANNED = 160
"""Default limit on the number of sets planned by the single-GPU planner."""
_PART_FOR_REPRESENTATIVES = 0.35
"""Fraction of the budget for cluster representatives; the rest is for planning the real tenants."""
_LAST_START = 0.85
"""Fraction of the time after which no plan is started, so that the result is ready in time."""


def place(
    scenario: ClusterScenario,
    workers: TaskWorkers | None = None,
    *,
    current: Mapping[str, str] | None = None,
    seconds: float | None = None,
    most_planned: int = MOST_PLANNED,
    on_planned: Callable[[], None] = lambda: None,
) -> ClusterPlan:
    """Place the tenants. `current`: tenant -> its current GPU; `seconds`: approximate time limit.

    Without `seconds` only the number of planned sets is limited, so that results are
    reproducible. `on_planned` is called after every planned set.
    """
    began = perf_counter()
    kinds = _Kinds.of(scenario)
    part = _PART_FOR_REPRESENTATIVES if kinds.merged else 1.0
    until = None if seconds is None else began + part * _LAST_START * seconds
    budget = Budget(round(part * most_planned), until)
    problem = build_problem(
        scenario,
        kinds.classes,
        group_items(kinds.class_of, scenario.rules),
        workers or TaskWorkers(),
        budget,
        current or {},
        on_planned,
    )
    solution = _best_placement(problem)
    homes = _homes(scenario, problem, solution, current or {})
    names = {
        gpu: tuple(sorted(name for unit in units for name in unit))
        for gpu, units in homes.units_of.items()
    }
    if kinds.merged:
        budget.until = None if seconds is None else began + _LAST_START * seconds
        worths = replan_real_tenants(scenario, problem, names, homes, kinds.of_tenant)
        bound = pooled_bound(
            scenario, [kinds.of_tenant[n] for name in names.values() for n in name]
        )
    else:
        worths = representative_worths(problem, homes)
        bound = solution.bound
    placements = tuple(_gpu(scenario, gpu, names, kinds, worths) for gpu in scenario.gpus)
    return ClusterPlan(
        scenario=scenario.name,
        gpus=placements,
        unplaced=explain_unplaced(problem, homes.unplaced),
        upper_bound_rps=max(
            bound / scenario.window_s, sum(placement.value_rps for placement in placements)
        ),
        one_more_rps=one_more_rps(problem, scenario.window_s),
        moved=_moved(names, current or {}),
        notes=placement_notes(scenario, names, current or {}, merged=kinds.merged),
        place_s=perf_counter() - began,
        has_preferences=scenario.has_preferences,
    )


@dataclass(frozen=True)
class _Kinds:
    """The kinds of a scenario, and the classes that represent them if there are too many."""

    of_tenant: dict[str, TenantKind]
    classes: list[TenantKind]
    class_of: dict[str, int]
    merged: bool

    @staticmethod
    def of(scenario: ClusterScenario) -> _Kinds:
        by_entry = tenant_kinds(scenario)
        entries, kinds = list(by_entry), list(by_entry.values())
        stands_for = representatives(kinds, scenario.boards, scenario.window_s)
        chosen = sorted(set(stands_for))
        number = {entry: chosen.index(stands_for[i]) for i, entry in enumerate(entries)}
        return _Kinds(
            of_tenant={tenant.name: by_entry[tenant.entry] for tenant in scenario.tenants},
            classes=[kinds[kind] for kind in chosen],
            class_of={tenant.name: number[tenant.entry] for tenant in scenario.tenants},
            merged=len(chosen) < len(kinds),
        )


def _best_placement(problem: PlacementProblem) -> Solution:
    """Return the best placement found; if not all units fit, that of the units that do."""
    solution = solve(problem, problem.units)
    if not solution.left_over.any():
        return solution
    if not all(sets.all_listed for sets in problem.sets):
        return fill_remaining(problem, solution)
    again = solve(problem, problem.units - solution.left_over)
    return replace(again, left_over=again.left_over + solution.left_over)


def _homes(
    scenario: ClusterScenario,
    problem: PlacementProblem,
    solution: Solution,
    current: Mapping[str, str],
) -> NamedPlacement:
    held = current_units(problem.items, current)
    groups = gpu_groups(problem, scenario, held)
    homes = GroupPlacement(groups, solution.columns, solution.number)
    if current:
        homes = choose_moves(problem, solution, groups, _move_costs(scenario, problem))
    return assign_names(problem, homes, held)


def _move_costs(scenario: ClusterScenario, problem: PlacementProblem) -> Floats:
    """[item]: weighted goodput lost when a unit moves; at least one, so that no move is free."""
    views = [next(iter(kind.views.values())) for kind in problem.kinds]
    rates = [
        view.service.weight * kind.mean_rps * view.accuracy
        for kind, view in zip(problem.kinds, views, strict=True)
    ]
    per_tenant: Floats = np.maximum(scenario.rules.move_s * np.array(rates), 1.0)
    costs: Floats = problem.members.astype(np.float64) @ per_tenant
    return costs


def _gpu(
    scenario: ClusterScenario,
    gpu: ClusterGpu,
    names: Mapping[str, tuple[str, ...]],
    kinds: _Kinds,
    worths: Mapping[str, Worth],
) -> GpuPlacement:
    tenants = names.get(gpu.name, ())
    worth = worths[gpu.name] if tenants else Worth()
    load = 0.0
    for kind in map(kinds.of_tenant.__getitem__, tenants):
        most_rps = highest_rps(kind.views[gpu.board.name].service, gpu.board)
        load += kind.mean_rps / most_rps * (1 - scenario.rules.spare)
    rates = worth.scaled(1 / scenario.window_s)
    return GpuPlacement(gpu, tenants, rates.goodput, rates.value, rates.short, worth.planned, load)


def _moved(names: Mapping[str, tuple[str, ...]], current: Mapping[str, str]) -> tuple[str, ...]:
    homes = {name: gpu for gpu, tenants in names.items() for name in tenants}
    return tuple(sorted(n for n, gpu in homes.items() if current.get(n, gpu) != gpu))
