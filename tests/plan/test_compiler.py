"""Kernels do with arrays what the same Python code does."""

import ast
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from numba.core.event import install_recorder as recorded
from support.problems import random_problem

from migrator.core.errors import InfeasibleError
from migrator.core.problem import Charge, Problem
from migrator.plan import kernels
from migrator.plan.exact.space import Bools, Floats, Ints
from migrator.plan.first_use import without_collection
from migrator.plan.kernels import compiled, compiled_inner
from migrator.plan.solve import make_plan, ready
from migrator.plan.survivors.fixed_schedule import replan


@compiled_inner
def _sum_of(row: Floats) -> float:
    total = 0.0
    for i in range(row.shape[0]):
        total += row[i]
    return total


@compiled
def _use(cube: Floats, single: Any, small: Any, flags: Bools, counts: Ints) -> float:
    total = 0.0
    for i in range(cube.shape[0]):
        for j in range(cube.shape[1]):
            for k in range(cube.shape[2]):
                cube[i, j, k] += single[j, k] * small[k]
            flags[i, j] = cube[i, j, 1] > 0.0
            total += _sum_of(cube[i, j])
        counts[i], counts[0] = counts[i] + small[0], counts[0] + 1
    last: float = total + cube[0, 1, 2] + counts[2]
    return last


def _arguments(seed: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(3, 4, 5)),
        rng.normal(size=(4, 5)).astype(np.float32),
        rng.integers(-9, 9, 5).astype(np.int8),
        np.zeros((3, 4), np.bool_),
        rng.integers(0, 9, 3),
    )


@pytest.mark.parametrize("seed", range(3))
def test_elements_are_where_python_has_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = _arguments(seed), _arguments(seed)
    use, inner = cast("Dispatcher[Any]", _use), cast("Dispatcher[Any]", _sum_of)
    found = use(*ours)
    monkeypatch.setitem(globals(), "_sum_of", inner.py_func)
    assert found == use.py_func(*theirs)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)


CHECKED = """
import numpy as np
from migrator.plan.kernels import compiled

@compiled
def element(row, at):
    return row[at]

row = np.arange(3.0)
print(element(row, 2))
for at in (-1, 3):
    try:
        element(row, at)
    except IndexError as error:
        print(error)
"""


def test_indices_are_checked_on_request(tmp_path: Path) -> None:
    source = tmp_path / "checked.py"
    source.write_text(CHECKED, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(source)],
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["2.0", *["index is out of bounds"] * 2]


def test_kernels_run_as_plain_python_on_request() -> None:
    program = (
        "from migrator.plan.kernels import compiled, entry\n"
        "def negative(number): return -number\n"
        "print(entry(compiled(negative))(-3))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "3\n"


def test_no_kernel_counts_from_the_end_of_an_array() -> None:
    folder = Path(kernels.__file__).parent
    looked_at = 0
    for path in (*folder.glob("exact/*.py"), *folder.glob("survivors/*.py")):
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(each, ast.FunctionDef) or not each.decorator_list:
                continue
            if ast.unparse(each.decorator_list[0]) not in ("compiled", "compiled_inner"):
                continue
            looked_at += 1
            for use in ast.walk(each):
                index = ast.unparse(use.slice) if isinstance(use, ast.Subscript) else ""
                parts = index.strip("()").split(", ")
                assert not any(part.startswith("-") for part in parts), (path.name, index)
    assert looked_at > 40


def _with_numbers(problem: Problem, kind: Callable[[float], Any]) -> Problem:
    """The problem with numbers of that type."""
    tenants = tuple(
        replace(
            each,
            received=tuple(tuple(map(kind, row)) for row in each.received),
            capability={size: kind(1 + rate) for size, rate in each.capability.items()},
            accuracy_pre=kind(0),
            accuracy_post=kind(1),
            overhead_s=kind(each.overhead_s),
        )
        for each in problem.tenants
    )
    return replace(problem, tenants=tenants)


@pytest.mark.parametrize("charge", Charge)
def test_whole_numbers_give_the_plan_that_floats_give(charge: Charge) -> None:
    problem = random_problem(5, tenants=2, slots=8, charge=charge)
    plans = [make_plan(_with_numbers(problem, each), steady=True) for each in (int, _whole)]
    assert plans[0].goodput == plans[1].goodput
    assert plans[0].upper_bound == plans[1].upper_bound
    assert plans[0].slots == plans[1].slots


def _whole(number: float) -> float:
    return float(int(number))


def test_a_kernel_always_gets_arguments_of_the_same_types(monkeypatch: pytest.MonkeyPatch) -> None:
    for charge in Charge:
        ready(charge)
    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith("migrator.plan.") and hasattr(module, "entry")
    ]
    assert len(modules) > 5
    for module in modules:  # numba looks at the types and would compile for others
        monkeypatch.setattr(module, "entry", lambda kernel: kernel)
    solved = 0
    with recorded("numba:compile") as seen:
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
                held = tuple(each for each in plan.slots[2].instances if each.task is not None)
                ahead = {t.name: ((9.0, 1.0, 5.0), (0.0, 7.0, 2.0)) for t in problem.tenants}
                if problem.charge is Charge.SURVIVORS:
                    replan(problem, plan, 2, ahead, held)
    assert solved > 10
    assert not seen.buffer


@pytest.mark.parametrize("enabled", [True, False])
def test_compiling_leaves_the_garbage_collection_as_it_was(
    enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched: list[str] = []
    monkeypatch.setattr(gc, "isenabled", lambda: enabled)
    monkeypatch.setattr(gc, "disable", lambda: switched.append("off"))
    monkeypatch.setattr(gc, "enable", lambda: switched.append("on"))
    with pytest.raises(OSError, match="full"), without_collection():
        raise OSError("full")
    assert switched == (["off", "on"] if enabled else ["off"])
