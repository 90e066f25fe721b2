"""Planning the inference again around retrainings that stay where the window's plan put them."""

from dataclasses import replace
from typing import Any

import pytest
from support.make import tenant

from migrator.core.catalogue import board, find_placement
from migrator.core.problem import (
    Allocation,
    Charge,
    Initial,
    Instance,
    Kind,
    Plan,
    Problem,
    Retraining,
    Task,
)
from migrator.planning.check import goodput_of
from migrator.planning.solve import make_plan
from migrator.planning.survivors.replanning import replan

A100 = board("A100-40GB")
SLOTS = 20


def window(**changes: Any) -> Problem:
    return Problem(
        A100,
        1.0,
        SLOTS,
        Charge.SURVIVORS,
        (
            tenant("a", [30.0] * SLOTS, retraining_slots={1: 16, 2: 10, 3: 8}, **changes),
            tenant("b", [30.0] * SLOTS, **changes),
        ),
    )


@pytest.fixture(scope="module")
def planned() -> tuple[Problem, Plan]:
    problem = window()
    return problem, make_plan(problem, steady=True)


def capability(problem: Problem, allocation: Allocation, name: str) -> float:
    able = problem.tenant(name).capability
    task = Task(name, Kind.INFERENCE)
    return sum(able[instance.gpcs] for instance in allocation.instances if instance.task == task)


def again(
    problem: Problem, plan: Plan, slot: int, a: float, b: float, slots: int = 8
) -> tuple[Allocation, ...]:
    held = tuple(instance for instance in plan.slots[slot].instances if instance.task is not None)
    ahead = {"a": ((a,) * slots,), "b": ((b,) * slots,)}
    return replan(problem, plan, slot, ahead, held)


def test_every_slot_is_legal_and_the_retraining_stays(planned: tuple[Problem, Plan]) -> None:
    problem, plan = planned
    (retraining,) = plan.retrainings
    for slot in (0, 3, SLOTS - 2):
        allocations = again(problem, plan, slot, 50.0, 10.0, min(8, SLOTS - slot))
        for ahead, allocation in enumerate(allocations):
            masks = 0
            for instance in allocation.instances:
                place = find_placement(A100, instance.start, instance.gpcs)
                assert place is not None
                assert not masks & place.mask
                masks |= place.mask
            assert capability(problem, allocation, "a") > 0
            assert capability(problem, allocation, "b") > 0
            trains = [e for e in allocation.instances if e.task == Task("a", Kind.RETRAINING)]
            is_on = retraining.start <= slot + ahead < retraining.end
            before = plan.slots[slot + ahead].instances
            assert trains == [e for e in before if e.task == Task("a", Kind.RETRAINING)]
            assert len(trains) == is_on


def test_instances_follow_the_requests(planned: tuple[Problem, Plan]) -> None:
    problem, plan = planned
    slot = plan.retrainings[0].end
    to_a, to_b = (again(problem, plan, slot, *rates)[-1] for rates in ((65.0, 5.0), (5.0, 65.0)))
    assert capability(problem, to_a, "a") > capability(problem, to_b, "a")
    assert capability(problem, to_b, "b") > capability(problem, to_a, "b")


def test_what_is_held_stays_where_a_change_would_not_pay_in_time() -> None:
    problem = window(overhead_s=30.0)
    plan = make_plan(problem, steady=True)
    slot = plan.retrainings[0].end
    held = {instance for instance in plan.slots[slot].instances if instance.task is not None}
    allocations = again(problem, plan, slot, 65.0, 5.0)
    kept: set[Instance] = held & set(allocations[0].instances)
    assert kept == held


def test_what_is_held_stays_where_a_change_would_not_pay(planned: tuple[Problem, Plan]) -> None:
    problem, plan = planned
    slot = plan.retrainings[0].end
    held = tuple(instance for instance in plan.slots[slot].instances if instance.task is not None)
    allocations = again(problem, plan, slot, 20.0, 20.0, SLOTS - slot)
    assert {allocation.instances for allocation in allocations} == {held}


def test_a_retraining_that_begins_where_another_ends_is_not_missed() -> None:
    """One held the place until now: staying would leave it to a retraining that is over."""
    slots = (1.0,) * SLOTS
    both = Problem(
        A100,
        1.0,
        SLOTS,
        Charge.SURVIVORS,
        tuple(tenant(name, list(slots), retraining_slots={3: 8}) for name in "ab"),
    )
    first, second = Task("a", Kind.RETRAINING), Task("b", Kind.RETRAINING)
    serving = (
        Instance(0, 2, Task("a", Kind.INFERENCE)),
        Instance(2, 2, Task("b", Kind.INFERENCE)),
    )
    allocations = tuple(
        Allocation((*serving, Instance(4, 3, first if slot < 8 else second))) for slot in range(16)
    )
    retrainings = (Retraining("a", 0, 8, 3), Retraining("b", 8, 16, 3))
    plan = Plan(0.0, 0.0, "by hand", 0.0, retrainings, allocations)
    ahead = dict.fromkeys("ab", ((1.0,) * 8,))
    found = replan(both, plan, 8, ahead, allocations[7].instances)
    assert all(Instance(4, 3, second) in allocation.instances for allocation in found)
    assert not any(instance.task == first for instance in found[0].instances)


def test_where_the_quick_answer_is_to_stay_the_search_finds_nothing_better(
    planned: tuple[Problem, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, plan = planned
    slot = plan.retrainings[0].end
    held = tuple(instance for instance in plan.slots[slot].instances if instance.task is not None)
    rates = [(1.0, 60.0), (20.0, 30.0), (30.0, 20.0), (60.0, 1.0), (35.0, 35.0)]
    quick = [again(problem, plan, slot, a, b, SLOTS - slot) for a, b in rates]
    monkeypatch.setattr("migrator.planning.survivors.replanning._can_stay", lambda *_: False)
    stayed = 0
    for (a, b), allocations in zip(rates, quick, strict=True):
        if allocations[0].instances == held:
            stayed += 1
            searched = again(problem, plan, slot, a, b, SLOTS - slot)
            best, here = (
                worth(problem, held, allocations, a, b) for allocations in (searched, allocations)
            )
            assert here == pytest.approx(best)
    assert 0 < stayed < len(rates)


def worth(
    window: Problem, held: tuple[Instance, ...], slots: tuple[Allocation, ...], a: float, b: float
) -> float:
    """Goodput of the slots for those who hold `held` before."""
    tenants = tuple(
        replace(tenant, received=((rate,) * len(slots),), configurations=())
        for tenant, rate in zip(window.tenants, (a, b), strict=True)
    )
    rest = replace(window, slots=len(slots), tenants=tenants, initial=Initial(held))
    return goodput_of(rest, Plan(0.0, 0.0, "by hand", 0.0, (), slots))


def test_what_is_not_warm_yet_is_given_up_sooner() -> None:
    """Task b's instance on slice 6 serves in a long while only: for a it would be as cold."""
    rates = dict.fromkeys("ab", [10.0] * SLOTS)
    able = {1: 10.0}
    both = Problem(
        A100,
        1.0,
        SLOTS,
        Charge.SURVIVORS,
        tuple(tenant(name, rates[name], capability=able, overhead_s=4.0) for name in "ab"),
    )
    held = tuple(
        Instance(start, 1, Task("a" if start < 2 else "b", Kind.INFERENCE)) for start in range(7)
    )
    nothing = Plan(0.0, 0.0, "by hand", 0.0, (), (Allocation(held),) * SLOTS)
    ahead = {"a": ((24.0,) * 6,), "b": ((45.0,) * 6,)}
    warm = replan(both, nothing, 0, ahead, held)
    cold = replan(both, nothing, 0, ahead, held, cold_slots={held[6]: 12.0})
    assert warm[0].instances == held, "what serves b stays: a would get too little of it"
    assert capability(both, cold[-1], "a") > capability(both, warm[-1], "a")


def test_weights_and_floors_are_kept(planned: tuple[Problem, Plan]) -> None:
    """Of two tenants with the same requests the one with a floor, or more weight, gets more."""
    problem, plan = planned
    slot = plan.retrainings[0].end
    a, b = problem.tenants
    for with_more in (replace(b, floor=1.0), replace(b, weight=5.0)):
        preferred = replace(problem, tenants=(a, with_more))
        to_b = again(preferred, plan, slot, 40.0, 40.0, SLOTS - slot)[-1]
        assert capability(problem, to_b, "b") >= 40 > capability(problem, to_b, "a")


def test_what_is_held_stays_unless_it_breaks_a_floor(planned: tuple[Problem, Plan]) -> None:
    problem, plan = planned
    slot = plan.retrainings[0].end
    held = {instance for instance in plan.slots[slot].instances if instance.task is not None}
    assert set(again(problem, plan, slot, 31.0, 33.0, 4)[-1].instances) == held
    tenants = (problem.tenants[0], replace(problem.tenants[1], floor=1.0))
    changed = again(replace(problem, tenants=tenants), plan, slot, 31.0, 33.0, 4)[-1]
    assert capability(problem, changed, "b") >= 33
