"""From a problem to a plan that may be used: feasible, solved, checked.

The one entry for everybody who wants a plan (the CLI now, policies and the runtime later).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from migrator.core.catalogue import board
from migrator.core.errors import InfeasibleError, InputError, SolverError
from migrator.core.plan import Plan
from migrator.core.problem import Charge, Problem, Tenant
from migrator.plan.check import check_plan
from migrator.plan.feasible import require_feasible

DEFAULT_SHARE = 0.01
"""Time limit as a share of the window, unless the user sets one: the paper's 1%."""


def make_plan(
    problem: Problem,
    *,
    solver: str = "exact",
    backend: str = "highs",
    time_limit_s: float | None = None,
    warm_start: bool = False,
    steady: bool = False,
) -> Plan:
    """The solver's best plan within the limit, verified by code that shares nothing with it.

    `steady`: the exact planners count work instead of seconds, so that a plan depends on its
    problem alone; a slow machine then takes longer than the limit.
    """
    if solver not in SOLVERS:
        raise InputError(f"--solver: there is no {solver!r}; use {' or '.join(SOLVERS)}")
    require_time_limit(time_limit_s)
    require_feasible(problem)
    limit = default_time_limit_s(problem) if time_limit_s is None else time_limit_s
    if steady and solver == "exact":
        plan = _search(problem, limit, steady=True)
    else:
        plan = SOLVERS[solver](problem, limit, backend, warm_start)
    # The solver's own sum and the checker's differ by rounding only; the checker's is given.
    goodput = check_plan(problem, plan)
    bound = goodput if plan.gap == 0 else max(goodput, plan.upper_bound)
    return replace(plan, goodput=goodput, upper_bound=bound)


def require_time_limit(time_limit_s: float | None) -> None:
    """InputError unless the limit is left out or a positive number."""
    if time_limit_s is not None and not 0 < time_limit_s < float("inf"):
        raise InputError("--time-limit: must be a positive number of seconds, e.g. 2")


def default_time_limit_s(problem: Problem) -> float:
    """1% of the window."""
    return DEFAULT_SHARE * problem.slots * problem.slot_s


def _exact(problem: Problem, limit_s: float, _backend: str, _warm: bool) -> Plan:
    return _search(problem, limit_s, steady=False)


def _search(problem: Problem, limit_s: float, *, steady: bool) -> Plan:
    ready(problem.charge)
    return _planner(problem.charge)(problem, limit_s, steady)


def _planner(charge: Charge) -> Callable[[Problem, float, bool], Plan]:
    # imported here: compiled kernels are not needed to read, check or draw a plan
    if charge is Charge.PAPER:
        from migrator.plan.exact.planner import plan_exact

        return plan_exact
    from migrator.plan.survivors.planner import plan_survivors

    return plan_survivors


def _ilp(problem: Problem, limit_s: float, backend: str, warm_start: bool) -> Plan:
    from migrator.plan.ilp import Status, solve_ilp

    start = _search(problem, limit_s, steady=False) if warm_start else None
    outcome = solve_ilp(problem, backend=backend, time_limit_s=limit_s, start=start)
    if outcome.plan is not None:
        return outcome.plan
    if outcome.status is Status.INFEASIBLE:
        raise InfeasibleError(
            "tenants: the ILP has no solution, so some retraining cannot be completed in the "
            "window beside everybody's minimum; give it more slots or fewer tenants"
        )
    raise SolverError(
        f"{backend} found no plan within {limit_s:g} s; raise --time-limit, use --warm-start, "
        "or --solver exact"
    )


SOLVERS: dict[str, Callable[[Problem, float, str, bool], Plan]] = {"exact": _exact, "ilp": _ilp}


@cache
def ready(charge: Charge) -> None:
    """Load the compiled kernels, or compile them once per installation, off the clock.

    A time limit is about planning; what a machine spends on its first compilation must not
    cut a plan short.
    """
    tiny = Tenant("tiny", ((1.0, 2.0),), {1: 1.0}, 0.5, 0.6, {1: 1}, 1.0, 1)
    _planner(charge)(Problem(board("A30-24GB"), 1.0, 2, charge, (tiny,)), 60.0, False)
