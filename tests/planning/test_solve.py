"""make_plan: the way in to the solvers. What it asks of them, and what it does not let pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support import make
from support.problems import random_problem

from migrator.core.catalogue import board
from migrator.core.errors import InfeasibleError, InputError, PlanError, SolverError
from migrator.core.problem import Allocation, Charge, Instance, Kind, Plan, Problem, Task, Tenant
from migrator.planning.solve import SOLVERS, default_time_limit_s, make_plan

PLENTY_S = 60.0

Call = tuple[Problem, float, str, bool]
"""What a solver is given: the problem, the seconds, the backend, whether to start warm."""


def tenant(name: str, *received: float, **changes: Any) -> Tenant:
    return make.tenant(name, received, capability={1: 10.0, 2: 18.0, 4: 30.0}, **changes)


def window(*tenants: Tenant, gpu: str = "A30-24GB", slot_s: float = 1.0) -> Problem:
    slots = len(tenants[0].received[0])
    return Problem(board(gpu), slot_s, slots, Charge.PAPER, tenants)


# One tenant that gets the whole board in both slots, and a plan that does that.

SMALL = window(tenant("a", 20.0, 20.0))
WHOLE = Allocation((Instance(0, 4, Task("a", Kind.INFERENCE)),))
GOOD = Plan(20.0, 20.0, "test", 0.0, (), (WHOLE, WHOLE))


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Plan], list[Call]]:
    """Makes a solver answer with a plan; the list fills with what it was asked."""

    def answer(solver: str, plan: Plan) -> list[Call]:
        calls: list[Call] = []

        def solve(problem: Problem, limit_s: float, backend: str, warm_start: bool) -> Plan:
            calls.append((problem, limit_s, backend, warm_start))
            return plan

        monkeypatch.setitem(SOLVERS, solver, solve)
        return calls

    return answer


Answered = Callable[[str, Plan], list[Call]]


def test_an_unknown_solver_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="'exakt'; use exact or ilp"):
        make_plan(SMALL, solver="exakt")


def test_an_unknown_backend_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="'cplex'; use highs or gurobi"):
        make_plan(SMALL, solver="ilp", backend="cplex")


@pytest.mark.parametrize(("slot_s", "limit_s"), [(1.0, 0.02), (0.5, 0.01), (100.0, 2.0)])
def test_the_time_limit_is_one_percent_of_the_window(
    answered: Answered, slot_s: float, limit_s: float
) -> None:
    calls = answered("exact", GOOD)
    problem = replace(SMALL, slot_s=slot_s)
    make_plan(problem)
    assert calls == [(problem, default_time_limit_s(problem), "highs", False)]
    assert default_time_limit_s(problem) == pytest.approx(limit_s)


def test_what_is_asked_for_reaches_the_solver(answered: Answered) -> None:
    exact, ilp = answered("exact", GOOD), answered("ilp", GOOD)
    make_plan(SMALL, solver="ilp", backend="gurobi", time_limit_s=7.5, warm_start=True)
    assert ilp == [(SMALL, 7.5, "gurobi", True)]
    assert exact == []


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (replace(GOOD, slots=(WHOLE,)), "the number of slots is 1"),
        (replace(GOOD, slots=(WHOLE, Allocation(()))), "slot 1: a/inference holds no instance"),
        (replace(GOOD, goodput=21.0, upper_bound=21.0), "claims goodput 21.0"),
        (replace(GOOD, goodput=20.0, upper_bound=19.0), "upper_bound 19.0 is below"),
    ],
)
def test_every_plan_is_checked(answered: Answered, solver: str, broken: Plan, says: str) -> None:
    answered(solver, broken)
    with pytest.raises(PlanError, match=says):
        make_plan(SMALL, solver=solver)


def test_the_checkers_goodput_is_the_plans(answered: Answered) -> None:
    """A solver's own sum may be off by rounding; its certificate is not worse for it."""
    for bound in (20.0 - 1e-7, 20.0 - 5e-8):
        answered("exact", replace(GOOD, goodput=20.0 - 1e-7, upper_bound=bound))
        plan = make_plan(SMALL)
        assert (plan.goodput, plan.upper_bound, plan.gap) == (20.0, 20.0, 0.0)
    answered("exact", replace(GOOD, goodput=20.0 + 1e-7, upper_bound=25.0))
    assert make_plan(SMALL) == replace(GOOD, upper_bound=25.0)


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_solver_is_asked_what_cannot_be(answered: Answered, solver: str) -> None:
    calls = answered(solver, GOOD)
    with pytest.raises(InfeasibleError, match="inside the window"):
        make_plan(window(tenant("a", 1.0, 1.0, retraining_slots={1: 3})), solver=solver)
    assert calls == []


@pytest.mark.parametrize("charge", Charge)
@pytest.mark.parametrize("solver", SOLVERS)
def test_what_only_a_search_can_tell_is_infeasible_all_the_same(
    solver: str, charge: Charge
) -> None:
    """Three retrainings of two slots, at most two at a time: they need four slots, not three."""
    tenants = [tenant(name, 5.0, 5.0, 5.0, retraining_slots={1: 2}) for name in "abc"]
    others = [tenant(name, 5.0, 5.0, 5.0) for name in "de"]
    problem = window(*tenants, *others, gpu="A100-40GB").with_charge(charge)
    with pytest.raises(InfeasibleError, match="retrain"):
        make_plan(problem, solver=solver, time_limit_s=PLENTY_S)


# The solvers agree.


@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_ilp_and_exact_agree_under_paper(seed: int, initial: bool) -> None:
    problem = random_problem(seed, tenants=2, slots=5, charge=Charge.PAPER, initial=initial)
    ilp, exact = (make_plan(problem, solver=s, time_limit_s=PLENTY_S) for s in ("ilp", "exact"))
    assert ilp.goodput == pytest.approx(exact.goodput)
    assert (ilp.solver, ilp.gap) == ("ilp", 0)
    assert (exact.solver, exact.gap) == ("exact", 0)


@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_ilp_is_between_plan_and_bound_under_survivors(seed: int, initial: bool) -> None:
    problem = random_problem(seed, tenants=2, slots=5, charge=Charge.SURVIVORS, initial=initial)
    ilp, exact = (make_plan(problem, solver=s, time_limit_s=PLENTY_S) for s in ("ilp", "exact"))
    assert ilp.gap == 0
    assert exact.goodput <= ilp.goodput + 1e-6
    assert ilp.goodput <= exact.upper_bound + 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_without_overhead_all_agree_under_both_charges(seed: int) -> None:
    drawn = random_problem(seed, tenants=2, slots=5, charge=Charge.PAPER, initial=True)
    free = tuple(replace(tenant, overhead_s=0.0) for tenant in drawn.tenants)
    paper = replace(drawn, tenants=free)
    exact = make_plan(paper, time_limit_s=PLENTY_S).goodput
    for charge in Charge:
        ilp = make_plan(paper.with_charge(charge), solver="ilp", time_limit_s=PLENTY_S)
        assert ilp.goodput == pytest.approx(exact)
    survivors = make_plan(paper.with_charge(Charge.SURVIVORS), time_limit_s=PLENTY_S)
    assert survivors.goodput == pytest.approx(exact)


# Warm start.


def large_problem() -> Problem:
    """More than HiGHS can do in a moment, and than Gurobi does without a licence."""
    return random_problem(1, tenants=2, slots=30, board="A100-40GB", charge=Charge.SURVIVORS)


def test_a_warm_start_is_the_exact_planners_plan() -> None:
    problem = large_problem()
    exact = make_plan(problem, time_limit_s=1e-3)
    warm = make_plan(problem, solver="ilp", warm_start=True, time_limit_s=1e-3)
    assert warm.slots == exact.slots
    assert warm.goodput == exact.goodput <= warm.upper_bound
    assert warm.solver == "ilp"


def test_without_a_warm_start_time_may_be_over_before_the_first_plan() -> None:
    with pytest.raises(SolverError, match="raise --time-limit, use --warm-start"):
        make_plan(large_problem(), solver="ilp", time_limit_s=1e-3)


@pytest.mark.parametrize("charge", Charge)
def test_a_warm_start_does_not_change_the_optimum(charge: Charge) -> None:
    problem = random_problem(5, tenants=2, slots=4, charge=charge)
    cold, warm = (
        make_plan(problem, solver="ilp", warm_start=warmed, time_limit_s=PLENTY_S)
        for warmed in (False, True)
    )
    assert warm.goodput == pytest.approx(cold.goodput)
    assert warm.gap == cold.gap == 0


# Licence.


def test_a_licence_that_stops_before_the_size_is_told() -> None:
    gurobipy = pytest.importorskip("gurobipy", reason="gurobipy is not installed")
    try:
        with gurobipy.Env(params={"OutputFlag": 0}) as env, gurobipy.Model(env=env) as program:
            program.addVars(2001)
            program.optimize()
        pytest.skip("the Gurobi licence at hand allows any size")
    except gurobipy.GurobiError:
        pass
    with pytest.raises(SolverError, match="use --backend highs, or install a Gurobi licence"):
        make_plan(large_problem(), solver="ilp", backend="gurobi", time_limit_s=PLENTY_S)
