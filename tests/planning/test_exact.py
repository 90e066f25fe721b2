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
    Instance,
    Kind,
    Plan,
    Problem,
    Retraining,
    RunningRetraining,
    Task,
    Tenant,
)
from migrator.planning.check import check_plan
from migrator.planning.exact.best_path import best_path
from migrator.planning.exact.geometry import geometry, symmetries
from migrator.planning.exact.schedule import Start
from migrator.planning.exact.space import build_space
from migrator.planning.exact.tables import NEVER, build_tables
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
        (2, 4, "A30-24GB", {"initial": True}, 25),
        (2, 4, "A30-24GB", {"optional": True}, 25),
        (2, 4, "A30-24GB", {"optional": True, "initial": True}, 25),
        (2, 4, "A30-24GB", {"scenarios": 3}, 8),
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
def test_configurations_that_are_of_no_use_change_nothing(charge: Charge) -> None:
    only_one = several(first=(0.8, {1: 10, 2: 6, 3: 4}))
    useless = several(slower=(0.8, {1: 11, 2: 7, 3: 5}), worse=(0.7, {1: 10, 2: 6, 3: 4}))
    plans = []
    for choices in (only_one, (*useless, *only_one)):
        trains = tenant("a", [22.0] * 20, configurations=choices)
        problem = replace(window(trains, tenant("b", [15.0] * 20)), charge=charge)
        plans.append(solve(problem))
    assert plans[0].retrainings == plans[1].retrainings
    assert plans[0].slots == plans[1].slots


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


@pytest.mark.parametrize("charge", Charge)
def test_an_optional_retraining_that_no_size_can_finish_is_left_out(charge: Charge) -> None:
    endless = tenant("a", [60.0] * 5, retraining_slots={1: 9, 3: 6}, retraining_optional=True)
    plan = make_plan(window(endless).with_charge(charge), time_limit_s=PLENTY_S)
    assert plan.retrainings == ()


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


def test_a_longer_limit_never_gives_less() -> None:
    rng = np.random.default_rng(6)
    tenants = [
        tenant(f"t{m}", rng.poisson(20, 80).tolist(), retraining_slots={1: 40, 2: 21, 4: 13})
        for m in range(4)
    ]
    short, long = (make_plan(window(*tenants), time_limit_s=s) for s in (0.01, 3.0))
    assert short.goodput <= long.goodput
    assert long.upper_bound <= short.upper_bound + 1e-6


@pytest.mark.parametrize(("slots", "goodput"), [(3, 3 * 18), (4, -18 + 3 * 31)])
def test_overhead_longer_than_a_slot_is_charged_in_full(slots: int, goodput: float) -> None:
    """From one 2g to two: 36 - 3 x 18 = -18 in the slot of the change, 31 in each after it."""
    held = Initial((Instance(2, 2, Task("a", Kind.INFERENCE)),))
    one = tenant("a", [31.0] * slots, overhead_s=3.0, capability={2: 18.0, 4: 31.0})
    plan = solve(window(one, gpu="A30-24GB", initial=held))
    assert plan.goodput == pytest.approx(0.5 * goodput)


def test_a_retraining_is_not_moved_and_blocks_its_slices() -> None:
    """With 3g retraining on slices 0-3 a 4g never fits; on 4-7 it does."""
    received = [31.0] * 6
    problem = window(
        tenant("a", received, capability={4: 31.0}, min_gpcs=4),
        tenant("b", [1.0] * 6, capability={7: 9.0, 1: 1.0}, retraining_slots={3: 4}),
    )
    with pytest.raises(InfeasibleError):
        solve(problem)  # 4 + 3 leaves no slice for b's own minimum
    problem = window(
        tenant("a", received, capability={4: 31.0}, min_gpcs=4, retraining_slots={3: 4})
    )
    plan = solve(problem)
    trained = [i for s in plan.slots for i in s.instances if i.task == Task("a", Kind.RETRAINING)]
    assert [(i.start, i.gpcs) for i in trained] == [(4, 3)] * 4


def test_running_retraining_goes_on_where_it_is() -> None:
    held = Initial(
        (
            Instance(2, 1, Task("a", Kind.RETRAINING)),
            Instance(4, 3, Task("a", Kind.INFERENCE)),
            Instance(0, 2, Task("b", Kind.INFERENCE)),
        ),
        (RunningRetraining("a", 3),),
    )
    problem = window(
        tenant("a", [30.0] * 8, retraining_slots={1: 6}), tenant("b", [12.0] * 8), initial=held
    )
    plan = solve(problem)
    where = [
        [(i.start, i.gpcs) for i in slot.instances if i.task == Task("a", Kind.RETRAINING)]
        for slot in plan.slots
    ]
    assert where == [[(2, 1)]] * 3 + [[]] * 5


def test_seven_tenants_without_retraining_get_a_slice_each() -> None:
    plan = solve(window(*[tenant(f"t{m}", [5.0, 20.0]) for m in range(7)]))
    assert all(sorted(i.gpcs for i in slot.instances) == [1] * 7 for slot in plan.slots)
    assert plan.gap == 0


def test_schedule_that_cannot_fit_is_refused_by_the_search() -> None:
    """Five retrainings of ten slots, at most two at a time beside five minimum instances."""
    problem = window(*[tenant(f"t{m}", [1.0] * 24, retraining_slots={1: 10}) for m in range(5)])
    with pytest.raises(InfeasibleError, match="retrain"):
        solve(problem)
    roomier = window(*[tenant(f"t{m}", [1.0] * 30, retraining_slots={1: 10}) for m in range(5)])
    assert len(solve(roomier).retrainings) == 5


ONE_OF_EACH_GEOMETRY = list({placements(gpu): gpu for gpu in boards().values()}.values())


@pytest.mark.parametrize("gpu", ONE_OF_EACH_GEOMETRY, ids=lambda gpu: gpu.name)
def test_rearranged_placements_overlap_as_before(gpu: Board) -> None:
    places = placements(gpu)
    overlaps = np.array([[a.overlaps(b) for b in places] for a in places])
    gpcs = np.array([place.gpcs for place in places])
    for order in symmetries(gpu):
        assert sorted(order) == list(range(len(places)))
        assert (gpcs[order] == gpcs).all()
        assert (overlaps[np.ix_(order, order)] == overlaps).all()


def test_an_a100_can_be_rearranged_in_sixteen_ways() -> None:
    assert len(symmetries(board("A100-40GB"))) == 16


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


def test_retraining_that_does_not_pay_is_not_put_off_until_it_no_longer_fits() -> None:
    rng = np.random.default_rng(8)
    tenants = [
        tenant(
            f"t{m}",
            rng.poisson(9, 200).tolist(),
            accuracy_post=0.5,
            retraining_slots={1: 50, 2: 40, 3: 28, 4: 22},
        )
        for m in range(5)
    ]
    plan = make_plan(window(*tenants), time_limit_s=2.0)
    assert len(plan.retrainings) == 5
    assert plan.gap < 0.02


def test_joint_patterns_of_an_a100() -> None:
    counts = [
        len(build_space(window(*[tenant(f"t{m}", [1.0]) for m in range(n)])).joint)
        for n in range(1, 8)
    ]
    assert counts == [37, 146, 225, 169, 66, 13, 1]


def test_a_schedule_that_leaves_no_room_has_no_path() -> None:
    """A retraining on all of an A30 leaves nothing to serve with."""
    here = board("A30-24GB")
    trains = tenant("a", [5.0] * 4, retraining_slots={2: 2, 4: 1})
    problem = Problem(here, 1.0, 4, Charge.PAPER, (trains, tenant("b", [5.0] * 4)))
    space = build_space(problem)
    tables = build_tables(problem, space)
    whole, half = (
        next(i for i, place in enumerate(space.geometry.places) if place.gpcs == gpcs)
        for gpcs in (4, 2)
    )
    for begin in range(4):
        value, _ = best_path(space, tables, (Start(whole, begin, begin + 1), None))
        assert value < NEVER / 2, f"slot {begin}"
    assert best_path(space, tables, (Start(half, 0, 2), None))[0] > 0
