"""Pre-initialization on plans made by hand: what it hides, and what that is worth."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from support import make
from support.brute_force import best_plan
from support.make import instances, only
from support.problems import problems

from migrator.core.catalogue import board
from migrator.core.problem import (
    Allocation,
    Charge,
    Initial,
    Plan,
    Problem,
    Retraining,
    RunningRetraining,
    Tenant,
)
from migrator.planning.check import goodput_of
from migrator.planning.preinitialization import Preinitialization, Preparation, preinitialize

PLENTY = 1000.0
"""More than any plan here can serve."""


def plan_of(*slots: str, retrainings: tuple[Retraining, ...] = ()) -> Plan:
    allocations = tuple(Allocation(instances(slot)) for slot in slots)
    return Plan(0.0, 0.0, "test", 0.0, retrainings, allocations)


def tenant(name: str, slots: int, overhead_s: float, received: float = PLENTY) -> Tenant:
    capability = {1: 10.0, 2: 18.0, 3: 25.0, 4: 30.0, 7: 45.0}
    return make.tenant(
        name, [received] * slots, capability=capability, accuracy_post=0.8, overhead_s=overhead_s
    )


def window(*tenants: Tenant, slot_s: float = 1.0, before: str | None = None) -> Problem:
    initial = None if before is None else Initial(instances(before))
    slots = len(tenants[0].received[0])
    return Problem(board("A100-40GB"), slot_s, slots, Charge.PAPER, tenants, initial)


def alone(
    *slots: str, overhead_s: float, slot_s: float = 1.0, before: str | None = None
) -> Preinitialization:
    """What is found in a plan in which a is of interest; it receives more than it can serve."""
    tenants = (tenant("a", len(slots), overhead_s), tenant("b", len(slots), 0.0))
    return preinitialize(window(*tenants, slot_s=slot_s, before=before), plan_of(*slots))


# The paper's example: its first allocation leaves the slices of the coming 4g unused.

A1 = "2g@4:a 1g@6:b"
A2 = "4g@0:a 2g@4:b 1g@6:b"


def paper_example(idle_slots: int, overhead_s: float) -> Preinitialization:
    slots = [A1] * idle_slots + [A2] * 2
    both = (tenant("a", len(slots), overhead_s), tenant("b", len(slots), 1.0))
    return preinitialize(window(*both), plan_of(*slots))


def test_the_papers_example_covered() -> None:
    preinitialization = paper_example(idle_slots=3, overhead_s=2.0)
    assert preinitialization.preparations == (
        Preparation("a", start=0, gpcs=4, from_slot=1, slot=3, overhead_s=2.0, hidden_s=2.0),
        # Where b's 2g will be, a serves until the change.
        Preparation("b", start=4, gpcs=2, from_slot=3, slot=3, overhead_s=1.0, hidden_s=0.0),
    )
    assert (
        preinitialization.overhead_s,
        preinitialization.hidden_s,
        preinitialization.releases,
    ) == (3.0, 2.0, 0)
    assert preinitialization.hidden_share == pytest.approx(2 / 3)
    # a: 30 - 2 x 30 with the whole overhead, 30 without.
    assert preinitialization.goodput_regained == pytest.approx(0.5 * (30 - -30))


def test_the_papers_example_partly_covered() -> None:
    preinitialization = paper_example(idle_slots=1, overhead_s=2.5)
    assert preinitialization.preparations[0] == Preparation(
        "a", 0, 4, 0, 1, overhead_s=2.5, hidden_s=1.0
    )
    # 30 - 2.5 x 30 against 30 - 1.5 x 30.
    assert preinitialization.goodput_regained == pytest.approx(0.5 * (-15 - -45))


def test_an_overhead_that_ends_inside_a_slot_is_hidden_in_full() -> None:
    preinitialization = paper_example(idle_slots=3, overhead_s=1.5)
    assert preinitialization.preparations[0] == Preparation(
        "a", 0, 4, 1, 3, overhead_s=1.5, hidden_s=1.5
    )
    assert preinitialization.goodput_regained == pytest.approx(0.5 * 1.5 * 30)


# What can be prepared, and from when on.


def test_overhead_is_counted_in_seconds_not_in_slots() -> None:
    preinitialization = alone(
        "1g@0:a 1g@6:b", *["1g@0:a 1g@6:b"] * 2, "2g@2:a 1g@6:b", overhead_s=2, slot_s=0.5
    )
    assert preinitialization.preparations == (
        Preparation("a", 2, 2, 0, 3, overhead_s=2.0, hidden_s=1.5),
    )
    # A slot is half a second, so the overhead costs 4 x 18 and the half second left 18.
    assert preinitialization.goodput_regained == pytest.approx(0.5 * (0 - -54))


def test_slices_busy_until_the_change_hide_nothing() -> None:
    preinitialization = alone(*["1g@0:a 2g@2:b"] * 3, "1g@0:a 2g@2:a 1g@6:b", overhead_s=1.0)
    assert preinitialization.preparations[0] == Preparation(
        "a", 2, 2, 3, 3, overhead_s=1.0, hidden_s=0.0
    )
    assert preinitialization.hidden_share == 0
    assert preinitialization.goodput_regained == 0


@pytest.mark.parametrize("other", ["1g@3:b", "3g@0:b", "1g@2:a*", "2g@2:a*"])
def test_one_busy_slice_is_enough(other: str) -> None:
    preinitialization = alone(f"1g@6:a {other}", "1g@6:a 2g@2:a 1g@5:b", overhead_s=1.0)
    assert [
        preparation.hidden_s
        for preparation in preinitialization.preparations
        if preparation.tenant == "a"
    ] == [0.0]


@pytest.mark.parametrize(
    "other", ["1g@4:b", "2g@0:b 1g@2:-", "2g@0:b 2g@2:-", "1g@5:b 1g@2:- 1g@3:-"]
)
def test_idle_slices_may_hold_unused_instances(other: str) -> None:
    preinitialization = alone(f"1g@6:a {other}", "1g@6:a 2g@2:a 1g@5:b", overhead_s=1.0)
    assert [
        preparation.hidden_s
        for preparation in preinitialization.preparations
        if preparation.tenant == "a"
    ] == [1.0]


def test_only_the_idle_slots_right_before_the_change_count() -> None:
    idle, busy = "1g@0:a 1g@6:b", "1g@0:a 1g@3:b"
    preinitialization = alone(idle, idle, busy, idle, "1g@0:a 2g@2:a 1g@6:b", overhead_s=5.0)
    assert preinitialization.preparations == (
        Preparation("a", 2, 2, 3, 4, overhead_s=5.0, hidden_s=1.0),
    )


def test_the_task_may_change_where_it_sat() -> None:
    """Its own old instance occupies the slices until the change: nothing is hidden."""
    preinitialization = alone("1g@0:a", "2g@0:a", overhead_s=1.0)
    assert preinitialization.preparations == (
        Preparation("a", 0, 2, 1, 1, overhead_s=1.0, hidden_s=0.0),
    )


def test_of_several_new_instances_the_mean_is_hidden() -> None:
    # The 2g is hidden in full, the 1g not at all: half of the charge of 46 / 3 is left.
    preinitialization = alone("2g@0:a 1g@4:b", "2g@0:a 2g@2:a 1g@4:a 1g@5:b", overhead_s=1.0)
    assert [
        (preparation.gpcs, preparation.hidden_s) for preparation in preinitialization.preparations
    ] == [(2, 1.0), (1, 0.0)]
    assert preinitialization.hidden_share == 0.5
    assert preinitialization.goodput_regained == pytest.approx(0.5 * 0.5 * 46 / 3)


def test_preparations_are_listed_by_slot_and_start() -> None:
    tenants = tenant("a", 3, 1.0), tenant("b", 3, 1.0)
    plan = plan_of("1g@6:a 1g@5:b", "1g@6:a 2g@2:a 1g@5:b 2g@0:b", "1g@6:a 1g@2:a 1g@5:b 2g@0:b")
    preinitialization = preinitialize(window(*tenants), plan)
    assert [
        (preparation.slot, preparation.start, preparation.tenant)
        for preparation in preinitialization.preparations
    ] == [
        (1, 0, "b"),
        (1, 2, "a"),
        (2, 2, "a"),
    ]


# What the paper does not charge is not counted.


@pytest.mark.parametrize(
    ("before", "after"),
    [("2g@0:a", "2g@4:a"), ("2g@0:a 1g@2:a", "1g@0:a 2g@2:a"), ("1g@0:a 2g@2:a*", "1g@0:a")],
)
def test_moves_and_retrainings_need_no_preparation(before: str, after: str) -> None:
    preinitialization = alone(f"{before} 1g@6:b", f"{after} 1g@6:b", overhead_s=1.0)
    assert preinitialization == Preinitialization((), releases=0, goodput_regained=0.0)
    assert preinitialization.hidden_share == 0


def test_a_move_beside_a_change_is_not_counted() -> None:
    preinitialization = alone("2g@0:a 1g@6:b", "2g@2:a 1g@0:a 1g@6:b", overhead_s=1.0)
    assert [preparation.gpcs for preparation in preinitialization.preparations] == [1]


def test_of_one_size_the_new_one_is_what_was_not_there() -> None:
    preinitialization = alone("1g@2:a 1g@6:b", "1g@2:a 1g@3:a 1g@4:a 1g@6:b", overhead_s=1.0)
    assert [preparation.start for preparation in preinitialization.preparations] == [3, 4]


def test_of_one_size_no_more_are_new_than_were_added() -> None:
    preinitialization = alone("1g@2:a 1g@6:b", "1g@3:a 1g@4:a 1g@6:b", overhead_s=1.0)
    assert len(preinitialization.preparations) == 1


# Releases.


def test_releases_are_counted_and_regain_nothing() -> None:
    both, one = "2g@0:a 1g@2:a 1g@6:b", "2g@0:a 1g@6:b"
    preinitialization = alone(both, one, one, both, one, overhead_s=1.0)
    assert preinitialization.releases == 2
    assert [
        (preparation.slot, preparation.hidden_s) for preparation in preinitialization.preparations
    ] == [(3, 1.0)]
    assert preinitialization.goodput_regained == pytest.approx(0.5 * 1.0 * 28 / 2)


def test_an_exchange_is_no_release() -> None:
    preinitialization = alone("2g@0:a 1g@6:b", "1g@2:a 1g@6:b", overhead_s=1.0)
    assert preinitialization.releases == 0
    assert [preparation.hidden_s for preparation in preinitialization.preparations] == [1.0]


# Before slot 0.


def test_slot_0_costs_nothing_where_nothing_is_known() -> None:
    assert alone("2g@0:a 1g@6:b", overhead_s=1.0).preparations == ()


@pytest.mark.parametrize("before", ["", "1g@0:a 1g@6:b", "2g@0:b 1g@6:b", "1g@0:a* 1g@6:b"])
def test_nothing_can_be_prepared_before_slot_0(before: str) -> None:
    preinitialization = alone("2g@2:a 1g@6:b", overhead_s=1.0, before=before)
    own = [
        preparation for preparation in preinitialization.preparations if preparation.tenant == "a"
    ]
    assert own == [Preparation("a", 2, 2, 0, 0, overhead_s=1.0, hidden_s=0.0)]
    assert preinitialization.goodput_regained == 0


def test_what_initial_holds_is_not_new() -> None:
    preinitialization = alone("2g@0:a 1g@6:b", overhead_s=1.0, before="2g@2:a 1g@6:b")
    assert preinitialization.preparations == ()
    assert preinitialization.releases == 0


def test_what_initial_holds_can_be_released() -> None:
    assert alone("2g@0:a 1g@6:b", overhead_s=1.0, before="2g@0:a 1g@2:a 1g@6:b").releases == 1


def test_what_initial_holds_and_slot_0_does_not_is_idle_from_slot_0_on() -> None:
    preinitialization = alone(
        "1g@0:a 1g@6:b", "2g@2:a 1g@6:b", overhead_s=3.0, before="1g@0:a 2g@2:b 1g@6:b"
    )
    assert preinitialization.preparations == (
        Preparation("a", 2, 2, from_slot=0, slot=1, overhead_s=3.0, hidden_s=1.0),
    )


# What hiding is worth.


@pytest.mark.parametrize(("received", "regained"), [(100.0, 21 - 7), (10.0, 10 - 7), (7.0, 0.0)])
def test_no_more_is_regained_than_received(received: float, regained: float) -> None:
    # 28 - 1.5 x 14 with the whole overhead, 28 - 0.5 x 14 with the idle second: 7 and 21.
    one = tenant("a", 2, 1.5, received)
    preinitialization = preinitialize(window(one), plan_of("1g@0:a", "1g@0:a 2g@2:a"))
    assert preinitialization.hidden_s == 1.0
    assert preinitialization.goodput_regained == pytest.approx(0.5 * regained)


def test_regained_is_the_mean_over_scenarios() -> None:
    # 18 - 1 x 18 without and 18 with the idle second: 4 and 18 of what the scenarios receive.
    split = replace(tenant("a", 2, 1.0), received=((9.0, 4.0), (9.0, 40.0)))
    preinitialization = preinitialize(window(split), plan_of("1g@0:a", "2g@2:a"))
    assert preinitialization.goodput_regained == pytest.approx(0.5 * (4 + 18) / 2)


@pytest.mark.parametrize(("end", "accuracy"), [(2, 0.8), (3, 0.5)])
def test_the_accuracy_of_the_slot_counts(end: int, accuracy: float) -> None:
    training, trained = "1g@0:a 1g@6:a*", "1g@0:a"
    slots = [training] * end + [trained] * (4 - end)
    slots[2:] = [f"{slot} 2g@2:a" for slot in slots[2:]]
    retraining = Retraining("a", 0, end, 1)
    one = replace(tenant("a", 4, 1.0), configurations=only(0.8, {1: end}))
    started = preinitialize(window(one), plan_of(*slots, retrainings=(retraining,)))
    assert started.goodput_regained == pytest.approx(accuracy * 1.0 * 28 / 2)
    initial = Initial(instances(training), (RunningRetraining("a", end),))
    resumed = replace(window(replace(one, configurations=only(0.8, None))), initial=initial)
    assert preinitialize(resumed, plan_of(*slots, retrainings=(retraining,))) == started


@given(problems(max_slots=5, charges=(Charge.PAPER,)))
@settings(deadline=None, max_examples=60)
def test_no_more_is_regained_than_changes_cost(problem: Problem) -> None:
    plan = best_plan(problem)
    if plan is None:
        return
    preinitialization = preinitialize(problem, plan)
    assert 0 <= preinitialization.hidden_s <= preinitialization.overhead_s
    free = tuple(replace(tenant, overhead_s=0.0) for tenant in problem.tenants)
    costs = goodput_of(replace(problem, tenants=free), plan) - plan.goodput
    assert -1e-9 <= preinitialization.goodput_regained <= costs + 1e-9
    if (
        preinitialization.hidden_s == preinitialization.overhead_s
        and preinitialization.releases == 0
    ):
        assert preinitialization.goodput_regained == pytest.approx(costs)
