"""Entry point of placement: from a cluster scenario to a GPU for every tenant, with a bound.

Steps: group tenants into kinds (demand, representatives); list the sets that one GPU can hold with
an upper bound on their goodput (sets, prices); choose sets by a linear program that calls the
single-GPU planner only for the sets it chooses (program, solve); assign tenants by name with few
moves (moves); estimate the gain from one more GPU. A placed cluster is simulated GPU by GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np

from migrator.cluster.placement.assignment import (
    GroupPlacement,
    NamedPlacement,
    assign_names,
    choose_moves,
    current_units,
    gpu_groups,
    replan_real_tenants,
    representative_values,
    representatives,
)
from migrator.cluster.placement.market import Budget, Market, Unit, group_items, open_market
from migrator.cluster.placement.prices import Floats, TenantKind, pooled_bound, tenant_kinds
from migrator.cluster.placement.sets import Sets
from migrator.cluster.placement.solve import Solution, fill_remaining, one_more_rps, solve
from migrator.core.cluster import (
    ClusterGpu,
    ClusterOutcome,
    ClusterPlan,
    ClusterScenario,
    GpuPlacement,
    Unplaced,
    shorten,
)
from migrator.core.errors import InputError
from migrator.core.scenario import Scenario
from migrator.io.data_file import PLACEMENT, read_json_file
from migrator.io.strict import refuse, shown
from migrator.io.task_pool import TaskWorkers
from migrator.simulate.compare import Job
from migrator.workload.arrivals import highest_rps

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
    market = open_market(
        scenario,
        kinds.classes,
        group_items(kinds.class_of, scenario.rules),
        workers or TaskWorkers(),
        budget,
        current or {},
        on_planned,
    )
    solution = _best_placement(market)
    homes = _homes(scenario, market, solution, current or {})
    names = {
        gpu: tuple(sorted(name for unit in each for name in unit))
        for gpu, each in homes.living.items()
    }
    if kinds.merged:
        budget.until = None if seconds is None else began + _LAST_START * seconds
        worth = replan_real_tenants(scenario, market, names, homes, kinds.of_tenant)
        bound = pooled_bound(scenario, [kinds.of_tenant[n] for e in names.values() for n in e])
    else:
        worth = representative_values(market, homes)
        bound = solution.bound
    placements = tuple(_gpu(scenario, each, names, kinds, worth) for each in scenario.gpus)
    return ClusterPlan(
        scenario=scenario.name,
        gpus=placements,
        unplaced=explain_unplaced(market, homes.homeless),
        upper_bound_rps=max(
            bound / scenario.window_s, sum(each.goodput_rps for each in placements)
        ),
        one_more_rps=one_more_rps(market, scenario.window_s),
        moved=_moved(names, current or {}),
        notes=placement_notes(scenario, names, current or {}, merged=kinds.merged),
        place_s=perf_counter() - began,
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
            of_tenant={each.name: by_entry[each.entry] for each in scenario.tenants},
            classes=[kinds[each] for each in chosen],
            class_of={each.name: number[each.entry] for each in scenario.tenants},
            merged=len(chosen) < len(kinds),
        )


def _best_placement(market: Market) -> Solution:
    """Return the best placement found; if not all units fit, that of the units that do."""
    solution = solve(market, market.units)
    if not solution.left_over.any():
        return solution
    if not all(each.whole for each in market.sets):
        return fill_remaining(market, solution)
    again = solve(market, market.units - solution.left_over)
    return replace(again, left_over=again.left_over + solution.left_over)


def _homes(
    scenario: ClusterScenario,
    market: Market,
    solution: Solution,
    current: Mapping[str, str],
) -> NamedPlacement:
    held = current_units(market.items, current)
    groups = gpu_groups(market, scenario, held)
    homes = GroupPlacement(groups, solution.columns, solution.number)
    if current:
        homes = choose_moves(market, solution, groups, _move_costs(scenario, market))
    return assign_names(market, homes, held)


def _move_costs(scenario: ClusterScenario, market: Market) -> Floats:
    """[item]: requests lost when a unit moves; at least one, so that no move is free."""
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


def explain_unplaced(market: Market, units: Sequence[Unit]) -> tuple[Unplaced, ...]:
    """Return every tenant of these units with the reason and the remedy."""
    return tuple(Unplaced(name, _why(market, unit)) for unit in units for name in unit)


def _why(market: Market, unit: Unit) -> str:
    item = next(each for each in market.items if unit in each.units)
    able = [
        board.name
        for board in market.boards
        if all(board.name in market.kinds[kind].views for kind in item.kinds)
    ]
    if not able:
        return "no board here can serve all tenants of its together rule; remove one from the rule"
    if not any(_fits_alone(sets, market.items.index(item)) for sets in market.sets):
        return (
            f"the tenants of its together rule do not fit on one {' or '.join(able)}; remove one "
            "from the rule or lower min_gpcs"
        )
    rule = ", and some tenants must be apart" if item.apart else ""
    return (
        f"every tenant always needs an instance of its own, and no {' or '.join(able)} has room "
        f"for one more of this size{rule}; add a GPU, lower min_gpcs or leave some tenants out"
    )


def _fits_alone(sets: Sets, item: int) -> bool:
    return bool((sets.counts[sets.counts.sum(axis=1) == 1, item] == 1).any())


def placement_notes(
    scenario: ClusterScenario,
    names: Mapping[str, Sequence[str]],
    current: Mapping[str, str],
    *,
    merged: bool,
) -> tuple[str, ...]:
    """Remarks on a placement."""
    notes = []
    gone = sorted(set(current.values()) - {each.name for each in scenario.gpus})
    if gone:
        lived = sum(home in gone for home in current.values())
        tenants, were = ("1 tenant", "was") if lived == 1 else (f"{lived} tenants", "were")
        notes.append(
            f"{shorten(gone)} of the current placement {'is' if len(gone) == 1 else 'are'} not in "
            f"the cluster; {tenants} of {'it' if len(gone) == 1 else 'them'} {were} placed again"
        )
    left = sorted(set(current) - {each.name for each in scenario.tenants})
    if left:
        notes.append(f"{shorten(left)} of the current placement: not in the scenario")
    empty = sum(not names.get(each.name) for each in scenario.gpus)
    if empty:
        notes.append(f"{empty} {'GPU has' if empty == 1 else 'GPUs have'} no tenants")
    if merged:
        notes.append(
            "there are many kinds of tenants, so similar ones were placed through cluster "
            "representatives; the bound is that of all GPUs pooled"
        )
    return tuple(notes)


def read_current(path: Path) -> dict[str, str]:
    """Read tenant -> GPU from the output of `migrator cluster plan --json`."""
    return read_json_file(path, _placement, PLACEMENT)


def _placement(data: object) -> dict[str, str]:
    if not isinstance(data, dict) or not isinstance(data.get("placement"), dict):
        raise InputError(
            "there is no placement in it; use the output of `migrator cluster plan --json`"
        )
    for tenant, gpu in data["placement"].items():
        if not isinstance(gpu, str):
            refuse(("placement", tenant), f"{shown(gpu)} is no GPU's name", "give its name as text")
    return dict(data["placement"])


def simulate_placed(
    scenario: ClusterScenario,
    plan: ClusterPlan,
    workers: TaskWorkers,
    *,
    policy: str | None = None,
    forecaster: str | None = None,
    drawn: bool = False,
    step: Callable[[], None] = lambda: None,
) -> ClusterOutcome:
    """Run every GPU that has tenants; `step` is called after each."""
    plan.require_all_placed()
    jobs = [
        Job(
            partial(_as_given, scenario.on(each.gpu, each.tenants)), policy, forecaster, drawn=drawn
        )
        for each in plan.gpus
        if each.tenants
    ]
    runs = []
    for outcome in workers.map(Job.run, jobs):
        runs.append(outcome)
        step()
    return ClusterOutcome(plan, tuple(runs))


def _as_given(scenario: Scenario, _seed: int | None, _windows: int | None) -> Scenario:
    """A scenario source that ignores seed and windows, because the scenario contains them."""
    return scenario
