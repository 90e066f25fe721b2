"""Compiled kernels: kept on disk, compiled once, and the same as their Python code."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numba.core.errors import NumbaError
from numba.core.event import install_recorder
from support.problems import random_problem

import migrator
from migrator.core.errors import InfeasibleError
from migrator.core.problem import Charge, Problem
from migrator.planning.arrays import Ints
from migrator.planning.kernels import compiled
from migrator.planning.planners import ready
from migrator.planning.solve import make_plan
from migrator.planning.survivors import planner, state_search
from migrator.planning.survivors.replanning import replan

NOTICE = "first use of this planner: compiling it, up to a minute, once per installation\n"
KERNELS = """
from migrator.planning.kernels import announced, compiled, compiled_inner

@compiled_inner
def doubled(number): return 2 * number

@compiled
def doubled_and_one(number): return doubled(number) + 1

with announced():
    print(doubled_and_one(1), doubled(2))
"""


@pytest.fixture
def run_kernels(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs two kernels of a module where nothing can be written beside it, even by root."""
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "kernels.py").write_text(KERNELS, encoding="utf-8")
    (installed / "__pycache__").write_text("in the way", encoding="utf-8")

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(installed), str(Path(migrator.__file__).parents[1])])
        environment = {**os.environ, "PYTHONPATH": path, **variables}
        environment = {name: text for name, text in environment.items() if text}
        done = subprocess.run(
            [sys.executable, "-c", "import kernels"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "3 4\n"
        return done

    return run


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "NUMBA_CACHE_DIR"])
def test_an_installation_that_cannot_be_written_keeps_its_kernels_in_a_cache_folder(
    run_kernels: Run, tmp_path: Path, variable: str
) -> None:
    variables = {"NUMBA_CACHE_DIR": "", variable: str(tmp_path / "cache")}
    assert run_kernels(**variables).stderr == NOTICE
    assert list((tmp_path / "cache").rglob("*.nbi"))
    assert run_kernels(**variables).stderr == "", "the next process loads them"


def test_without_a_folder_to_write_every_process_compiles(run_kernels: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder can be made here", encoding="utf-8")
    variables = {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path / "file" / "cache")}
    for _ in range(2):
        assert run_kernels(**variables).stderr == NOTICE


def test_code_older_than_the_planner_is_not_used(run_kernels: Run, tmp_path: Path) -> None:
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    run_kernels(**variables)
    for index in (tmp_path / "cache").rglob("*.nbi"):
        index.write_bytes(b"no index of this version")
        os.utime(index, (0, 0))
    assert run_kernels(**variables).stderr == NOTICE


def test_a_kernel_that_makes_an_array_is_refused() -> None:
    def copied(numbers: Ints) -> int:
        return len(numbers.copy())

    with pytest.raises(NumbaError, match="NRT"):
        compiled(copied)(np.array([3]))


def test_all_kernels_are_compiled_however_slow_the_machine_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes: list[int] = []
    run = state_search.StateSearch.run

    def counted(self: state_search.StateSearch, *args: Any) -> state_search.SearchPass:
        passes.append(1)
        return run(self, *args)

    seconds = itertools.count(0.0, 1000.0)
    monkeypatch.setattr(planner, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))
    monkeypatch.setattr(state_search.StateSearch, "run", counted)
    ready.__wrapped__(Charge.SURVIVORS)
    assert passes


def _with_numbers(problem: Problem, kind: Callable[[float], Any]) -> Problem:
    """The problem with numbers of that type."""
    tenants = tuple(
        replace(
            tenant,
            received=tuple(tuple(map(kind, row)) for row in tenant.received),
            capability={size: kind(1 + rate) for size, rate in tenant.capability.items()},
            accuracy_pre=kind(0),
            configurations=tuple(
                replace(choice, accuracy=kind(1)) for choice in tenant.configurations
            ),
            overhead_s=kind(tenant.overhead_s),
        )
        for tenant in problem.tenants
    )
    return replace(problem, tenants=tenants)


def _whole(number: float) -> float:
    return float(int(number))


@pytest.mark.parametrize("charge", Charge)
def test_whole_numbers_give_the_plan_that_floats_give(charge: Charge) -> None:
    problem = random_problem(5, tenants=2, slots=8, charge=charge)
    plans = [make_plan(_with_numbers(problem, kind), steady=True) for kind in (int, _whole)]
    assert plans[0].goodput == plans[1].goodput
    assert plans[0].upper_bound == plans[1].upper_bound
    assert plans[0].slots == plans[1].slots


def test_planning_compiles_nothing_after_the_first_use() -> None:
    for charge in Charge:
        ready(charge)
    solved = 0
    with install_recorder("numba:compile") as recorder:
        for seed in range(24):
            problem = random_problem(
                seed,
                tenants=1 + seed % 3,
                slots=6,
                charge=tuple(Charge)[seed // 3 % 2],
                initial=seed % 2 == 1,
                scenarios=1 + seed // 2 % 3,
                optional=seed % 5 == 0,
            )
            if seed % 4 == 3:  # numbers of other types than those that files have
                problem = _with_numbers(problem, (int, np.float32)[seed // 4 % 2])
            with suppress(InfeasibleError):
                plan = make_plan(problem, steady=True, time_limit_s=0.1)
                solved += 1
                held = tuple(i for i in plan.slots[2].instances if i.task is not None)
                ahead = {t.name: ((9.0, 1.0, 5.0), (0.0, 7.0, 2.0)) for t in problem.tenants}
                if problem.charge is Charge.SURVIVORS:
                    replan(problem, plan, 2, ahead, held)
    assert solved > 10
    assert not recorder.buffer


AS_PYTHON = """
from support.problems import random_problem
from migrator.core.problem import Charge
from migrator.planning.solve import make_plan
problem = random_problem({seed}, tenants=2, slots=4, charge=Charge("{charge}"))
plan = make_plan(problem, steady=True, time_limit_s=0.01)
print(plan.goodput, plan.upper_bound, plan.slots)
"""


@pytest.mark.parametrize("charge", Charge)
def test_kernels_do_what_the_same_python_code_does(charge: Charge) -> None:
    problem = random_problem(5, tenants=2, slots=4, charge=charge)
    plan = make_plan(problem, steady=True, time_limit_s=0.01)
    done = subprocess.run(
        [sys.executable, "-c", AS_PYTHON.format(seed=5, charge=charge)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{plan.goodput} {plan.upper_bound} {plan.slots}\n"
