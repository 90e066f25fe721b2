"""The example window: what `migrator example` prints, and the same in the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.make import lengths

from migrator.core.problem import Charge, Problem
from migrator.io.yaml_text import load_yaml
from migrator.planning.check import check_plan
from migrator.planning.feasibility import require_feasible
from migrator.planning.problem_file import (
    example_problem,
    parse_problem,
    problem_to_json,
    read_problem,
)
from migrator.planning.solve import make_plan

FILE = Path(__file__).parents[2] / "examples" / "window.yaml"

PLENTY_S = 60.0


@pytest.fixture(scope="module")
def window() -> Problem:
    return parse_problem(example_problem())


def test_it_is_a_problem_file(window: Problem) -> None:
    assert problem_to_json(window) == example_problem()
    assert window.board.name == "A100-40GB"
    assert window.slots * window.slot_s == 200
    assert window.charge is Charge.PAPER


def test_two_tenants_take_turns_and_both_retrain(window: Problem) -> None:
    bert, resnet = window.tenants
    assert lengths(bert)
    assert lengths(resnet)
    peaks = [max(range(200), key=tenant.received[0].__getitem__) for tenant in (bert, resnet)]
    assert abs(peaks[0] - peaks[1]) > 20


def test_it_is_planned_to_the_optimum(window: Problem) -> None:
    require_feasible(window)
    plan = make_plan(window, time_limit_s=PLENTY_S)
    assert check_plan(window, plan) == plan.goodput == pytest.approx(plan.upper_bound)
    assert plan.gap == 0
    assert [retraining.tenant for retraining in plan.retrainings] == ["bert", "resnet50"]
    # There is something to see: instances come and go.
    assert len(set(plan.slots)) > 5


def test_it_is_planned_under_the_other_charge_too(window: Problem) -> None:
    survivors = window.with_charge(Charge.SURVIVORS)
    plan = make_plan(survivors, time_limit_s=PLENTY_S)
    assert check_plan(survivors, plan) == plan.goodput <= plan.upper_bound
    # A tenant keeps serving on what stays with it, so reconfiguring costs less than in the paper.
    assert plan.goodput > make_plan(window, time_limit_s=PLENTY_S).goodput


def test_the_file_in_the_repository_is_what_the_verb_prints(window: Problem) -> None:
    verb = [sys.executable, "-m", "migrator", "example"]
    printed = subprocess.run(verb, capture_output=True, encoding="utf-8", check=True).stdout
    assert load_yaml(printed) == example_problem()
    assert "# requests per slot" in printed
    assert max(map(len, printed.splitlines())) <= 100
    assert FILE.read_text("utf-8") == printed
    assert read_problem(FILE) == window
