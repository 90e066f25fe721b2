"""The exact planner for the `paper` charge: prices, label search in widening passes, then a layout.

A narrow pass finds a good plan; each wider one starts with that plan to beat, so most labels
are dropped by their bound. A pass that dropped nothing for lack of room proves the optimum;
otherwise the largest bound it dropped is the certificate. Up to two tenants this ends in a
fraction of a second; with more, the budget may end first.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from migrator.core.errors import InfeasibleError, SolverError
from migrator.core.problem import Plan, Problem
from migrator.planning.check import valued
from migrator.planning.exact.best_path import best_path
from migrator.planning.exact.bounds import tabulate_bounds
from migrator.planning.exact.label_search import LabelSearch
from migrator.planning.exact.layout import lay_out
from migrator.planning.exact.prices import find_prices
from migrator.planning.exact.schedule import Schedule, occupied_by, retrainings_of, running_of
from migrator.planning.exact.space import Space, build_space
from migrator.planning.exact.tables import NEVER, GoodputTables, build_tables, stage_after

WIDTHS_FEW = (24, 192, 32768)
WIDTHS_MANY = (24, 192, 1536, 12288, 32768)
"""Labels a slot, pass by pass: with up to two tenants the third pass can afford to prove."""
WORK_PER_S = 1.5e8
"""Work units that a second of the time limit buys; a current core does two to three times as
many, which leaves room for slower ones before the clock has to cut a pass short."""
HOPED_GAP = 0.005
"""With up to two tenants the first pass looks only for plans this close to the bound of the prices,
relative to it; there is one in most windows, and the others cost a pass more."""
TOLERANCE = 1e-9
"""Relative goodput below which two plans count as equally good."""


def plan_exact(problem: Problem, time_limit_s: float, steady: bool = False) -> Plan:
    """The best plan under the `paper` charge, with its certificate.

    `steady`: only the work counts, not the clock.
    """
    began = time.perf_counter()

    def late() -> bool:
        return not steady and time.perf_counter() - began > time_limit_s

    space = build_space(problem)
    tables = build_tables(problem, space)
    schedule, bound = find_schedule(problem, space, tables, WORK_PER_S * time_limit_s, late)
    value, path = best_path(space, tables, schedule)
    slots = lay_out(problem, space, schedule, path)
    later = sum(
        float(tables.later[m, stage_after(tables, m, start.configuration)])
        for m, start in enumerate(schedule)
        if start is not None
    )
    plan = Plan(
        goodput=value - later,
        upper_bound=max(bound, value),
        solver="exact",
        solve_s=time.perf_counter() - began,
        retrainings=retrainings_of(problem, space, schedule),
        slots=slots,
        later_goodput=later,
    )
    return valued(problem, plan) if problem.has_preferences else plan


def find_schedule(
    problem: Problem, space: Space, tables: GoodputTables, budget: float, late: Callable[[], bool]
) -> tuple[Schedule, float]:
    """The retraining schedule of the best plan found, and a bound on every plan."""
    running = running_of(problem, space)
    prices = find_prices(space, tables, occupied_by(space, running, problem.slots), late)
    search = LabelSearch(space, tables, tabulate_bounds(space, tables, prices), running)
    return _widen(problem, search, prices.bound, budget, late)


def _widen(
    problem: Problem,
    search: LabelSearch,
    bound: float,
    budget: float,
    late: Callable[[], bool],
) -> tuple[Schedule, float]:
    """Passes of growing width until the optimum is proven or the budget is spent."""
    value, schedule = NEVER, None
    few = len(problem.tenants) <= 2
    if few:
        hoped = bound - HOPED_GAP * abs(bound)
        outcome = search.run(hoped, WIDTHS_FEW[0], budget, late)
        budget -= outcome.work
        bound = min(bound, max(hoped, outcome.value, outcome.missed))
        if outcome.schedule is not None:
            value, schedule = outcome.value, outcome.schedule
            if bound <= value + TOLERANCE * abs(value):
                return schedule, value
    for width in WIDTHS_FEW if few else WIDTHS_MANY:
        if schedule is not None and width == WIDTHS_FEW[0]:
            continue
        outcome = search.run(value + TOLERANCE * abs(value), width, budget, late)
        budget -= outcome.work
        if outcome.schedule is None and schedule is None and outcome.missed > NEVER:
            eager = search.run(NEVER, width, budget, late, eager=True)
            value, schedule = eager.value, eager.schedule
            budget -= eager.work
        if outcome.schedule is not None:
            value, schedule = outcome.value, outcome.schedule
        if outcome.missed <= NEVER and schedule is None:
            raise _no_schedule(problem)
        bound = min(bound, max(value, outcome.missed))
        if schedule is None:
            continue
        if bound <= value + TOLERANCE * abs(value):
            return schedule, value
        if budget <= outcome.work or late():
            break
    if schedule is None:
        raise SolverError(
            "no plan was found in time although one may exist; "
            "raise --time-limit or give the window more slots"
        )
    return schedule, bound


def _no_schedule(problem: Problem) -> InfeasibleError:
    names = ", ".join(tenant.name for tenant in problem.tenants if problem.must_retrain(tenant))
    return InfeasibleError(
        f"retraining_slots: no schedule completes the retraining of {names} inside "
        f"{problem.slots} slots while every tenant keeps an instance of its min_gpcs; "
        'give the window more slots or set retraining of a tenant to "optional"'
    )
