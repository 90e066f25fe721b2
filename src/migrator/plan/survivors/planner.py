"""The planner for the `survivors` charge.

1. Prices over serving patterns with lead time give a bound on every plan.
2. Retraining schedules come from the exact label search, once as if changes were free and
   once under the `paper` charge: where retraining pays depends little on the charge.
3. Around each schedule a narrow beam walks real allocations; the best schedule gets a wide
   one. Ages, moves and early holding are all in the state, so preparing an instance ahead of
   need is just one of the choices.
4. The best inference for each schedule under the `paper` charge is a plan here too; it is
   taken where the beam does not beat it.
"""

from __future__ import annotations

import time
from dataclasses import replace

from migrator.core.errors import SolverError
from migrator.core.plan import Allocation, Plan
from migrator.core.problem import Problem
from migrator.plan.check import goodput_of
from migrator.plan.exact.inference import best_path
from migrator.plan.exact.layout import lay_out
from migrator.plan.exact.planner import WORK_PER_S
from migrator.plan.exact.schedule import Schedule, retrainings_of, running_of
from migrator.plan.exact.space import Space, build_space
from migrator.plan.exact.tables import build_tables
from migrator.plan.survivors.around import allocations_of, around_of
from migrator.plan.survivors.arrivals import arrivals_of
from migrator.plan.survivors.lead import build_lead_table
from migrator.plan.survivors.menu import Menus
from migrator.plan.survivors.prices import bound_any_plan
from migrator.plan.survivors.schedules import schedules_to_try
from migrator.plan.survivors.search import Around, Shared, ShareSearch

NARROW, WIDEST = 6, 256
IN_TIME = 0.85
"""Share of the limit after which the beam only hurries to the window's end."""


def plan_survivors(problem: Problem, time_limit_s: float, steady: bool = False) -> Plan:
    """A good plan under the `survivors` charge with a certified bound.

    `steady`: only the work counts, not the clock.
    """
    began = time.perf_counter()

    def late() -> bool:
        return not steady and time.perf_counter() - began > IN_TIME * time_limit_s

    space = build_space(problem)
    tables = build_tables(problem, space)
    leads = [build_lead_table(problem, space, m) for m in range(len(problem.tenants))]
    bound = bound_any_plan(space, tables, leads, running_of(problem, space))
    menus, arrivals = Menus(problem, space), arrivals_of(problem)
    search = ShareSearch(problem, space, menus, arrivals)
    schedules, bound_free = schedules_to_try(problem, space, WORK_PER_S * time_limit_s / 8, late)
    best: tuple[Shared, Around] | None = None
    for schedule in schedules:
        around = around_of(problem, space, arrivals, schedule)
        found = search.run(around, NARROW, late)
        if found is not None and (best is None or found.value > best[0].value):
            best = found, around
    if best is None:
        raise SolverError("no plan was found in time; raise --time-limit")
    shared, around = best
    width = int(min(WIDEST, WORK_PER_S * time_limit_s / search.work(around)))
    wider = search.run(around, width, late) if width > NARROW else None
    if wider is not None and wider.value > shared.value:
        shared = wider
    slots = allocations_of(problem, menus, space, shared.sets, around.schedule)
    plans = [_plan(problem, space, around.schedule, slots)]
    for schedule in schedules:
        _, path = best_path(space, tables, schedule)
        plans.append(_plan(problem, space, schedule, lay_out(problem, space, schedule, path)))
    best_plan = max(plans, key=lambda plan: plan.goodput)
    return replace(
        best_plan,
        upper_bound=max(best_plan.goodput, min(bound, bound_free)),
        solve_s=time.perf_counter() - began,
    )


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
    return replace(plan, goodput=goodput_of(problem, plan))
