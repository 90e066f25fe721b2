"""The exact planner against brute force, and what it promises."""

from dataclasses import replace
from functools import cache, reduce
from operator import or_
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.amount import amount
from support.brute_force import best_plan
from support.make import instances, several, tenant
from support.problems import random_problem

from migrator.core.catalogue import Board, board, boards, placement_sets, placements
from migrator.core.errors import InfeasibleError
from migrator.core.problem import (
    Charge,
    Initial,
    Plan,
    Problem,
    Retraining,
    RunningRetraining,
    Tenant,
)
from migrator.planning.check import check_plan
from migrator.planning.exact.geometry import geometry
from migrator.planning.solve import make_plan

PLENTY_S = 60.0


def window(*tenants: Tenant, gpu: str = "A100-40GB", initial: Initial | None = None) -> Problem:
    slots = len(tenants[0].received[0])
    return Problem(board(gpu), 1.0, slots, Charge.PAPER, tenants, initial)


def solve(problem: Problem) -> Plan:
    plan = make_plan(problem, time_limit_s=PLENTY_S)
    check_plan(problem, plan)
    return plan


@pytest.mark.parametrize(
    ("tenants", "slots", "gpu", "options", "seeds"),
    [
        (2, 4, "A30-24GB", {}, 25),
        (2, 4, "A30-24GB", {"optional": True, "initial": True}, 25),
        (3, 3, "A30-24GB", {}, 6),
        (2, 3, "A100-40GB", {}, 4),
        (2, 4, "A30-24GB", {"configurations": 3}, 25),
        (2, 4, "A30-24GB", {"configurations": 4, "optional": True, "initial": True}, 25),
        (2, 4, "A30-24GB", {"preferences": True, "scenarios": 2}, 25),
        (2, 4, "A30-24GB", {"preferences": True, "optional": True, "initial": True}, 25),
        (3, 3, "A30-24GB", {"preferences": True, "initial": True}, 6),
    ],
)
def test_plans_equal_brute_force(
    tenants: int, slots: int, gpu: str, options: dict[str, Any], seeds: int
) -> None:
    for seed in range(seeds):
        drawn = random_problem(
            seed, tenants=tenants, slots=slots, board=gpu, charge=Charge.PAPER, **options
        )
        best = best_plan(drawn)
        if best is None:
            with pytest.raises(InfeasibleError):
                solve(drawn)
            continue
        plan = solve(drawn)
        assert plan.objective == pytest.approx(best.objective), f"seed {seed}"
        assert plan.status == "proven optimal", f"seed {seed}"


@pytest.mark.parametrize("charge", Charge)
def test_the_plan_chooses_the_configuration_that_pays(charge: Charge) -> None:
    """The short one for the window alone, the long one if its gain lasts."""
    choices = several(short=(0.7, {1: 2}), long=(0.9, {1: 12}), worse=(0.6, {1: 3}))
    chosen = {}
    for after in (0.0, 800.0):
        trains = tenant("a", [10.0] * 16, configurations=choices, requests_after=after)
        plan = solve(replace(window(trains), charge=charge))
        (retraining,) = plan.retrainings
        chosen[after] = retraining.configuration, retraining.end - retraining.start
        gain = {"short": 0.2, "long": 0.4}[retraining.configuration]
        assert plan.later_goodput == pytest.approx(after * gain)
    assert chosen == {0.0: ("short", 2), 800.0: ("long", 12)}


@pytest.mark.parametrize("charge", Charge)
def test_a_running_retraining_keeps_its_configuration(charge: Charge) -> None:
    choices = several(short=(0.7, {1: 2}), long=(0.9, {1: 6}))
    held = Initial(instances("1g@0:a* 1g@1:a"), (RunningRetraining("a", 3, "long"),))
    problem = window(tenant("a", [5.0] * 5, configurations=choices), initial=held)
    plan = solve(replace(problem, charge=charge))
    assert plan.retrainings == (Retraining("a", 0, 3, 1, "long"),)
    assert plan.goodput == pytest.approx(5 * (3 * 0.5 + 2 * 0.9))


def test_where_a_charge_makes_goodput_negative_the_less_accurate_may_lose_less() -> None:
    """`a` must give up its 2g for the retraining of `b`, which costs more than the slot."""
    size: dict[str, Any] = {"capability": {1: 10.0, 2: 20.0}, "overhead_s": 9.0}
    choices = several(more=(0.9, {1: 1}), less=(0.1, {1: 1}))
    a = tenant("a", [1.0] * 2, configurations=choices, **size)
    b = tenant("b", [1.0] * 2, retraining_slots={2: 1}, **size)
    held = Initial(instances("2g@0:a 1g@2:b"), ())
    problem = window(a, b, gpu="A30-24GB", initial=held)
    best = best_plan(problem)
    assert best is not None
    plan = solve(problem)
    assert plan.objective == pytest.approx(best.objective)
    assert plan.retrainings[0].configuration == "less"


@pytest.mark.parametrize("charge", Charge)
def test_an_optional_retraining_without_gain_is_left_out_and_one_with_gain_is_not(
    charge: Charge,
) -> None:
    load = [30.0] * 20
    no_gain = tenant(
        "a", load, accuracy_post=0.5, retraining_slots={1: 4, 2: 3}, retraining_optional=True
    )
    gain = tenant(
        "b", load, accuracy_pre=0.1, retraining_slots={1: 4, 2: 3}, retraining_optional=True
    )
    plan = make_plan(window(no_gain, gain).with_charge(charge), time_limit_s=PLENTY_S)
    assert [retraining.tenant for retraining in plan.retrainings] == ["b"]


@pytest.mark.parametrize("charge", Charge)
def test_requests_after_the_window_make_a_late_retraining_pay(charge: Charge) -> None:
    """It takes the whole window, so inside the window it only costs."""
    short_sighted = tenant("a", [60.0] * 10, retraining_slots={3: 10}, retraining_optional=True)
    far_sighted = replace(short_sighted, requests_after=1200.0)
    without = make_plan(window(short_sighted).with_charge(charge), time_limit_s=PLENTY_S)
    retrained = make_plan(window(far_sighted).with_charge(charge), time_limit_s=PLENTY_S)
    assert without.retrainings == ()
    assert [retraining.end for retraining in retrained.retrainings] == [10]
    assert retrained.later_goodput == pytest.approx(1200 * 0.4)
    assert retrained.goodput < without.goodput
    assert retrained.objective > without.objective


def test_a_required_retraining_that_does_not_fit_names_tenant_and_remedy() -> None:
    endless = tenant("a", [60.0] * 5, retraining_slots={1: 9, 3: 6})
    with pytest.raises(InfeasibleError, match=r"'a' .* at least 6 slots .* \"optional\""):
        solve(window(endless))


@settings(max_examples=amount(30, 60), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    tenants=st.integers(1, 6),
    slots=st.integers(1, 40),
    gpu=st.sampled_from(["A100-40GB", "A30-24GB", "H200-141GB"]),
    initial=st.booleans(),
    scenarios=st.sampled_from([1, 1, 4]),
)
def test_any_problem_gives_a_checked_plan_below_its_bound(
    seed: int, tenants: int, slots: int, gpu: str, initial: bool, scenarios: int
) -> None:
    if gpu == "A30-24GB":
        tenants = min(tenants, 4)
    problem = random_problem(
        seed,
        tenants=tenants,
        slots=slots,
        board=gpu,
        charge=Charge.PAPER,
        initial=initial,
        scenarios=scenarios,
    )
    try:
        plan = make_plan(problem, time_limit_s=2.0)
    except InfeasibleError:
        return
    assert check_plan(problem, plan) <= plan.upper_bound + 1e-9 * abs(plan.upper_bound) + 1e-9


def test_the_same_problem_gives_the_same_plan() -> None:
    rng = np.random.default_rng(5)
    tenants = [
        tenant(f"t{m}", rng.poisson(15, 60).tolist(), retraining_slots={1: 30, 2: 16, 3: 12})
        for m in range(3)
    ]
    first, again = (solve(window(*tenants)) for _ in range(2))
    assert replace(first, solve_s=0) == replace(again, solve_s=0)


def test_schedule_that_cannot_fit_is_refused_by_the_search() -> None:
    """Five retrainings of ten slots, at most two at a time beside five minimum instances."""
    problem = window(*[tenant(f"t{m}", [1.0] * 24, retraining_slots={1: 10}) for m in range(5)])
    with pytest.raises(InfeasibleError, match="retrain"):
        solve(problem)
    roomier = window(*[tenant(f"t{m}", [1.0] * 30, retraining_slots={1: 10}) for m in range(5)])
    assert len(solve(roomier).retrainings) == 5


ONE_OF_EACH_GEOMETRY = list({placements(gpu): gpu for gpu in boards().values()}.values())


@pytest.mark.parametrize("gpu", ONE_OF_EACH_GEOMETRY, ids=lambda gpu: gpu.name)
def test_start_classes_cover_every_start(gpu: Board) -> None:
    """Around any occupied slices, each free start is like one that the search tries."""
    geo = geometry(gpu)
    places = placements(gpu)
    sets = [
        (tuple(sorted(p.gpcs for p in chosen)), reduce(or_, (p.mask for p in chosen), 0))
        for chosen in placement_sets(gpu)
    ]

    @cache
    def around(taken: int) -> frozenset[tuple[int, ...]]:
        return frozenset(sizes for sizes, occupied in sets if not occupied & taken)

    for mask in range(1 << gpu.memory_slices):
        tried = [places[i] for i in geo.starts[mask] if i >= 0]
        assert all(not p.mask & mask for p in tried)
        free = [p for p in places if not p.mask & mask]
        possible = {(p.gpcs, around(mask | p.mask)) for p in free}
        assert {(p.gpcs, around(mask | p.mask)) for p in tried} == possible


@pytest.mark.parametrize("gain", [0.0, -0.05, 0.2])
def test_light_load_is_proven_at_once(gain: float) -> None:
    """All schedules are worth the same, or nearly: the bound must see that nothing is scarce."""
    rng = np.random.default_rng(7)
    tenants = [
        tenant(
            f"t{m}",
            rng.poisson(3, 100).tolist(),
            accuracy_post=0.5 + gain,
            retraining_slots={1: 60, 2: 33, 3: 24, 4: 19},
        )
        for m in range(2)
    ]
    assert solve(window(*tenants)).gap == 0
