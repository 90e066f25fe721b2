"""Build the formulation of a charge, have a backend solve it, read the plan back."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Protocol

from migrator.core.errors import PlanError, SolverError
from migrator.core.plan import Allocation, Plan, Retraining
from migrator.core.problem import Charge, Problem
from migrator.plan.ilp.backend import Limits, Status, solve_model
from migrator.plan.ilp.model import FloatArray, Model
from migrator.plan.ilp.paper import build_paper
from migrator.plan.ilp.survivors import build_survivors
from migrator.plan.ilp.tables import Tables, tables

_TOLERANCE = 1e-6
"""Relative; a bound this close to the value is the value, to a MILP solver."""


class Formulation(Protocol):
    """A problem's ILP: its model, and plans read from and written as its solutions."""

    @property
    def tables(self) -> Tables:
        """The problem and its constants."""
        ...

    @property
    def model(self) -> Model:
        """The program."""
        ...

    def read(self, values: FloatArray) -> tuple[tuple[Retraining, ...], tuple[Allocation, ...]]:
        """The retrainings and slots of a solution."""
        ...

    def write(self, plan: Plan) -> FloatArray:
        """The solution that a plan is."""
        ...


@dataclass(frozen=True)
class IlpOutcome:
    """What a solve gave, as data."""

    status: Status
    plan: Plan | None
    """None: the problem is infeasible, or the time was over before the first plan."""
    goodput: float | None
    upper_bound: float | None
    """None: the problem is infeasible."""
    gap: float | None
    """As `Plan.gap`; None without a plan."""
    solve_s: float
    build_s: float
    rows: int
    columns: int
    backend: str


def build_ilp(problem: Problem) -> Formulation:
    """The problem's ILP under its charge."""
    if problem.charge is Charge.PAPER:
        return build_paper(tables(problem))
    return build_survivors(tables(problem))


def solve_ilp(
    problem: Problem,
    *,
    backend: str = "highs",
    time_limit_s: float | None = None,
    start: Plan | None = None,
    gap: float = 0.0,
) -> IlpOutcome:
    """The best plan that the backend finds; `start` is a plan of this problem to begin from."""
    begin = time.perf_counter()
    ilp = build_ilp(problem)
    first = None if start is None else _start_values(ilp, start)
    built = time.perf_counter()
    solved = solve_model(ilp.model, backend, Limits(time_limit_s, gap), first)
    solve_s = time.perf_counter() - built
    bound = min(solved.upper_bound, ilp.tables.most)  # no solver has a bound from the beginning
    found = first if solved.values is None else solved.values
    plan = None if found is None else _plan(ilp, found, bound, solve_s)
    if plan is not None:
        bound = plan.upper_bound
    return IlpOutcome(
        status=solved.status,
        plan=plan,
        goodput=None if plan is None else plan.goodput,
        upper_bound=None if solved.status is Status.INFEASIBLE else bound,
        gap=None if plan is None else plan.gap,
        solve_s=solve_s,
        build_s=built - begin,
        rows=ilp.model.rows,
        columns=ilp.model.columns,
        backend=backend,
    )


def _start_values(ilp: Formulation, start: Plan) -> FloatArray:
    values = ilp.write(start)
    broken = ilp.model.broken_row(values)
    if broken is not None:
        raise PlanError(f"the start plan breaks {broken}; give a plan of this problem or none")
    return values


def _plan(ilp: Formulation, values: FloatArray, bound: float, solve_s: float) -> Plan:
    """The solution as a plan, its goodput counted again from what the plan does.

    The solver's own objective is exact only up to its tolerances, and an incumbent may pay
    for a change that it does not make.
    """
    retrainings, slots = ilp.read(values)
    plan = Plan(0.0, 0.0, "ilp", solve_s, retrainings, slots)
    exact = ilp.write(plan)
    broken = ilp.model.broken_row(exact)
    if broken is not None:
        raise SolverError(
            f"the solver's answer breaks {broken} once rounded; use --solver exact instead"
        )
    goodput = float(ilp.model.cost @ exact)
    proven = bound - goodput <= _TOLERANCE * max(1.0, abs(goodput))
    return replace(plan, goodput=goodput, upper_bound=goodput if proven else bound)
