"""One measurement: a plan made under the clock, as a row of plain values."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from migrator.core.errors import MigratorError
from migrator.core.problem import Plan, Problem
from migrator.planning.solve import default_time_limit_s, make_plan

Value = str | float | int | bool | None
Row = dict[str, Value]

TOLERANCE = 1e-6
"""Relative difference of goodputs that is rounding; a MILP solver's own tolerance."""


@dataclass(frozen=True)
class Case:
    """A row to measure: what it is, and how its figures are found."""

    key: Row
    measure: Callable[[], Row]

    def row(self) -> Row:
        """Its figures, or the error that the planner or the checker ended with."""
        try:
            return {**self.key, **self.measure()}
        except MigratorError as error:
            return {**self.key, "error": f"{type(error).__name__}: {error}"}


def timed_plan(problem: Problem, time_limit_s: float | None = None) -> tuple[Plan, Row]:
    """A checked plan and its figures.

    `solve_s` is the planner's own time; `wall_s` and `cpu_s` cover the feasibility test and
    the check as well. Wall far above processor time: the machine was busy with something else.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    plan = make_plan(problem, time_limit_s=time_limit_s)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return plan, {
        "tenants": len(problem.tenants),
        "slots": problem.slots,
        "slot_s": problem.slot_s,
        "charge": str(problem.charge),
        "time_limit_s": time_limit_s or default_time_limit_s(problem),
        "goodput": plan.goodput,
        "upper_bound": plan.upper_bound,
        "gap": plan.gap,
        "solve_s": plan.solve_s,
        "wall_s": wall,
        "cpu_s": cpu,
    }


def exceeds(goodput: float, bound: float) -> bool:
    """Whether a plan's goodput refutes a bound that was certified for all plans."""
    return goodput > bound + TOLERANCE * max(1.0, abs(bound))
