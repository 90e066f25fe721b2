"""The solvers that a model can be given to: HiGHS and Gurobi."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from migrator.core.errors import InputError, SolverError
from migrator.planning.ilp.model import IlpModel
from migrator.planning.ilp.tables import FloatArray

_ABSOLUTE_GAP = 1e-9
_INSTEAD = "use --backend highs, or install a Gurobi licence that allows this size"


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
class SolverLimits:
    """When a solver may stop."""

    time_limit_s: float | None
    gap: float

    def __post_init__(self) -> None:
        """Refuse what a solver would silently ignore."""
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise InputError(f"time limit: {self.time_limit_s} s is not a positive time; raise it")
        if not self.gap >= 0:
            raise InputError(f"gap: {self.gap} is not a share of the goodput; use 0 or more")


def solve_model(
    model: IlpModel, backend: str, limits: SolverLimits, start: FloatArray | None
) -> Solved:
    """Solve with the backend of that name, from `start` where one is given."""
    if backend not in _BACKENDS:
        raise InputError(f"backend: unknown solver {backend!r}; use {' or '.join(_BACKENDS)}")
    if model.columns == 0:  # no tenant has a pattern, and HiGHS calls that empty, not infeasible
        return Solved(Status.INFEASIBLE, None, -np.inf)
    return _BACKENDS[backend](model, limits, start)


def _solve_highs(model: IlpModel, limits: SolverLimits, start: FloatArray | None) -> Solved:
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


def _highs_model(model: IlpModel) -> Any:
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
    has_solution = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = np.array(solver.getSolution().col_value) if has_solution else None
    how = Status.OPTIMAL if status == ended.kOptimal else Status.TIME_LIMIT
    return Solved(how, values, float(info.mip_dual_bound))


def _solve_gurobi(model: IlpModel, limits: SolverLimits, start: FloatArray | None) -> Solved:
    try:
        import gurobipy
    except ImportError as missing:
        raise InputError(
            "gurobipy is not installed; use --backend highs, or pip install 'migrator-gpu[gurobi]'"
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


def _fill_gurobi(
    program: Any, model: IlpModel, limits: SolverLimits, start: FloatArray | None
) -> None:
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
    variables = columns.tolist()
    for row, name in enumerate(model.row_names):
        begin, end = model.row_starts[row], model.row_starts[row + 1]
        terms = gurobipy.LinExpr(
            model.entry_values[begin:end].tolist(),
            [variables[column] for column in model.entry_columns[begin:end]],
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


_BACKENDS: dict[str, Callable[[IlpModel, SolverLimits, FloatArray | None], Solved]] = {
    "highs": _solve_highs,
    "gurobi": _solve_gurobi,
}
