"""check_plan: each rule broken alone, and both charges on examples computed by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from support import make
from support.brute_force import best_plan
from support.make import instances
from support.problems import problems, random_problem

from migrator.core.catalogue import Placement, board, placement_sets
from migrator.core.errors import PlanError
from migrator.core.problem import (
    Allocation,
    Charge,
    Claims,
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
from migrator.planning.check import check_plan, goodput_of, violations

A30 = board("A30-24GB")
A100 = board("A100-40GB")

PLENTY = 1000.0


def plan_of(*slots: str, retrainings: tuple[Retraining, ...] = (), goodput: float = 0.0) -> Plan:
    allocations = tuple(Allocation(instances(slot)) for slot in slots)
    return Plan(goodput, goodput, "test", 0.0, retrainings, allocations)


def tenant(name: str, *received: float, **changes: Any) -> Tenant:
    plain: dict[str, Any] = {
        "capability": {1: 10.0, 2: 18.0, 3: 25.0},
        "accuracy_post": 1.0,
        "overhead_s": 0.0,
    }
    return make.tenant(name, received, **plain | changes)


def alone(
    charge: Charge, *slots: str, overhead_s: float, before: str | None = None, slot_s: float = 1.0
) -> float:
    """What a serves in these slots while it receives more than it can, at accuracy 1."""
    flooded = replace(tenant("a", *[PLENTY] * len(slots)), overhead_s=overhead_s, accuracy_pre=1.0)
    initial = None if before is None else Initial(instances(before))
    problem = Problem(A100, slot_s, len(slots), charge, (flooded,), initial)
    return goodput_of(problem, plan_of(*slots))


# A window in which a must retrain and b, which needs an instance of 2 GPCs, must not.

WINDOW = Problem(
    A30,
    1.0,
    4,
    Charge.PAPER,
    (
        tenant("a", 4, 4, 4, 4, retraining_slots={1: 2, 2: 1}),
        tenant("b", 9, 9, 9, 9, min_gpcs=2),
    ),
)
SERVING = "1g@0:a 2g@2:b"
TRAINING = "1g@0:a 1g@1:a* 2g@2:b"
TRAINED = Retraining("a", 1, 3, 1)
GOOD = plan_of(SERVING, TRAINING, TRAINING, SERVING, retrainings=(TRAINED,), goodput=28.0)

# The same window when the retraining of a runs already, with two slots left.

RESUMED = replace(WINDOW, initial=Initial(instances(TRAINING), (RunningRetraining("a", 2),)))
RESUMED_GOOD = plan_of(
    TRAINING, TRAINING, SERVING, SERVING, retrainings=(Retraining("a", 0, 2, 1),), goodput=30.0
)


def with_slot(plan: Plan, slot: int, text: str) -> Plan:
    slots = list(plan.slots)
    slots[slot] = Allocation(instances(text))
    return replace(plan, slots=tuple(slots))


def test_a_good_plan_is_worth_what_it_claims() -> None:
    # a: 4 x 0.5 before slot 3 and 4 x 1.0 from then on; b: 9 x 0.5.
    assert violations(WINDOW, GOOD) == []
    assert check_plan(WINDOW, GOOD) == 3 * 2.0 + 4.0 + 4 * 4.5


def test_a_running_retraining_that_goes_on_is_good() -> None:
    # The new accuracy of a counts from slot 2 on.
    assert violations(RESUMED, RESUMED_GOOD) == []
    assert check_plan(RESUMED, RESUMED_GOOD) == 2 * 2.0 + 2 * 4.0 + 4 * 4.5


def test_unused_instances_are_allowed() -> None:
    assert violations(WINDOW, with_slot(GOOD, 0, "1g@0:a 1g@1:- 2g@2:b")) == []


# Every rule, broken alone.


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (replace(GOOD, slots=GOOD.slots[:3]), "the number of slots is 3, but the window has 4"),
        (
            replace(GOOD, slots=(*GOOD.slots, GOOD.slots[0])),
            "the number of slots is 5, but the window has 4",
        ),
        (
            with_slot(GOOD, 3, "1g@3:a 2g@1:b"),
            "slot 3: 2g@1 (b/inference): 2g starts only at 0, 2 on A30-24GB",
        ),
        (
            with_slot(GOOD, 0, "1g@0:a 2g@2:b 0g@1:-"),
            "slot 0: 0g@1 (unused): A30-24GB has only the sizes 1, 2, 4",
        ),
        (
            with_slot(GOOD, 0, "1g@3:a 2g@2:b"),
            "slot 0: 1g@3 (a/inference) and 2g@2 (b/inference) overlap on memory slice 3",
        ),
        (
            with_slot(GOOD, 0, "1g@0:a 2g@2:b 1g@0:-"),
            "slot 0: 1g@0 (a/inference) and 1g@0 (unused) overlap on memory slice 0",
        ),
        (
            with_slot(GOOD, 0, "1g@0:a 2g@2:b 1g@1:c"),
            "slot 0: 1g@1 (c/inference): the problem has no tenant 'c'",
        ),
        (
            with_slot(GOOD, 3, "2g@2:b"),
            "slot 3: a/inference holds no instance of min_gpcs 1 or more",
        ),
        (
            with_slot(GOOD, 3, "1g@0:a 1g@2:b 1g@3:b"),
            "slot 3: b/inference holds no instance of min_gpcs 2 or more",
        ),
    ],
)
def test_a_broken_slot_is_named(plan: Plan, message: str) -> None:
    assert violations(WINDOW, plan) == [message]


def test_a_size_without_capability_is_named() -> None:
    servers = replace(WINDOW.tenants[0], capability={1: 10.0})
    problem = replace(WINDOW, tenants=(servers, WINDOW.tenants[1]))
    assert violations(problem, with_slot(GOOD, 0, "1g@0:a 2g@2:b")) == []
    assert violations(problem, with_slot(GOOD, 0, "2g@0:a 2g@2:b")) == [
        "slot 0: a/inference holds 2g@0, a size its capability does not name"
    ]


def test_more_gpcs_than_the_board_has_are_named() -> None:
    # On every packaged board the memory slices run out first, so this one is made up.
    problem = replace(WINDOW, board=replace(A30, compute_slices=3))
    assert violations(problem, GOOD) == [
        f"slot {slot}: the instances 1g@0, 1g@1, 2g@2 take 4 GPCs, but A30-24GB has 3"
        for slot in (1, 2)
    ]


@pytest.mark.parametrize(
    ("slots", "retrainings", "message"),
    [
        (
            (SERVING, SERVING, SERVING, SERVING),
            (),
            "a/retraining never runs, but a must retrain once in the window",
        ),
        (
            (TRAINING, SERVING, TRAINING, SERVING),
            (Retraining("a", 0, 3, 1),),
            "slot 2: a/retraining runs again after it stopped at slot 1, "
            "but it must run once and uninterrupted",
        ),
        (
            (SERVING, TRAINING, "1g@1:a 1g@0:a* 2g@2:b", SERVING),
            (TRAINED,),
            "slot 2: a/retraining holds 1g@0, but it started on 1g@1 and must stay there",
        ),
        (
            ("2g@0:a* 1g@2:a 1g@3:b", "1g@0:a* 1g@2:a 1g@3:b", SERVING, SERVING),
            (Retraining("a", 0, 2, 2),),
            "slot 1: a/retraining holds 1g@0, but it started on 2g@0 and must stay there",
        ),
        (
            (SERVING, TRAINING, SERVING, SERVING),
            (Retraining("a", 1, 2, 1),),
            "slot 1: a/retraining has length 1 on 1g@1, "
            "but retraining_slots asks for 2 inside the window",
        ),
        (
            (TRAINING, TRAINING, TRAINING, SERVING),
            (Retraining("a", 0, 3, 1),),
            "slot 0: a/retraining has length 3 on 1g@1, "
            "but retraining_slots asks for 2 inside the window",
        ),
        (
            (SERVING, SERVING, SERVING, TRAINING),
            (Retraining("a", 3, 4, 1),),
            "slot 3: a/retraining has length 1 on 1g@1, "
            "but retraining_slots asks for 2 inside the window",
        ),
        (
            (TRAINING, "1g@0:a* 1g@1:a* 1g@2:a 1g@3:b", SERVING, SERVING),
            (Retraining("a", 0, 2, 1),),
            "slot 1: a/retraining holds 1g@0 and 1g@1, but it may hold one instance",
        ),
        (
            (TRAINING, TRAINING, SERVING, "1g@0:a 1g@1:b* 2g@2:b"),
            (Retraining("a", 0, 2, 1), Retraining("b", 3, 4, 1)),
            "slot 3: b/retraining holds 1g@1, but it has nothing to retrain",
        ),
    ],
)
def test_a_broken_retraining_is_named(
    slots: tuple[str, ...], retrainings: tuple[Retraining, ...], message: str
) -> None:
    # Here b is content with 1 GPC: the rules of its inference are not what is looked at.
    problem = replace(WINDOW, tenants=(WINDOW.tenants[0], replace(WINDOW.tenants[1], min_gpcs=1)))
    assert violations(problem, plan_of(*slots, retrainings=retrainings)) == [message]


def test_a_size_without_retraining_slots_is_named() -> None:
    problem = replace(
        WINDOW,
        tenants=(
            replace(WINDOW.tenants[0], configurations=make.only(1.0, {2: 2})),
            WINDOW.tenants[1],
        ),
    )
    assert violations(problem, GOOD) == [
        "slot 1: a/retraining holds 1g, a size its retraining_slots does not name"
    ]


@pytest.mark.parametrize(
    ("slot", "text", "message"),
    [
        (0, SERVING, "slot 0: a/retraining left its running instance 1g@1"),
        (1, "1g@1:a 1g@0:a* 2g@2:b", "slot 1: a/retraining left its running instance 1g@1"),
        (
            2,
            TRAINING,
            "slot 2: a/retraining holds 1g@1, but its running retraining ended at slot 2",
        ),
        (
            3,
            TRAINING,
            "slot 3: a/retraining holds 1g@1, but its running retraining ended at slot 2",
        ),
    ],
)
def test_a_running_retraining_must_go_on_untouched(slot: int, text: str, message: str) -> None:
    assert violations(RESUMED, with_slot(RESUMED_GOOD, slot, text)) == [message]


def test_a_running_retraining_may_outlast_the_window() -> None:
    initial = Initial(instances(TRAINING), (RunningRetraining("a", 6),))
    plan = plan_of(*[TRAINING] * 4, retrainings=(Retraining("a", 0, 6, 1),), goodput=26.0)
    assert check_plan(replace(WINDOW, initial=initial), plan) == 4 * 2.0 + 4 * 4.5


def test_a_running_retraining_needs_its_instance_in_initial() -> None:
    initial = Initial(instances(SERVING), (RunningRetraining("a", 2),))
    plan = replace(RESUMED_GOOD, retrainings=())
    assert violations(replace(WINDOW, initial=initial), plan) == [
        "slot 0: a/retraining runs already, but initial names no instance of it"
    ]


@pytest.mark.parametrize(
    ("problem", "plan", "messages"),
    [
        (
            WINDOW,
            replace(GOOD, retrainings=()),
            [
                "slot 1: the retraining of a on 1g until slot 3 is in the slots "
                "but not in the plan's retrainings"
            ],
        ),
        (
            WINDOW,
            replace(GOOD, retrainings=(TRAINED, Retraining("b", 0, 1, 1))),
            [
                "slot 0: the retraining of b on 1g until slot 1 is in the plan's retrainings "
                "but not in the slots"
            ],
        ),
        (
            WINDOW,
            replace(GOOD, retrainings=(TRAINED, TRAINED)),
            [
                "slot 1: the retraining of a on 1g until slot 3 is in the plan's retrainings "
                "but not in the slots"
            ],
        ),
        (
            RESUMED,
            replace(RESUMED_GOOD, retrainings=()),
            [
                "slot 0: the retraining of a on 1g until slot 2 is in the slots "
                "but not in the plan's retrainings"
            ],
        ),
        (
            WINDOW,
            replace(GOOD, goodput=28.001, upper_bound=29.0),
            ["the plan claims goodput 28.001, but its slots give 28.0"],
        ),
        (
            WINDOW,
            replace(GOOD, goodput=27.999),
            ["the plan claims goodput 27.999, but its slots give 28.0"],
        ),
        (
            WINDOW,
            replace(GOOD, upper_bound=27.999),
            ["the plan's upper_bound 27.999 is below its value 28.0"],
        ),
        (
            WINDOW,
            replace(GOOD, goodput=math.nan),
            ["the plan's goodput is nan, but it must be finite"],
        ),
        (
            WINDOW,
            replace(GOOD, upper_bound=math.inf),
            ["the plan's upper_bound is inf, but it must be finite"],
        ),
        (
            WINDOW,
            replace(GOOD, solve_s=math.nan),
            ["the plan's solve_s is nan, but it must be finite"],
        ),
    ],
)
def test_a_wrong_claim_is_named(problem: Problem, plan: Plan, messages: list[str]) -> None:
    assert violations(problem, plan) == messages


@pytest.mark.parametrize("field", ["start", "end", "gpcs"])
def test_every_number_of_a_listed_retraining_counts(field: str) -> None:
    numbers: dict[str, Any] = {"start": 1, "end": 3, "gpcs": 1} | {field: 2}
    wrong = Retraining("a", **numbers)
    assert len(violations(WINDOW, replace(GOOD, retrainings=(wrong,)))) == 2


@pytest.mark.parametrize(
    ("bound", "claims", "messages"),
    [
        (28.0, Claims(0.0, "proven optimal"), []),
        (29.4, Claims(0.05, "within 5.00%"), []),
        (29.4, Claims(0.05, "within 6%"), []),
        (29.4, Claims(status="time limit"), []),
        (
            29.4,
            Claims(0.0),
            ["the plan claims gap 0.0, but its upper_bound and goodput give 0.0499999"],
        ),
        (
            29.4,
            Claims(status="proven optimal"),
            ["the plan claims status 'proven optimal', but its upper_bound is 5.00% above"],
        ),
        (
            29.4,
            Claims(status="within 4.99%"),
            ["the plan claims status 'within 4.99%', but its upper_bound is 5.00% above"],
        ),
        (28.0, Claims(status="best"), ["the plan's status is 'best', but it must be 'proven"]),
    ],
)
def test_gap_and_status_must_follow_from_the_bound(
    bound: float, claims: Claims, messages: list[str]
) -> None:
    found = violations(WINDOW, replace(GOOD, upper_bound=bound), claims)
    assert len(found) == len(messages)
    assert all(one.startswith(other) for one, other in zip(found, messages, strict=True))


def test_claims_may_be_off_by_rounding() -> None:
    assert violations(WINDOW, replace(GOOD, goodput=28.0 + 2e-5, upper_bound=28.0)) == []


def test_the_error_spells_out_some_violations_and_counts_the_rest() -> None:
    bad = plan_of(*["1g@0:a"] * 4, retrainings=(TRAINED,))
    with pytest.raises(PlanError) as caught:
        check_plan(WINDOW, bad)
    missing = "b/inference holds no instance of min_gpcs 2 or more"
    assert str(caught.value) == (
        f"the plan breaks 6 rules: slot 0: {missing}; slot 1: {missing}; "
        f"slot 2: {missing}; and 3 more"
    )


def test_the_error_of_a_single_violation_is_one_sentence() -> None:
    with pytest.raises(PlanError) as caught:
        check_plan(WINDOW, replace(GOOD, slots=GOOD.slots[:3]))
    assert str(caught.value) == (
        "the plan breaks 1 rule: the number of slots is 3, but the window has 4"
    )


# Goodput, whatever the charge.


@pytest.mark.parametrize("charge", Charge)
def test_no_more_is_served_than_received_nor_than_capability(charge: Charge) -> None:
    problem = Problem(A30, 1.0, 3, charge, (tenant("a", 12, 20, 18),))
    assert goodput_of(problem, plan_of(*["2g@0:a"] * 3)) == 0.5 * (12 + 18 + 18)


@pytest.mark.parametrize("charge", Charge)
def test_scenarios_count_by_their_mean_throughput(charge: Charge) -> None:
    # Capability 10: scenarios of 4 and 16 serve 4 and 10, not min(10, 10).
    split = replace(tenant("a"), received=((4.0,), (16.0,)))
    problem = Problem(A30, 1.0, 1, charge, (split,))
    assert goodput_of(problem, plan_of("1g@0:a")) == 0.5 * (4 + 10) / 2


@pytest.mark.parametrize("charge", Charge)
def test_the_new_accuracy_counts_from_the_end_on(charge: Charge) -> None:
    trained = tenant("a", 1, 10, 100, 1000, retraining_slots={1: 2})
    problem = Problem(A30, 1.0, 4, charge, (replace(trained, capability={1: PLENTY}),))
    plan = plan_of("1g@0:a 1g@1:a*", "1g@0:a 1g@1:a*", "1g@0:a", "1g@0:a")
    assert goodput_of(problem, plan) == 0.5 * 11 + 1.0 * 1100


# Charge `paper`.


def paper(*slots: str, overhead_s: float = 0.5, before: str | None = None) -> float:
    return alone(Charge.PAPER, *slots, overhead_s=overhead_s, before=before)


@pytest.mark.parametrize(
    ("slots", "worth"),
    [
        # two instances of 10: half a second of their mean is lost, once
        (("1g@0:a", "1g@0:a 1g@1:a", "1g@0:a 1g@1:a"), 10 + (20 - 0.5 * 10) + 20),
        # the capability after the change counts
        (("1g@0:a 2g@2:a", "2g@2:a"), 28 + (18 - 0.5 * 18)),
        # as many instances and as many GPCs, yet another multiset
        (("3g@0:a 1g@4:a", "2g@0:a 2g@2:a"), 35 + (36 - 0.5 * 18)),
        # a move is free
        (("2g@0:a 1g@2:a", "2g@4:a 1g@0:a"), 28 + 28),
    ],
)
def test_paper_charges_another_multiset_by_its_mean_instance(
    slots: tuple[str, ...], worth: float
) -> None:
    assert paper(*slots) == worth


@pytest.mark.parametrize("charge", Charge)
def test_overhead_is_counted_in_slots(charge: Charge) -> None:
    assert alone(charge, "1g@0:a", "2g@0:a", overhead_s=0.5, slot_s=2.0) == 10 + 0.75 * 18


def test_paper_charges_an_overhead_longer_than_a_slot_in_full() -> None:
    assert paper("1g@0:a", "2g@0:a", "2g@0:a", overhead_s=2.5) == 10 + (18 - 2.5 * 18) + 18


def test_paper_does_not_charge_other_tenants() -> None:
    tenants = (tenant("a", 50, 50, overhead_s=0.5), tenant("b", 50, 50, overhead_s=0.5))
    problem = Problem(A30, 1.0, 2, Charge.PAPER, tenants)
    changed = plan_of("1g@0:a 1g@1:b", "1g@0:a 2g@2:b")
    assert goodput_of(problem, changed) == 0.5 * (10 + 10) + 0.5 * (10 + 9)


@pytest.mark.parametrize(
    ("before", "worth"),
    [
        (None, 20.0),
        ("1g@5:a 1g@6:a", 20.0),
        ("2g@0:a", 15.0),
        ("", 15.0),
        ("1g@0:a 1g@1:a*", 15.0),
        ("1g@0:a 1g@1:-", 15.0),
        ("1g@0:a 1g@1:b", 15.0),
    ],
)
def test_paper_compares_slot_0_with_initial(before: str | None, worth: float) -> None:
    assert paper("1g@0:a 1g@1:a", before=before) == worth


# Charge `survivors`.


def survivors(*slots: str, overhead_s: float = 0.25, before: str | None = None) -> float:
    return alone(Charge.SURVIVORS, *slots, overhead_s=overhead_s, before=before)


@pytest.mark.parametrize(
    ("slots", "worth"),
    [
        # only the new instance is charged, not what goes
        (("1g@0:a", "1g@0:a 2g@2:a", "1g@0:a 2g@2:a"), 10 + (10 + 0.75 * 18) + 28),
        (("1g@0:a 2g@2:a", "1g@0:a"), 28 + 10),
        # new is what moves, or has another size at the same start
        (("1g@0:a", "1g@1:a"), 10 + 0.75 * 10),
        (("1g@0:a", "2g@0:a"), 10 + 0.75 * 18),
        # its age starts again after a gap or unused time
        (("1g@0:a 2g@2:a", "1g@0:a", "1g@0:a 2g@2:a"), 28 + 10 + (10 + 0.75 * 18)),
        (("1g@0:a 2g@2:a", "1g@0:a 2g@2:-", "1g@0:a 2g@2:a"), 28 + 10 + (10 + 0.75 * 18)),
        # a retraining instance lives on as an inference instance, and the other way round
        (("1g@0:a 2g@2:a*", "1g@0:a 2g@2:a"), 10 + 28),
        (("1g@0:a 2g@2:a*", "1g@0:a 2g@4:a"), 10 + (10 + 0.75 * 18)),
        (("1g@0:a 2g@2:a", "1g@0:a 2g@2:a*", "1g@0:a 2g@2:a"), 28 + 10 + 28),
    ],
)
def test_survivors_charges_new_instances(slots: tuple[str, ...], worth: float) -> None:
    assert survivors(*slots) == worth


def test_survivors_overhead_longer_than_a_slot_reaches_into_the_next() -> None:
    slots = ("1g@0:a", *["1g@0:a 2g@2:a"] * 4)
    assert survivors(*slots, overhead_s=2.25) == 5 * 10 + (0 + 0 + 0.75 + 1) * 18


def test_survivors_age_goes_on_through_retraining() -> None:
    slots = ("1g@0:a", "1g@0:a 2g@2:a*", "1g@0:a 2g@2:a", "1g@0:a 2g@2:a")
    assert survivors(*slots, overhead_s=1.5) == 10 + 10 + (10 + 0.5 * 18) + 28


def test_survivors_another_tenants_instance_is_new() -> None:
    tenants = (tenant("a", 50, 50, overhead_s=0.25), tenant("b", 50, 50, overhead_s=0.25))
    problem = Problem(A30, 1.0, 2, Charge.SURVIVORS, tenants)
    passed_on = plan_of("1g@0:a 1g@1:a 1g@2:b", "1g@0:a 1g@1:b 1g@2:b")
    assert goodput_of(problem, passed_on) == 0.5 * (20 + 10) + 0.5 * (10 + 17.5)


@pytest.mark.parametrize(
    ("before", "worth"),
    [
        (None, 20.0),
        ("1g@0:a 1g@1:a", 20.0),
        ("1g@0:a 1g@1:a*", 20.0),
        ("1g@0:a 1g@5:a", 17.5),
        ("1g@0:a 1g@1:-", 17.5),
        ("1g@0:a 1g@1:b", 17.5),
        ("2g@0:a", 15.0),
        ("", 15.0),
    ],
)
def test_survivors_warm_in_slot_0_is_what_initial_holds(before: str | None, worth: float) -> None:
    assert survivors("1g@0:a 1g@1:a", before=before) == worth


def test_survivors_born_in_slot_0_ages_from_there() -> None:
    slots = ["1g@0:a"] * 3
    assert survivors(*slots, overhead_s=1.5, before="") == (0 + 0.5 + 1) * 10


# The judge and the brute force, which evaluates on its own.


@given(problems())
@settings(deadline=None, max_examples=60)
def test_best_plans_pass(problem: Problem) -> None:
    plan = best_plan(problem)
    if plan is not None:
        assert check_plan(problem, plan) == plan.goodput


def test_there_is_no_best_plan_where_no_retraining_fits() -> None:
    endless = replace(WINDOW.tenants[0], configurations=make.only(1.0, {1: 5, 2: 5}))
    assert best_plan(replace(WINDOW, tenants=(endless, WINDOW.tenants[1]))) is None


@pytest.mark.parametrize("charge", Charge)
@pytest.mark.parametrize(("seed", "initial"), [(1, False), (0, True)])
def test_best_plan_is_the_best_of_all(seed: int, initial: bool, charge: Charge) -> None:
    problem = random_problem(seed, tenants=1, slots=2, charge=charge, initial=initial)
    best = best_plan(problem)
    assert best is not None
    assert best.goodput == pytest.approx(max(every_goodput(problem)))


def every_goodput(problem: Problem) -> Iterator[float]:
    """The goodput of every plan without unused instances, for a problem with one tenant."""
    tasks = [Task(problem.tenants[0].name, kind) for kind in Kind]
    allocations = [
        Allocation(tuple(map(holding, places, chosen)))
        for places in placement_sets(problem.board)
        for chosen in itertools.product(tasks, repeat=len(places))
    ]
    for slots in itertools.product(allocations, repeat=problem.slots):
        plan = Plan(0.0, 0.0, "test", 0.0, retrainings_in(problem, slots), slots)
        if all(
            violation.startswith("the plan claims goodput")
            for violation in violations(problem, plan)
        ):
            yield goodput_of(problem, plan)


def holding(place: Placement, task: Task) -> Instance:
    return Instance(place.start, place.gpcs, task)


def retrainings_in(problem: Problem, slots: tuple[Allocation, ...]) -> tuple[Retraining, ...]:
    task = Task(problem.tenants[0].name, Kind.RETRAINING)
    held = [
        (slot, instance.gpcs)
        for slot, allocation in enumerate(slots)
        for instance in allocation.instances
        if instance.task == task
    ]
    if not held:
        return ()
    end = problem.slots_left(problem.tenants[0]) or held[-1][0] + 1
    return (Retraining(task.tenant, held[0][0], end, held[0][1]),)
