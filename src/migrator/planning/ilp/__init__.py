"""The paper's ILP, complete and corrected: the written-down formulation of the problem.

The exact planner is the fast one; this is the one to read beside the paper, to hold the other
against on small windows, and to give to a MILP solver. Every row is named after the label of
the paper's formula, e.g. `reconfiguration[bert,12,3+1]`. There is no large constant H in it:
what the paper switches on and off with H is the choice of a column here.

How each printed formula became which group (modules of this package in brackets; the numbers are
those of the errors in print that the group corrects):

- feasibility_1, feasibility_2 -> `feasibility` [paper, survivors]: the sizes chosen
  have places. Selecting exactly one configuration F says that the sizes in use fit into one
  of the 12; sizes fit into one exactly when they can be laid on the slices without overlap,
  which with `instance_sharing` is what the rows ask, and which a running retraining that
  cannot move needs to be asked slice by slice.
- instance_sharing -> `instance_sharing` [constraints]: one row per memory slice.
- retrain_1_instance, retrain_current_status -> `retrain_1_instance` [constraints]; N and
  the status C are one number, the sum of `running` over the placements.
- retrain_start -> `retrain_start` [constraints]: the start z is the column
  y[m, t, placement] (3), at most one per tenant.
- equals_in_ilp, retrain_no_interruption -> `retrain_no_interruption` [constraints]: a
  start, and nothing else, makes its placement run for the RT of its own size. It binds at
  the start slot only (2), and RT is looked up, not indexed by a variable (3).
- retrain_5 -> `retrain_5` [constraints]: launched, and completed by the window's end.
- inference_starvation_calculation_1, _2 -> `inference_starvation` [constraints]: exactly one
  pattern, and each pattern has one instance of at least L GPCs (4), not L GPCs in sum.
- objective:throughput -> charge `paper`: the objective's coefficients [tables], because
  capability, number of instances and so the charge are constants of a pattern (3); charge
  `survivors`: `throughput` [survivors], the linear pieces of the minimum.
- reconfiguration -> `reconfiguration` [paper, survivors]: free only what was held before, so a
  change is always charged (1), also one that leaves both counts as they are (3+1 to 2+2);
  under `survivors`, warm is only what the tenant has held for the overhead.
- retrain_end -> `retrain_end` [constraints]: Completion.
- Goodput of task and second -> `goodput` [constraints]: served at the accuracy that
  Completion names, without a product: the pattern is chosen per stage.
- floors, which the paper does not have -> the objective's coefficients under `paper`, `floor`
  [survivors] under `survivors`.

Error 5 (requests still queued from the slot before) is no formula of the plan: the simulator
carries the queue.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Protocol

from migrator.core.errors import PlanError, SolverError
from migrator.core.problem import Allocation, Charge, Plan, Problem, Retraining
from migrator.planning.ilp.backends import SolverLimits, Status, solve_model
from migrator.planning.ilp.model import Group, IlpModel
from migrator.planning.ilp.paper import build_paper
from migrator.planning.ilp.survivors import build_survivors
from migrator.planning.ilp.tables import FloatArray, Tables, tables

__all__ = ["Formulation", "Group", "IlpModel", "IlpOutcome", "Status", "build_ilp", "solve_ilp"]


_TOLERANCE = 1e-6
"""Relative; a bound this close to the value is the value, to a MILP solver."""


class Formulation(Protocol):
    """A problem's ILP: its model, and plans read from and written as its solutions."""

    @property
    def tables(self) -> Tables:
        """The problem and its constants."""
        ...

    @property
    def model(self) -> IlpModel:
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
    start_values = None if start is None else _start_values(ilp, start)
    built = time.perf_counter()
    solved = solve_model(ilp.model, backend, SolverLimits(time_limit_s, gap), start_values)
    solve_s = time.perf_counter() - built
    bound = min(solved.upper_bound, ilp.tables.most)  # no solver has a bound from the beginning
    values = start_values if solved.values is None else solved.values
    plan = None if values is None else _plan(ilp, values, bound, solve_s)
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
    value = float(ilp.model.cost @ exact)
    later = sum(
        tenant.later_goodput(tenant.configuration(retraining.configuration))
        for retraining in retrainings
        for tenant in [ilp.tables.problem.tenant(retraining.tenant)]
    )
    problem, goodput, weighted = ilp.tables.problem, value, value
    if problem.has_preferences:
        weighted = _value(_without_floors(problem), plan)
        goodput = _value(_without_floors(problem, weighted=False), plan)
    # relative to what is earned: a penalty may be far larger
    proven = bound - value <= _TOLERANCE * max(1.0, abs(weighted))
    return replace(
        plan,
        goodput=goodput - later,
        weighting=weighted - goodput,
        penalty=weighted - value,
        later_goodput=later,
        upper_bound=value if proven else bound,
    )


def _without_floors(problem: Problem, *, weighted: bool = True) -> Problem:
    tenants = tuple(
        replace(tenant, floor=0.0, weight=tenant.weight if weighted else 1.0)
        for tenant in problem.tenants
    )
    return replace(problem, tenants=tenants)


def _value(problem: Problem, plan: Plan) -> float:
    """What a plan is worth in the problem's ILP."""
    ilp = build_ilp(problem)
    return float(ilp.model.cost @ ilp.write(plan))
