"""The planner for the `survivors` charge.

1. Retraining schedules come from the exact label search, once as if changes were free and
   once under the `paper` charge: where retraining pays depends little on the charge.
2. Around each schedule a narrow beam walks real allocations. Ages, moves and early holding are
   all in the state, so preparing an instance ahead of need is just one of the choices. The best
   inference for each schedule under the `paper` charge is a plan here too.
3. Prices over serving patterns give a bound on every plan: a few steps of them first, all of them
   where that leaves a gap.
4. With few tenants, real allocations and retrainings are searched together, pruned by the prices
   and by what the best plan is worth, in widening passes: they improve the plan, the bound, or
   prove the optimum. Configurations of which the prices say that no better plan has them are left
   out. With many tenants the best schedule gets a wide beam instead.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from migrator.core.catalogue import Placement, find_placement
from migrator.core.problem import Allocation, Charge, Plan, Problem
from migrator.planning.arrays import Ints
from migrator.planning.check import goodput_of, later_goodput_of
from migrator.planning.exact.best_path import best_path
from migrator.planning.exact.geometry import Geometry
from migrator.planning.exact.layout import lay_out
from migrator.planning.exact.planner import TOLERANCE, WORK_PER_S, find_schedule
from migrator.planning.exact.prices import first_prices
from migrator.planning.exact.schedule import (
    Schedule,
    Start,
    occupied_by,
    retrainings_of,
    running_of,
)
from migrator.planning.exact.space import Space, build_space
from migrator.planning.exact.tables import GoodputTables, build_tables
from migrator.planning.survivors.arrivals import Arrivals, arrivals_of
from migrator.planning.survivors.beam_search import Shared, ShareSearch, States, allocations_of
from migrator.planning.survivors.board import build_shares
from migrator.planning.survivors.fixed_schedule import Around, around_of
from migrator.planning.survivors.menus import menus_of
from migrator.planning.survivors.prices import (
    ServingPrices,
    bounds_by_configuration,
    find_prices,
)
from migrator.planning.survivors.serving import ServingTables, build_serving
from migrator.planning.survivors.state_search import SearchPass, StateSearch

FEW = 3
"""Tenants up to which all real allocations are searched; with more there are too many."""
NARROW, WIDEST = 6, 256
"""States of the beam around a schedule."""
FIRST_WIDTH, WIDEST_PASS, WIDER = 24, 16384, 1.3
"""States a slot of the first and of the widest pass; how much wider a further pass must be."""
FEWEST_STEPS, MOST_STEPS, PRICES_SHARE = 60, 400, 0.4
"""Steps of the prices, and the share of the work they may take."""
QUICK_STEPS, QUICK_SHARE, QUICK_GAP = 80, 0.3, 0.004
"""Steps of the prices, and share of the work of the search, that are tried first: most windows
with retrainings as long as those of real models are proven with them. Where a narrow pass leaves a
larger gap, a wider one proves nothing at these prices."""
STEP_WORK = 750
"""Work of a step of the prices, per slot and tenant."""
IN_TIME = 0.85
"""Share of the limit after which the beam only hurries to the window's end."""


def plan_survivors(problem: Problem, time_limit_s: float, steady: bool = False) -> Plan:
    """A good plan under the `survivors` charge with a certified bound.

    `steady`: only the work counts, not the clock.
    """
    began = time.perf_counter()

    def late() -> bool:
        return not steady and time.perf_counter() - began > IN_TIME * time_limit_s

    space, budget = build_space(problem), WORK_PER_S * time_limit_s
    tables = build_tables(problem, space)
    menus, arrivals = menus_of(problem, space), arrivals_of(problem)
    search = ShareSearch(problem, space, menus, arrivals)
    schedules, bound = schedules_to_try(problem, space, budget / 8, late)
    many = len(problem.tenants) > FEW
    beam_plan = _plan_of_beams(
        problem, space, search, arrivals, schedules, budget if many else 0.0, late
    )
    plans = [] if beam_plan is None else [beam_plan]
    for schedule in schedules:
        if plans and late():
            break
        _, path = best_path(space, tables, schedule)
        plans.append(_plan(problem, space, schedule, lay_out(problem, space, schedule, path)))
    best_plan = max(plans, key=lambda plan: plan.objective)
    if late():
        return _with_bound(best_plan, bound, began)
    serving, shares = build_serving(problem, space, tables), build_shares(problem, space)
    step_work = STEP_WORK * problem.slots * len(problem.tenants)
    steps = int(np.clip(PRICES_SHARE * budget / step_work, FEWEST_STEPS, MOST_STEPS))
    rounds = [(steps, budget - steps * step_work, math.inf)]
    if not many and steps > 2 * QUICK_STEPS:
        rounds.insert(0, (QUICK_STEPS, QUICK_SHARE * budget, QUICK_GAP))
    running, start_prices = running_of(problem, space), first_prices(space, tables)
    occupied = occupied_by(space, running, problem.slots)
    for steps_now, budget_now, hopeful in rounds:
        value = best_plan.objective
        prices = find_prices(
            serving, shares, start_prices, occupied, space.most_waiting, steps_now, value, late
        )
        bound = min(bound, prices.bound)
        # one tenant is always searched, at little cost: `ready` compiles the kernels with it
        is_open = bound > enough(value) and not late()
        if many or (not is_open and len(problem.tenants) > 1):
            break
        promising = _promising(problem, prices, serving, best_plan)
        if promising is not problem:
            problem, space = promising, build_space(promising)
            menus = menus_of(problem, space)
            search = ShareSearch(problem, space, menus, arrivals)
            serving = build_serving(problem, space, build_tables(problem, space))
            shares, running = build_shares(problem, space), running_of(problem, space)
        tabulated = serving, shares, prices, menus, arrivals, search.costs, running
        states = StateSearch(problem, space, *tabulated)
        outcome, bound = widen(states, search.before(), value, bound, budget_now, hopeful, late)
        if outcome is not None:
            best_plan = _plan_of(problem, space, outcome.schedule, outcome.owners)
        if bound <= enough(best_plan.objective):
            break
    return _with_bound(best_plan, bound, began)


def _promising(
    problem: Problem, prices: ServingPrices, serving: ServingTables, plan: Plan
) -> Problem:
    """The problem without configurations that no better plan than this one has; the same problem if
    there are none."""
    bounds = bounds_by_configuration(serving, prices)
    used = {(retraining.tenant, retraining.configuration) for retraining in plan.retrainings}
    tenants = []
    for tenant, bound_of in zip(problem.tenants, bounds, strict=True):
        kept = tenant.configurations
        if len(kept) > 1:
            kept = tuple(
                choice
                for choice, bound in zip(kept, bound_of, strict=False)
                if bound >= plan.objective or (tenant.name, choice.name) in used
            )
        same = len(kept) == len(tenant.configurations)
        tenants.append(tenant if same else replace(tenant, configurations=kept))
    same = all(new is old for new, old in zip(tenants, problem.tenants, strict=True))
    return problem if same else replace(problem, tenants=tuple(tenants))


def _plan_of_beams(
    problem: Problem,
    space: Space,
    search: ShareSearch,
    arrivals: Arrivals,
    schedules: Sequence[Schedule],
    budget: float,
    late: Callable[[], bool],
) -> Plan | None:
    """The best plan of narrow beams around the schedules; a wide one as far as the budget goes."""
    best: tuple[Shared, Around] | None = None
    worth = 0.0
    for schedule in schedules:
        if late():
            break
        around = around_of(problem, space, arrivals, schedule)
        candidate = search.run(around, NARROW, late)
        if candidate is not None and (best is None or candidate.value + around.later > worth):
            best, worth = (candidate, around), candidate.value + around.later
    if best is None:
        return None
    shared, around = best
    width = 0 if late() else int(min(WIDEST, budget / search.work(around)))
    wider = search.run(around, width, late) if width > NARROW else None
    if wider is not None and wider.value > shared.value:
        shared = wider
    return _plan_of(problem, space, around.schedule, shared.owners)


def _with_bound(plan: Plan, bound: float, began: float) -> Plan:
    """The plan with its bound and the seconds since `began`."""
    seconds = time.perf_counter() - began
    return replace(plan, upper_bound=max(plan.objective, bound), solve_s=seconds)


def enough(value: float) -> float:
    """What a plan must be worth to beat `value`."""
    return value + TOLERANCE * abs(value)


def widen(
    states: StateSearch,
    before: States,
    value: float,
    bound: float,
    budget: float,
    hopeful: float,
    late: Callable[[], bool],
) -> tuple[SearchPass | None, float]:
    """Passes of growing width until the optimum is proven or the budget is spent.

    A pass that missed more than `hopeful` of the value is the last one. Returns the best plan above
    `value`, if one was found, and the bound on every plan.
    """
    best, width = None, FIRST_WIDTH
    while True:
        outcome = states.run(before, enough(value), width, budget, late)
        budget -= outcome.work
        if outcome.value > value:
            best, value = outcome, outcome.value
        bound = min(bound, max(value, outcome.missed))
        wider = int(min(WIDEST_PASS, width * budget / max(1, outcome.work)))
        hopeless = outcome.missed - value > hopeful * abs(value)
        if bound <= enough(value) or hopeless or wider < WIDER * width or late():
            return best, bound
        width = wider


def _plan_of(problem: Problem, space: Space, schedule: Schedule, owners: Ints) -> Plan:
    """The plan in which tenants own placements [slot, placement]."""
    return _plan(problem, space, schedule, allocations_of(problem, space, owners, schedule))


def _plan(
    problem: Problem, space: Space, schedule: Schedule, slots: tuple[Allocation, ...]
) -> Plan:
    plan = Plan(
        goodput=0.0,
        upper_bound=0.0,
        solver="exact",
        solve_s=0.0,
        retrainings=retrainings_of(problem, space, schedule),
        slots=slots,
    )
    return replace(
        plan,
        goodput=goodput_of(problem, plan),
        later_goodput=later_goodput_of(problem, plan),
    )


def schedules_to_try(
    problem: Problem, space: Space, budget: float, late: Callable[[], bool]
) -> tuple[list[Schedule], float]:
    """Distinct schedules of the best plans as if changes were free, and under `paper`.

    No plan is worth more than if changes were free: also returns the bound of that search. Once
    it is `late`, one schedule is enough.
    """
    at_no_cost = tuple(replace(tenant, overhead_s=0.0) for tenant in problem.tenants)
    schedules: list[Schedule] = []
    bound = math.inf
    for tenants in (at_no_cost, problem.tenants):
        variant = replace(problem, charge=Charge.PAPER, tenants=tenants)
        tables = build_tables(variant, space)
        schedule, searched = find_schedule(variant, space, tables, budget, late)
        if tenants is at_no_cost:
            bound = searched
        if late():
            return [*schedules, schedule], bound
        for candidate in (_off_warm_slices(problem, space, tables, schedule), schedule):
            if candidate not in schedules:
                schedules.append(candidate)
    return schedules, bound


def _off_warm_slices(
    problem: Problem, space: Space, tables: GoodputTables, schedule: Schedule
) -> Schedule:
    """The schedule with its retrainings moved off warm slices, onto those others have used."""
    worth, _ = best_path(space, tables, schedule)
    enough = worth - TOLERANCE * abs(worth)
    used, warm = 0, _warm_slices(problem)
    starts = [(start.begin, m) for m, start in enumerate(schedule) if start is not None]
    for _, m in sorted(starts):
        start = schedule[m]
        assert start is not None
        if problem.slots_left(problem.tenants[m]) is None:
            for place in _gentle_places(space.geometry, start, used, warm):
                moved = (*schedule[:m], replace(start, place=place), *schedule[m + 1 :])
                if _apart(space.geometry, moved) and best_path(space, tables, moved)[0] >= enough:
                    schedule = moved
                    break
        kept = schedule[m]
        assert kept is not None
        used |= space.geometry.places[kept.place].mask
    return schedule


def _gentle_places(geo: Geometry, start: Start, used: int, warm: int) -> list[int]:
    """Placements of the same size: those on the fewest warm, then the fewest new slices first."""
    size = geo.places[start.place].gpcs
    same = [(i, place) for i, place in enumerate(geo.places) if place.gpcs == size]

    def disturbance(numbered: tuple[int, Placement]) -> tuple[int, int, int]:
        mask = numbered[1].mask
        return (mask & warm).bit_count(), (mask & ~used).bit_count(), -numbered[1].start

    return [i for i, _ in sorted(same, key=disturbance)]


def _warm_slices(problem: Problem) -> int:
    """Slices of the instances that are held before slot 0."""
    warm = 0
    for held in problem.initial.instances if problem.initial else ():
        placement = find_placement(problem.board, held.start, held.gpcs)
        if held.task is not None and placement is not None:
            warm |= placement.mask
    return warm


def _apart(geo: Geometry, schedule: Schedule) -> bool:
    """Whether no two retrainings hold a slice at the same time."""
    held = [start for start in schedule if start is not None]
    return not any(
        a.begin < b.end and b.begin < a.end and geo.places[a.place].overlaps(geo.places[b.place])
        for i, a in enumerate(held)
        for b in held[i + 1 :]
    )
