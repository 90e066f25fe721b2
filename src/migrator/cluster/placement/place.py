"""Entry point of placement: from a cluster scenario to a GPU for every tenant, with a bound.

Steps: group tenants into kinds (`kinds`) and these into items (`problem`); list the sets that one
GPU can hold with an upper bound on their goodput (`sets`, `prices`); choose sets by a linear
program that calls the single-GPU planner only for the sets it chooses (`linear_program`, `solve`);
add tenants that it left over (`fill`); assign tenants by name with few moves (`moves`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from migrator.cluster.placement.fill import fill_remaining
from migrator.cluster.placement.kinds import TenantKind, tenant_kinds
from migrator.cluster.placement.moves import (
    GroupPlacement,
    NamedPlacement,
    assign_names,
    choose_moves,
    current_items,
    gpu_groups,
)
from migrator.cluster.placement.problem import (
    Budget,
    Item,
    PlacementProblem,
    build_problem,
    group_items,
)
from migrator.cluster.placement.solve import Solution, likely_values, solve
from migrator.cluster.placement.tables import Floats
from migrator.cluster.scenario import (
    ClusterGpu,
    ClusterPlan,
    ClusterScenario,
    GpuPlacement,
    Unplaced,
    Worth,
)
from migrator.io.task_pool import TaskWorkers
from migrator.workload.capacity import highest_rps

MOST_PLANNED = 160
"""Default limit on the number of sets planned by the single-GPU planner."""
_SEARCH, _LAST_START = 0.6, 0.85
"""Parts of the time for the search, and after which no set is planned, so that the result is ready
in time."""


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
    current = current or {}
    kinds = tuple(tenant_kinds(scenario).values())
    kind_of = {tenant.name: tenant.entry for tenant in scenario.tenants}
    problem = build_problem(
        scenario,
        kinds,
        group_items(kind_of, scenario.rules),
        workers or TaskWorkers(),
        Budget(most_planned) if seconds is None else _budget(most_planned, began, seconds),
        current,
        on_planned,
    )
    solution = _best_placement(problem)
    homes = _homes(scenario, problem, solution, current)
    worths = _worths(problem, homes)
    placements = tuple(
        _gpu(scenario, gpu, homes.tenants_of.get(gpu.name, ()), kinds, kind_of, worths)
        for gpu in scenario.gpus
    )
    value_rps = sum(placement.value_rps for placement in placements)
    bound = solution.bound if homes.unplaced else min(solution.bound, problem.bound)
    return ClusterPlan(
        scenario=scenario.name,
        gpus=placements,
        unplaced=tuple(
            Unplaced(name, _why_unplaced(problem, item))
            for item in problem.items
            for name in item.tenants
            if name in homes.unplaced
        ),
        upper_bound_rps=max(bound / scenario.window_s, value_rps),
        moved=_moved(placements, current),
        place_s=perf_counter() - began,
        has_preferences=scenario.has_preferences,
    )


def _budget(sets: int, began: float, seconds: float) -> Budget:
    return Budget(sets, began + _SEARCH * seconds, began + _LAST_START * seconds)


def _best_placement(problem: PlacementProblem) -> Solution:
    """Return the best placement found; if not all tenants fit, that of the tenants that do."""
    solution = solve(problem, problem.tenants)
    if not solution.left_over.any():
        return solution
    if not all(sets.all_listed for sets in problem.sets):
        return fill_remaining(problem, solution)
    again = solve(problem, problem.tenants - solution.left_over)
    return replace(again, left_over=again.left_over + solution.left_over)


def _homes(
    scenario: ClusterScenario,
    problem: PlacementProblem,
    solution: Solution,
    current: Mapping[str, str],
) -> NamedPlacement:
    held = current_items(problem.items, current)
    groups = gpu_groups(problem, scenario, held)
    homes = GroupPlacement(groups, solution.columns, solution.number)
    if current:
        homes = choose_moves(problem, solution, groups, _move_costs(scenario, problem))
    return assign_names(problem, homes, held)


def _move_costs(scenario: ClusterScenario, problem: PlacementProblem) -> Floats:
    """[item]: weighted goodput lost when a tenant moves; at least one, so that no move is free."""
    views = [next(iter(kind.views.values())) for kind in problem.kinds]
    rates = [
        view.service.weight * kind.mean_rps * view.accuracy
        for kind, view in zip(problem.kinds, views, strict=True)
    ]
    costs: Floats = np.maximum(scenario.rules.move_s * np.array(rates), 1.0)
    return costs[[item.kind for item in problem.items]]


def _gpu(
    scenario: ClusterScenario,
    gpu: ClusterGpu,
    names: Sequence[str],
    kinds: Sequence[TenantKind],
    kind_of: Mapping[str, int],
    worths: Mapping[str, Worth],
) -> GpuPlacement:
    load = 0.0
    for kind in (kinds[kind_of[name]] for name in names):
        most_rps = highest_rps(kind.views[gpu.board.name].service, gpu.board)
        load += kind.mean_rps / most_rps * (1 - scenario.rules.spare)
    worth = worths[gpu.name] if names else Worth()
    rates, tenants = worth.scaled(1 / scenario.window_s), tuple(sorted(names))
    return GpuPlacement(gpu, tenants, rates.goodput, rates.value, rates.short, rates.planned, load)


def _worths(problem: PlacementProblem, homes: NamedPlacement) -> dict[str, Worth]:
    """GPU -> what its set is worth in a window."""
    values = likely_values(problem)
    return {
        gpu: problem.sets[column.board].worth(
            column.index, float(values[column.board][column.index])
        )
        for gpu, column in homes.set_of.items()
    }


def _moved(placements: Sequence[GpuPlacement], current: Mapping[str, str]) -> tuple[str, ...]:
    homes = {name: placement.gpu.name for placement in placements for name in placement.tenants}
    return tuple(sorted(n for n, gpu in homes.items() if current.get(n, gpu) != gpu))


def _why_unplaced(problem: PlacementProblem, item: Item) -> str:
    """Why a tenant of the item has no GPU, and the remedy."""
    able = " or ".join(
        board.name for board in problem.boards if board.name in problem.kinds[item.kind].views
    )
    if not able:
        return "no GPU here has a board that can serve it; add one, or lower its min_gpcs or memory"
    rule = ", and some tenants must be apart" if item.apart else ""
    return (
        f"every tenant always needs an instance of its own, and no {able} has room for one more of "
        f"this size{rule}; add a GPU, lower min_gpcs or leave some tenants out"
    )
