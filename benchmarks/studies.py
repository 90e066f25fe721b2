"""The studies: which problems are measured and what is noted of each.

A study gives its cases; nothing runs before a case is asked for its row. A row with a `wrong`
text has found a planner's certificate refuted, which no speed can make up for.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import TOLERANCE, Case, Row, exceeds, timed_plan
from benchmarks.problems import random_window
from migrator.core.errors import SolverError
from migrator.core.problem import Charge, Plan
from migrator.planning.check import goodput_of
from migrator.planning.ilp import IlpOutcome, Status, solve_ilp
from migrator.planning.problem_file import problem_to_json


@dataclass(frozen=True)
class Settings:
    """How much is measured; the defaults are the full studies."""

    slots: int = 200
    two_tenants: int = 50
    versus_highs: int = 10
    versus_slots: int = 20
    exact_repeats: int = 3
    highs_limit_s: float = 300.0
    half_second_slots: int = 20
    more_tenants: int = 10
    more_tenants_of: tuple[int, ...] = (3, 4, 5, 6)
    short_limit_s: float = 2.0
    long_limit_s: float = 600.0
    growth: int = 5
    growth_slots: tuple[int, ...] = (50, 100, 200, 400, 800)
    growth_tenants: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    growth_overheads_s: tuple[float, ...] = (0.0, 1.0, 2.0, 5.0, 10.0)
    growth_limit_s: float = 10.0
    survivors: int = 10
    survivors_of: tuple[int, ...] = (2, 3, 4)
    cold_start: int = 10


QUICK = Settings(
    slots=30,
    two_tenants=2,
    versus_highs=1,
    versus_slots=6,
    exact_repeats=2,
    half_second_slots=1,
    more_tenants=1,
    more_tenants_of=(3, 6),
    short_limit_s=0.2,
    long_limit_s=1.0,
    growth=2,
    growth_slots=(20, 40),
    growth_tenants=(1, 2, 3),
    growth_overheads_s=(0.0, 2.0),
    growth_limit_s=0.5,
    survivors=1,
    survivors_of=(2,),
    cold_start=2,
)
"""Tiny sizes: whether everything runs, not how fast."""


def two_tenants(settings: Settings) -> list[Case]:
    """Two tenants, slots of a second, the default time limit."""
    return [_planned(seed, tenants=2, slots=settings.slots) for seed in range(settings.two_tenants)]


def half_second_slots(settings: Settings) -> list[Case]:
    """The same length of window in twice as many slots."""
    return [
        _planned(seed, tenants=2, slots=2 * settings.slots, slot_s=0.5)
        for seed in range(settings.half_second_slots)
    ]


def growth(settings: Settings) -> list[Case]:
    """How the time grows with slots, tenants and overhead, one at a time."""
    axes: dict[str, tuple[float, ...]] = {
        "slots": settings.growth_slots,
        "tenants": settings.growth_tenants,
        "overhead_s": settings.growth_overheads_s,
    }
    usual = {"tenants": 2, "slots": settings.slots}
    return [
        _planned(
            seed,
            {"axis": axis, "at": at},
            limit_s=settings.growth_limit_s,
            **{**usual, axis: at},
        )
        for axis, ticks in axes.items()
        for at in ticks
        for seed in range(settings.growth)
    ]


def versus_highs(settings: Settings) -> list[Case]:
    """The exact planner and HiGHS on the same small windows, both to the proven optimum."""
    return [
        Case({"seed": seed}, partial(_versus_highs, seed, settings))
        for seed in range(settings.versus_highs)
    ]


def more_tenants(settings: Settings) -> list[Case]:
    """What a short time limit leaves behind the best of a long run, and what is certified."""
    return [
        Case({"seed": seed, "tenants": tenants}, partial(_more_tenants, seed, tenants, settings))
        for tenants in settings.more_tenants_of
        for seed in range(settings.more_tenants)
    ]


def survivors(settings: Settings) -> list[Case]:
    """Planning for the `survivors` charge, against what the `paper` plan is worth under it."""
    return [
        Case({"seed": seed, "tenants": tenants}, partial(_survivors, seed, tenants, settings))
        for tenants in settings.survivors_of
        for seed in range(settings.survivors)
    ]


def cold_start(settings: Settings) -> list[Case]:
    """`migrator plan FILE --json` as a process of its own, from start to printed answer."""
    return [
        Case({"seed": 0, "run": run}, partial(_cold_start, 0, settings.slots, warm_up=run == 0))
        for run in range(settings.cold_start)
    ]


STUDIES: dict[str, Callable[[Settings], list[Case]]] = {
    "two_tenants": two_tenants,
    "versus_highs": versus_highs,
    "half_second_slots": half_second_slots,
    "more_tenants": more_tenants,
    "growth": growth,
    "survivors": survivors,
    "cold_start": cold_start,
}


def _planned(
    seed: int, key: Row | None = None, *, limit_s: float | None = None, **window: Any
) -> Case:
    """A case that is one plan of one window."""

    def measure() -> Row:
        return timed_plan(random_window(seed, **window), limit_s)[1]

    return Case({"seed": seed, **(key or {})}, measure)


def _versus_highs(seed: int, settings: Settings) -> Row:
    problem = random_window(seed, tenants=2, slots=settings.versus_slots)
    runs = [timed_plan(problem) for _ in range(settings.exact_repeats)]
    plan, row = min(runs, key=lambda run: run[0].solve_s)
    highs = solve_ilp(problem, backend="highs", time_limit_s=settings.highs_limit_s)
    proven = highs.status is Status.OPTIMAL
    return {
        **row,
        "repeats": settings.exact_repeats,
        "highs_status": str(highs.status),
        "highs_goodput": highs.goodput,
        "highs_upper_bound": highs.upper_bound,
        "highs_gap": highs.gap,
        "highs_solve_s": highs.solve_s,
        "highs_build_s": highs.build_s,
        "highs_rows": highs.rows,
        "highs_columns": highs.columns,
        "difference": None if highs.goodput is None else plan.goodput - highs.goodput,
        "ratio": highs.solve_s / plan.solve_s,
        "ratio_is_lower_bound": not proven,
        "wrong": _disagreement(plan, highs),
    }


def _disagreement(plan: Plan, highs: IlpOutcome) -> str | None:
    """Where the two solvers cannot both be right."""
    if highs.upper_bound is None:
        return "HiGHS calls the problem infeasible"
    if exceeds(plan.goodput, highs.upper_bound):
        return "the exact plan exceeds HiGHS's bound"
    if highs.goodput is not None and exceeds(highs.goodput, plan.upper_bound):
        return "HiGHS's plan exceeds the exact planner's bound"
    return None


def _more_tenants(seed: int, tenants: int, settings: Settings) -> Row:
    problem = random_window(seed, tenants=tenants, slots=settings.slots)
    plan, row = timed_plan(problem, settings.short_limit_s)
    long, _ = timed_plan(problem, settings.long_limit_s)
    best = max(plan.goodput, long.goodput)
    refuted = exceeds(best, min(plan.upper_bound, long.upper_bound))
    return {
        **row,
        "reference": best,
        "reference_bound": long.upper_bound,
        "reference_gap": long.gap,
        "reference_s": long.solve_s,
        "reference_limit_s": settings.long_limit_s,
        "shortfall": 1 - plan.goodput / best if best > 0 else 0.0,
        "long_run_worse": long.goodput < plan.goodput * (1 - TOLERANCE),
        "wrong": "a plan exceeds the other run's bound" if refuted else None,
    }


def _survivors(seed: int, tenants: int, settings: Settings) -> Row:
    problem = random_window(seed, tenants=tenants, slots=settings.slots, charge=Charge.SURVIVORS)
    plan, row = timed_plan(problem)
    paper, _ = timed_plan(problem.with_charge(Charge.PAPER))
    carried = goodput_of(problem, paper)
    refuted = exceeds(carried, plan.upper_bound)
    return {
        **row,
        "paper_gap": paper.gap,
        "paper_solve_s": paper.solve_s,
        "paper_plan_goodput": carried,
        "relative": plan.goodput / carried if carried > 0 else None,
        "wrong": "the paper plan exceeds the certified bound" if refuted else None,
    }


def _cold_start(seed: int, slots: int, *, warm_up: bool) -> Row:
    problem = random_window(seed, tenants=2, slots=slots)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "window.json"
        file.write_text(json.dumps(problem_to_json(problem)), encoding="utf-8")
        if warm_up:  # the first plan after an installation compiles; every later one loads
            _launch_plan(file)
        launched = _launch_plan(file)
    answer = json.loads(launched.pop("answer"))
    figures = {name: answer[name] for name in ("goodput", "upper_bound", "gap", "solve_s")}
    return {"tenants": 2, "slots": slots, "slot_s": problem.slot_s, **figures, **launched}


def _launch_plan(file: Path) -> dict[str, Any]:
    script = Path(sys.executable).with_name("migrator")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "migrator"]
    launcher = [sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py"))]
    ran = subprocess.run(
        [*launcher, *command, "plan", str(file), "--json"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    parsed_json: dict[str, Any] = json.loads(ran.stdout)
    if parsed_json["code"] != 0:
        raise SolverError(f"`migrator plan` ended with exit code {parsed_json['code']}")
    return parsed_json
