"""Weights and floors: what plans do about them, whichever planner makes them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.make import tenant
from support.problems import random_problem, with_far_too_many_requests

from migrator.core.catalogue import board
from migrator.core.errors import InfeasibleError
from migrator.core.problem import Charge, Plan, Problem, Tenant
from migrator.planning.check import check_plan, goodput_of, requests_short, violations
from migrator.planning.ilp import solve_ilp
from migrator.planning.plan_file import parse_plan, plan_to_json
from migrator.planning.problem_file import parse_problem, problem_to_json
from migrator.planning.solve import make_plan

SLOTS = 6
PLENTY_S = 30.0
STEADY = [35.0] * SLOTS
BURSTY = [5.0, 5.0, 20.0, 20.0, 5.0, 5.0]


def window(*tenants: Tenant, charge: Charge = Charge.PAPER) -> Problem:
    return Problem(board("A30-24GB"), 1.0, SLOTS, charge, tenants)


def pair(charge: Charge = Charge.PAPER, *, floor: float = 0.0, weight: float = 1.0) -> Problem:
    """A steady tenant that could use the whole board, and a less accurate one with a burst."""
    able = {1: 10.0, 2: 20.0, 4: 40.0}
    steady = tenant("steady", STEADY, capability=able, overhead_s=0.2, accuracy_pre=0.9)
    bursty = tenant("bursty", BURSTY, capability=able, overhead_s=0.2, accuracy_pre=0.3)
    return window(steady, replace(bursty, floor=floor, weight=weight), charge=charge)


def solve(problem: Problem, solver: str) -> Plan:
    plan = make_plan(problem, solver=solver, time_limit_s=PLENTY_S)
    check_plan(problem, plan)
    assert plan.status == "proven optimal"
    return plan


def served(problem: Problem, plan: Plan, name: str, share: float) -> bool:
    """Whether the plan answers this share of a tenant's requests in every slot."""
    tenants = tuple(
        replace(tenant, floor=share if tenant.name == name else 0.0) for tenant in problem.tenants
    )
    return requests_short(replace(problem, tenants=tenants), plan)[name] < 1e-6


@pytest.mark.parametrize("charge", Charge)
@pytest.mark.parametrize("solver", ["exact", "ilp"])
def test_without_a_floor_the_bursty_tenant_pays_and_with_one_it_does_not(
    solver: str, charge: Charge
) -> None:
    without = solve(pair(charge), solver)
    assert not served(pair(charge), without, "bursty", 0.6)
    with_floor = solve(pair(charge, floor=0.9), solver)
    assert served(pair(charge), with_floor, "bursty", 0.9)
    assert with_floor.penalty == 0
    assert with_floor.goodput < without.goodput


@pytest.mark.parametrize("charge", Charge)
@pytest.mark.parametrize("solver", ["exact", "ilp"])
def test_weight_decides_who_is_served_and_goodput_stays_what_it_is(
    solver: str, charge: Charge
) -> None:
    problem = pair(charge, weight=10.0)
    plain, heavy = solve(pair(charge), solver), solve(problem, solver)
    of_bursty = [goodput_of_bursty(problem, plan) for plan in (plain, heavy)]
    assert of_bursty[0] < of_bursty[1]
    assert plain.weighting == 0
    assert heavy.goodput < plain.goodput < heavy.objective
    assert heavy.weighting == pytest.approx(9 * of_bursty[1])


def goodput_of_bursty(problem: Problem, plan: Plan) -> float:
    steady, bursty = problem.tenants
    alone = replace(problem, tenants=(replace(steady, accuracy_pre=0.0), bursty))
    return goodput_of(alone, plan)


@pytest.mark.parametrize("charge", Charge)
@pytest.mark.parametrize("solver", ["exact", "ilp"])
def test_where_no_plan_meets_all_floors_the_fewest_requests_are_short(
    solver: str, charge: Charge
) -> None:
    """Together they want 32.5 + 20 in the burst, and the board answers 40 at most."""
    problem = pair(charge, floor=1.0)
    steady, bursty = problem.tenants
    problem = replace(problem, tenants=(replace(steady, floor=32.5 / 35), bursty))
    plan = solve(problem, solver)
    assert sum(requests_short(problem, plan).values()) >= 2 * 12.5
    least = {
        name: requests_short(problem, solve(replace(problem, tenants=tenants), solver))
        for name, tenants in {
            "steady": (problem.tenants[0], replace(bursty, floor=0.0)),
            "bursty": (steady, problem.tenants[1]),
        }.items()
    }
    for name, short in least.items():
        assert short[name] <= requests_short(problem, plan)[name] + 1e-6
    assert plan.penalty == pytest.approx(
        problem.penalty * sum(requests_short(problem, plan).values())
    )


@pytest.mark.parametrize("charge", Charge)
def test_the_same_weight_for_all_changes_no_plan(charge: Charge) -> None:
    for seed in range(6):
        drawn = random_problem(seed, tenants=2, slots=4, charge=charge, optional=True)
        doubled = tuple(replace(tenant, weight=2.0) for tenant in drawn.tenants)
        try:
            plan = solve(drawn, "exact")
        except InfeasibleError:
            continue
        twice = solve(replace(drawn, tenants=doubled), "exact")
        assert twice.objective == pytest.approx(2 * plan.objective)
        assert (twice.slots, twice.retrainings) == (plan.slots, plan.retrainings)


def test_floors_count_in_expectation_over_the_scenarios() -> None:
    """20 and 0 requests: 10 answered in time are three quarters of them on average."""
    quiet_or_loud = ((20.0,) * SLOTS, (0.0,) * SLOTS)
    bursty = replace(pair().tenants[1], received=quiet_or_loud, accuracy_pre=0.01)
    steady = pair().tenants[0]
    for floor, capable in ((0.5, 10.0), (0.51, 20.0)):
        problem = window(steady, replace(bursty, floor=floor))
        plan = solve(problem, "exact")
        for slot in plan.slots:
            sizes = [i.gpcs for i in slot.instances if i.task and i.task.tenant == "bursty"]
            assert sum(bursty.capability[size] for size in sizes) == capable


def test_claims_about_weights_and_floors_are_checked() -> None:
    problem = pair(floor=1.0, weight=2.0)
    plan = solve(problem, "exact")
    assert parse_plan(json.loads(json.dumps(plan_to_json(plan)))) == plan
    assert parse_problem(json.loads(json.dumps(problem_to_json(problem)))) == problem
    for name in ("weighting", "penalty"):
        wrong = replace(plan, **{name: getattr(plan, name) + 1}, upper_bound=plan.upper_bound + 1)
        assert [
            f"the plan claims {name} " in violation for violation in violations(problem, wrong)
        ] == [True]


@pytest.mark.parametrize("seed", [126, 218])
def test_the_ilp_proves_what_is_earned_and_not_a_small_part_of_a_large_penalty(seed: int) -> None:
    charge = Charge.PAPER if seed == 126 else Charge.SURVIVORS
    drawn = random_problem(seed, tenants=2, slots=4, charge=charge, preferences=True)
    problem = replace(drawn, tenants=tuple(map(with_far_too_many_requests, drawn.tenants)))
    best = make_plan(problem, time_limit_s=PLENTY_S)
    plan = solve_ilp(problem, gap=1e-6).plan
    assert plan is not None
    assert plan.penalty > 1e4 * plan.goodput
    assert plan.objective < best.objective
    assert plan.upper_bound > plan.objective
    assert plan.status != "proven optimal"
