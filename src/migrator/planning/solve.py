"""From a problem to a plan that may be used: feasible, solved and checked.

The entry for every caller that needs a plan: the CLI and the policies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from migrator.core.errors import InfeasibleError, InputError, SolverError
from migrator.core.problem import Plan, Problem
from migrator.planning.check import check_plan, valued
from migrator.planning.feasibility import require_feasible
from migrator.planning.planners import search

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
    """The solver's best plan within the limit, verified by an independent checker.

    `steady`: the exact planners count work instead of seconds, so that a plan depends on its
    problem alone; a slow machine then takes longer than the limit.
    """
    if solver not in SOLVERS:
        raise InputError(f"--solver: there is no {solver!r}; use {' or '.join(SOLVERS)}")
    require_time_limit(time_limit_s)
    require_feasible(problem)
    limit = default_time_limit_s(problem) if time_limit_s is None else time_limit_s
    if steady and solver == "exact":
        plan = search(problem, limit, steady=True)
    else:
        plan = SOLVERS[solver](problem, limit, backend, warm_start)
    # The solver's own sum and the checker's differ by rounding only; the checker's is given.
    check_plan(problem, plan)
    checked = valued(problem, plan)
    bound = checked.objective if plan.gap == 0 else max(checked.objective, plan.upper_bound)
    return replace(checked, upper_bound=bound)


def require_time_limit(time_limit_s: float | None, option: str = "--time-limit") -> None:
    """InputError unless the limit is left out or a positive number."""
    if time_limit_s is not None and not 0 < time_limit_s < float("inf"):
        raise InputError(f"{option}: must be a positive number of seconds, e.g. 2")


def default_time_limit_s(problem: Problem) -> float:
    """1% of the window."""
    return DEFAULT_SHARE * problem.slots * problem.slot_s


def _exact(problem: Problem, limit_s: float, _backend: str, _warm: bool) -> Plan:
    return search(problem, limit_s, steady=False)


def _ilp(problem: Problem, limit_s: float, backend: str, warm_start: bool) -> Plan:
    from migrator.planning.ilp import Status, solve_ilp

    start = search(problem, limit_s, steady=False) if warm_start else None
    outcome = solve_ilp(problem, backend=backend, time_limit_s=limit_s, start=start)
    if outcome.plan is not None:
        return outcome.plan
    if outcome.status is Status.INFEASIBLE:
        raise InfeasibleError(
            "tenants: the ILP has no solution, so some retraining cannot be completed in the "
            "window beside the minimum of every tenant; give it more slots or fewer tenants"
        )
    raise SolverError(
        f"{backend} found no plan within {limit_s:g} s; raise --time-limit, use --warm-start, "
        "or --solver exact"
    )


SOLVERS: dict[str, Callable[[Problem, float, str, bool], Plan]] = {"exact": _exact, "ilp": _ilp}
