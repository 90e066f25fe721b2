"""The paper's ILP, complete and corrected: the written-down formulation of the problem.

The exact planner is the fast one; this is the one to read beside the paper, to hold the other
against on small windows, and to give to a MILP solver. Every row is named after the label of
the paper's formula, e.g. `reconfiguration[bert,12,3+1]`. There is no large constant H in it:
what the paper switches on and off with H is the choice of a column here.

How each printed formula became which group (modules in brackets; the numbers are those of the
errors in print that the group corrects):

- feasibility_1, feasibility_2 -> `feasibility` [charges]: the sizes chosen
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
  `survivors`: `throughput` [charges], the linear pieces of the minimum.
- reconfiguration -> `reconfiguration` [charges]: free only what was held before, so a
  change is always charged (1), also one that leaves both counts as they are (3+1 to 2+2);
  under `survivors`, warm is only what the tenant has held for the overhead.
- retrain_end -> `retrain_end` [constraints]: Completion.
- Goodput of task and second -> `goodput` [constraints]: served at the accuracy that
  Completion names, without a product: the pattern is chosen per stage.

Error 5 (requests still queued from the slot before) is no formula of the plan: the simulator
carries the queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from migrator.core.errors import InputError, PlanError, SolverError
from migrator.core.problem import Allocation, Charge, Plan, Problem, Retraining
from migrator.plan.ilp.charges import build_paper, build_survivors
from migrator.plan.ilp.model import Group, Model
from migrator.plan.ilp.tables import FloatArray, Tables, tables

__all__ = ["Formulation", "Group", "IlpOutcome", "Model", "Status", "build_ilp", "solve_ilp"]


_TOLERANCE = 1e-6
"""Relative; a bound this close to the value is the value, to a MILP solver."""
_ABSOLUTE_GAP = 1e-9
_INSTEAD = "use --backend highs, or install a Gurobi licence that allows this size"


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
    value = float(ilp.model.cost @ exact)
    retrained = {each.tenant for each in retrainings}
    later = sum(each.later_goodput for each in ilp.tables.problem.tenants if each.name in retrained)
    proven = bound - value <= _TOLERANCE * max(1.0, abs(value))
    return replace(
        plan,
        goodput=value - later,
        later_goodput=later,
        upper_bound=value if proven else bound,
    )


class Status(StrEnum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    """Proven, up to the relative gap asked for (0 by default) and the solver's tolerances."""
    TIME_LIMIT = "time_limit"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True)
class Solved:
    """A solver's answer; `values` None where it has found no solution."""

    status: Status
    values: FloatArray | None
    upper_bound: float
    """Infinite where it has proven nothing yet."""


@dataclass(frozen=True)
class Limits:
    """When a solver may stop."""

    time_limit_s: float | None
    gap: float

    def __post_init__(self) -> None:
        """Refuse what a solver would silently ignore."""
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise InputError(f"time limit: {self.time_limit_s} s is not a positive time; raise it")
        if not self.gap >= 0:
            raise InputError(f"gap: {self.gap} is not a share of the goodput; use 0 or more")


def solve_model(model: Model, backend: str, limits: Limits, start: FloatArray | None) -> Solved:
    """Solve with the backend of that name, from `start` where one is given."""
    if backend not in _BACKENDS:
        raise InputError(f"backend: unknown solver {backend!r}; use {' or '.join(_BACKENDS)}")
    if model.columns == 0:  # no tenant has a pattern, and HiGHS calls that empty, not infeasible
        return Solved(Status.INFEASIBLE, None, -np.inf)
    return _BACKENDS[backend](model, limits, start)


def _solve_highs(model: Model, limits: Limits, start: FloatArray | None) -> Solved:
    import highspy

    solver: Any = highspy.Highs()
    options: dict[str, bool | int | float | str] = {
        "output_flag": False,
        "threads": 1,
        "parallel": "off",
        "random_seed": 0,
        "mip_rel_gap": limits.gap,
        "mip_abs_gap": _ABSOLUTE_GAP,
    }
    if limits.time_limit_s is not None:
        options["time_limit"] = limits.time_limit_s
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(_highs_model(model))
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = start
        solver.setSolution(solution)
    solver.run()
    return _highs_answer(solver)


def _highs_model(model: Model) -> Any:
    import highspy

    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = model.columns, model.rows
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = model.cost, model.lower, model.upper
    lp.row_lower_, lp.row_upper_ = model.row_lower, model.row_upper
    lp.row_names_ = list(model.row_names)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = model.row_starts.astype(np.int32)
    lp.a_matrix_.index_ = model.entry_columns.astype(np.int32)
    lp.a_matrix_.value_ = model.entry_values
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    lp.integrality_ = [kinds[whole] for whole in model.integer.tolist()]
    return lp


def _highs_answer(solver: Any) -> Solved:
    import highspy

    status, info = solver.getModelStatus(), solver.getInfo()
    ended = highspy.HighsModelStatus
    if status in {ended.kInfeasible, ended.kUnboundedOrInfeasible}:
        # every column is bounded, so unbounded is out of the question
        return Solved(Status.INFEASIBLE, None, -np.inf)
    if status not in {ended.kOptimal, ended.kTimeLimit}:
        reason = solver.modelStatusToString(status)
        raise SolverError(f"HiGHS stopped with {reason!r}; use --solver exact")
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = np.array(solver.getSolution().col_value) if found else None
    how = Status.OPTIMAL if status == ended.kOptimal else Status.TIME_LIMIT
    return Solved(how, values, float(info.mip_dual_bound))


def _solve_gurobi(model: Model, limits: Limits, start: FloatArray | None) -> Solved:
    try:
        import gurobipy
    except ImportError as missing:
        raise InputError(
            "gurobipy is not installed; use --backend highs, or pip install 'migrator[gurobi]'"
        ) from missing
    try:
        with gurobipy.Env(params={"OutputFlag": 0}) as env, gurobipy.Model(env=env) as program:
            _fill_gurobi(program, model, limits, start)
            program.optimize()
            return _gurobi_answer(program)
    except gurobipy.GurobiError as error:
        if error.errno == gurobipy.GRB.Error.SIZE_LIMIT_EXCEEDED:
            raise SolverError(
                f"Gurobi's licence stops before {model.columns} variables and {model.rows} "
                f"rows; {_INSTEAD}"
            ) from error
        raise SolverError(f"Gurobi refused ({error}); {_INSTEAD}") from error


def _fill_gurobi(program: Any, model: Model, limits: Limits, start: FloatArray | None) -> None:
    """The model by rows: gurobipy's matrix calls need scipy, which nothing else here does."""
    import gurobipy

    parameters: dict[str, float] = {
        "Threads": 1,
        "Seed": 0,
        "MIPGap": limits.gap,
        "MIPGapAbs": _ABSOLUTE_GAP,
    }
    if limits.time_limit_s is not None:
        parameters["TimeLimit"] = limits.time_limit_s
    for name, value in parameters.items():
        program.setParam(name, value)
    kinds = np.where(model.integer, gurobipy.GRB.BINARY, gurobipy.GRB.CONTINUOUS)
    columns = program.addMVar(
        model.columns, lb=model.lower, ub=model.upper, obj=model.cost, vtype=kinds
    )
    program.ModelSense = gurobipy.GRB.MAXIMIZE
    if start is not None:
        columns.Start = start
    each = columns.tolist()
    for row, name in enumerate(model.row_names):
        begin, end = model.row_starts[row], model.row_starts[row + 1]
        terms = gurobipy.LinExpr(
            model.entry_values[begin:end].tolist(),
            [each[column] for column in model.entry_columns[begin:end]],
        )
        fixed = model.row_lower[row] == model.row_upper[row]
        program.addLConstr(terms, "=" if fixed else "<", model.row_upper[row], name)


def _gurobi_answer(program: Any) -> Solved:
    import gurobipy

    ended = gurobipy.GRB.Status
    if program.Status in {ended.INFEASIBLE, ended.INF_OR_UNBD}:
        return Solved(Status.INFEASIBLE, None, -np.inf)
    if program.Status not in {ended.OPTIMAL, ended.TIME_LIMIT}:
        raise SolverError(f"Gurobi stopped with status {program.Status}; use --backend highs")
    values = np.array(program.getAttr("X", program.getVars())) if program.SolCount else None
    how = Status.OPTIMAL if program.Status == ended.OPTIMAL else Status.TIME_LIMIT
    return Solved(how, values, float(program.ObjBound))


_BACKENDS: dict[str, Callable[[Model, Limits, FloatArray | None], Solved]] = {
    "highs": _solve_highs,
    "gurobi": _solve_gurobi,
}
