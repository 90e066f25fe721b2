"""From an observation to a problem, number by number, and what is left out when not all fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.make import instances, lengths
from support.mig_views import TRAINING_S, curve, observation, running, service, view, waiting

from migrator.core.catalogue import board
from migrator.core.errors import InfeasibleError
from migrator.core.problem import (
    Charge,
    Instance,
    Kind,
    RetrainingConfiguration,
    RunningRetraining,
    Task,
    Tenant,
)
from migrator.core.profiles import INTERFERING_PART
from migrator.planning.check import violations
from migrator.planning.solve import make_plan
from migrator.policies.planning import planned, staying_unless_better
from migrator.policies.policy import Decision, RetrainingChoice, RetrainingState
from migrator.policies.window_problem import problem_of

AHEAD = [[5.0] * 10, [7.0] * 10]


def test_the_numbers_of_a_tenant() -> None:
    seen = observation(
        view("a", ahead=AHEAD, retraining=waiting(0.2)), board="A30-24GB", slot_s=2.0, slots=10
    )
    problem = problem_of(seen, Charge.SURVIVORS)
    (tenant,) = problem.tenants
    assert (problem.slots, problem.slot_s, problem.initial) == (10, 2.0, None)
    assert tenant.received == ((5.0,) * 10, (7.0,) * 10)
    assert tenant.capability == pytest.approx({1: 20.0, 2: 36.0, 4: 62.0})
    assert (tenant.accuracy_pre, tenant.configurations[0].accuracy) == (0.5, 0.9)
    # 1 s to start, 14, 8 or 4 s to train, up to 0.1 s for a batch on the instance before
    assert lengths(tenant) == {1: 8, 2: 5, 4: 3}


HEAD = RetrainingChoice("head", 0.8, curve(TRAINING_S).scaled(0.05), memory_gib=10.0)
"""1g of an A30 has 6 GB."""


def test_a_plan_that_may_choose_has_all_configurations_and_the_papers_the_first() -> None:
    state = replace(waiting(0.2), configuration="all", others=(HEAD,))
    seen = observation(
        view("a", ahead=AHEAD, retraining=state), board="A30-24GB", slot_s=2.0, slots=10
    )
    (paper,) = problem_of(seen, Charge.SURVIVORS).tenants
    assert paper.configurations == (RetrainingConfiguration(0.9, {1: 8, 2: 5, 4: 3}, "all"),)
    (choosing,) = problem_of(seen, Charge.SURVIVORS, optional=True).tenants
    assert choosing.configurations == (
        *paper.configurations,
        RetrainingConfiguration(0.8, {2: 2, 4: 2}, "head", 10.0),
    )


def test_the_configuration_of_the_plan_is_that_of_the_decision() -> None:
    state = replace(waiting(8.0), configuration="all", others=(HEAD,))
    seen = observation(view("a", ahead=[[5.0] * 30], retraining=state), board="A30-24GB", slots=30)
    problem, plan = planned(seen, Charge.SURVIVORS, optional=True)
    assert Decision((), problem, plan).configurations == {"a": "head"}


def test_a_running_retraining_is_planned_in_its_configuration() -> None:
    state = replace(running("1g@3:a*", done=0.95), configuration="all")
    seen = observation(view("a", ahead=AHEAD, retraining=state), slots=10, held="1g@0:a 1g@3:a*")
    problem = problem_of(seen, Charge.SURVIVORS, optional=True)
    assert problem.tenants[0].configurations == (RetrainingConfiguration(0.9, {}, "all"),)
    assert problem.initial is not None
    assert [retraining.configuration for retraining in problem.initial.retrainings] == ["all"]


@pytest.mark.parametrize(
    ("load", "busy"),
    # beside busy neighbours a request takes 1.36 times as long
    [(0.0, 0.0), (0.25, 0.25 / (1 - 0.25 * 0.363)), (0.9, 1.0)],
)
def test_shares_are_as_fast_as_the_expected_load_of_the_board_lets_them(
    load: float, busy: float
) -> None:
    some = service("a")
    slow = replace(some, profile=replace(some.profile, interference=0.2))
    alone = slow.capabilities_rps(board("H200-141GB-MPS"))
    ahead = [[load * 8 * max(rps / gpcs for gpcs, rps in alone.items())] * 10]
    seen = observation(view(slow, ahead=ahead), board="H200-141GB-MPS", slots=10)
    (tenant,) = problem_of(seen, Charge.SURVIVORS).tenants
    slowdowns = {gpcs: alone[gpcs] / rate for gpcs, rate in tenant.capability.items()}
    sms = {1: 16, 2: 32, 4: 64, 8: 132}
    beside = {gpcs: (1 - held / 132) / INTERFERING_PART for gpcs, held in sms.items()}
    assert slowdowns == pytest.approx(
        {gpcs: 1 + 0.2 * busy * part for gpcs, part in beside.items()}, rel=1e-3
    )
    # a retraining keeps a share busy as well
    training = view(slow, ahead=ahead, retraining=waiting(0.1))
    (tenant,) = problem_of(replace(seen, tenants=(training,)), Charge.SURVIVORS).tenants
    assert tenant.capability[1] < alone[1] / slowdowns[1] or busy == 1
    # but not one that cannot end in time
    endless = view(slow, ahead=ahead, retraining=waiting(9.0))
    (tenant,) = problem_of(replace(seen, tenants=(endless,)), Charge.SURVIVORS).tenants
    assert tenant.capability[1] == pytest.approx(alone[1] / slowdowns[1])
    # instances of MIG do not slow each other down
    seen = observation(view(slow, ahead=ahead), board="H200-141GB", slots=10)
    (tenant,) = problem_of(seen, Charge.SURVIVORS).tenants
    assert tenant.capability == pytest.approx(slow.capabilities_rps(seen.board))


def test_a_share_that_is_in_time_only_beside_idle_neighbours_is_still_used() -> None:
    some = service("a", slo_s=0.105)  # 100 ms on 16 SMs
    near = replace(some, profile=replace(some.profile, interference=0.2))
    seen = observation(view(near, ahead=[[1000.0] * 10]), board="H200-141GB-MPS", slots=10)
    (tenant,) = problem_of(seen, Charge.SURVIVORS).tenants
    slowdown = 1 + 0.2 * (1 - 16 / 132) / INTERFERING_PART
    assert tenant.capability[1] == pytest.approx(near.capability_rps(16) / slowdown)


def test_a_retraining_is_given_time_for_the_batch_before_it() -> None:
    """15 s are 15 slots, and another one for the tenth of a second that a batch may take."""
    seen = observation(view("a", ahead=[[5.0] * 20], retraining=waiting(0.2)), slots=20)
    slots = lengths(problem_of(seen, Charge.SURVIVORS).tenants[0])
    assert slots[1] == 16


def test_sizes_beyond_the_objective_or_the_window_are_left_out() -> None:
    slow = service("a", slo_s=0.06)
    seen = observation(
        view(slow, ahead=[[5.0] * 6], retraining=waiting(0.2)),
        board="A30-24GB",
        slot_s=2.0,
        slots=10,
        slot=4,
    )
    (tenant,) = problem_of(seen, Charge.SURVIVORS).tenants
    assert list(tenant.capability) == [2, 4]
    assert lengths(tenant) == {2: 5, 4: 3}


@pytest.mark.parametrize("state", [None, waiting(5.0)], ids=["none", "too long"])
def test_nothing_to_retrain_or_no_time_for_it(state: RetrainingState | None) -> None:
    seen = observation(view("a", ahead=AHEAD, retraining=state), slots=10)
    (tenant,) = problem_of(seen, Charge.PAPER).tenants
    assert not lengths(tenant)


def test_a_running_retraining_is_in_the_initial_state() -> None:
    seen = observation(
        view("a", ahead=AHEAD, retraining=running("1g@3:a*", done=0.95)),
        board="A30-24GB",
        slots=10,
        held="1g@0:a 1g@3:a*",
    )
    problem = problem_of(seen, Charge.SURVIVORS)
    assert problem.initial is not None
    assert problem.initial.retrainings == (RunningRetraining("a", 4),)
    assert problem.initial.instances == instances("1g@0:a 1g@3:a*")
    assert not problem.must_retrain(problem.tenants[0])


def test_one_that_outlasts_the_window_holds_on_to_its_end() -> None:
    state = running("1g@3:a*", done=0.1)
    seen = observation(view("a", ahead=AHEAD, retraining=state), slots=10, held="1g@0:a 1g@3:a*")
    initial = problem_of(seen, Charge.SURVIVORS).initial
    assert initial is not None
    assert initial.retrainings == (RunningRetraining("a", 10),)


def test_what_an_ended_retraining_leaves_is_warm_only_for_survivors() -> None:
    seen = observation(view("a", ahead=AHEAD), slots=10, held="1g@0:a 1g@3:a*")
    survivors, paper = (problem_of(seen, charge).initial for charge in reversed(Charge))
    assert survivors is not None
    assert survivors.instances == instances("1g@0:a 1g@3:a")
    assert paper is not None
    assert paper.instances == (*instances("1g@0:a"), Instance(3, 1))


def test_the_retraining_that_promises_least_is_left_out() -> None:
    """Each needs the one GPC that is left for nine of ten slots; b has more requests to gain."""
    names = {"a": 5.0, "b": 6.0, "c": 4.0}
    tenants = [
        view(name, ahead=[[rate] * 10], retraining=waiting(0.11)) for name, rate in names.items()
    ]
    seen = observation(*tenants, board="A30-24GB", slots=10)
    problem, plan = planned(seen, Charge.PAPER)
    assert [retraining.tenant for retraining in plan.retrainings] == ["b"]
    assert [tenant.name for tenant in problem.tenants if problem.must_retrain(tenant)] == ["b"]


def test_what_is_infeasible_without_any_retraining_is_said() -> None:
    large = [view(service(name, min_gpcs=2), ahead=AHEAD) for name in "abc"]
    with pytest.raises(InfeasibleError, match="min_gpcs"):
        planned(observation(*large, board="A30-24GB", slots=10), Charge.PAPER)


def test_what_an_earlier_retraining_held_does_not_bind_the_next() -> None:
    seen = observation(
        view("a", ahead=AHEAD, retraining=waiting(0.1)), slots=10, held="1g@0:a 1g@3:a*"
    )
    problem = problem_of(seen, Charge.SURVIVORS)
    assert problem.must_retrain(problem.tenants[0])
    assert problem.initial is not None
    assert problem.initial.retrainings == ()


def test_one_that_is_still_starting_keeps_its_instance() -> None:
    """1 s to start and 7 s to train are still to come."""
    state = running("1g@3:a*", done=0.0, factor=0.1)
    seen = observation(view("a", ahead=AHEAD, retraining=state), slots=10, held="1g@0:a 1g@3:a*")
    initial = problem_of(seen, Charge.SURVIVORS).initial
    assert initial is not None
    assert initial.retrainings == (RunningRetraining("a", 8),)


def test_a_short_retraining_is_not_given_up_for_one_that_fits_nowhere() -> None:
    # beside two minimum instances an A30 has half the board left: too little for the long one
    seen = observation(
        view("long", ahead=[[9.0] * 20], retraining=waiting(0.9)),
        view("short", ahead=[[1.0] * 20], retraining=waiting(0.2)),
        board="A30-24GB",
        slots=20,
    )
    problem, plan = planned(seen, Charge.SURVIVORS)
    assert [retraining.tenant for retraining in plan.retrainings] == ["short"]
    assert [problem.must_retrain(tenant) for tenant in problem.tenants] == [False, True]


def test_a_gain_after_the_window_counts_only_for_requests_that_can_be_answered() -> None:
    """Four 1g of an A30 answer 40 requests a second; of 80 every other one is dropped."""
    values = {}
    for rate in (40.0, 80.0):
        seen = observation(
            replace(view("a", ahead=[[rate] * 10], retraining=waiting(0.1)), value_after=1.0),
            board="A30-24GB",
            slots=10,
        )
        (tenant,) = problem_of(seen, Charge.SURVIVORS, optional=True).tenants
        values[rate] = tenant.later_goodput(tenant.configurations[0])
    assert values[40.0] == pytest.approx(values[80.0])
    assert values[40.0] == pytest.approx(40 * 10 * 0.4)


@pytest.mark.parametrize(
    ("windows", "later"),
    [
        # one window resembles the next: the load has changed for longer
        ([1, 1, 1, 1, 1, 9, 9, 9, 9, 9], pytest.approx(9.0, abs=2.0)),
        # it says nothing of the next, so its mean is expected
        ([0, 8, 0, 8, 0, 8, 0, 8, 0, 8], pytest.approx(4.0)),
        ([5] * 10, pytest.approx(5.0)),
        # too few windows
        ([0, 8], pytest.approx(12.0)),
        # a second that was not recorded
        ([4, 4, np.nan, 4], pytest.approx(4.0)),
    ],
)
def test_later_windows_get_what_windows_got_unless_one_resembles_the_next(
    windows: list[float], later: object
) -> None:
    ahead = 12.0 if len(windows) < 3 else windows[-1]
    history = np.repeat(np.array(windows, float), 10)
    a = replace(view("a", ahead=[[ahead] * 10], retraining=waiting(0.1)), value_after=1.0)
    seen = observation(replace(a, history=history), board="A30-24GB", slots=10)
    (tenant,) = problem_of(seen, Charge.SURVIVORS, optional=True).tenants
    assert tenant.requests_after / 10 == later


def test_after_a_burst_a_gain_counts_for_the_requests_of_other_windows() -> None:
    """Four 1g of an A30 answer 40 requests a second: half of a burst, and all of other windows."""
    history = np.repeat(np.array([0.0, 40.0] * 5), 10)
    a = replace(view("a", ahead=[[80.0] * 10], retraining=waiting(0.1)), value_after=1.0)
    seen = observation(replace(a, history=history), board="A30-24GB", slots=10)
    (tenant,) = problem_of(seen, Charge.SURVIVORS, optional=True).tenants
    assert tenant.requests_after == pytest.approx(20 * 10)
    # so do the slots of a longer plan that are beyond the window
    (longer,) = problem_of(seen, Charge.SURVIVORS, optional=True, slots=15).tenants
    assert longer.received == ((80.0,) * 10 + (20.0,) * 5,)
    assert longer.requests_after == pytest.approx(0.5 * 20 * 10)


def test_a_tenant_that_is_silent_now_is_retrained_for_the_requests_to_come() -> None:
    """Its windows come and go at random, and slices are free in this one."""
    history = np.repeat(np.array([0.0, 9.0, 9.0, 0.0, 9.0, 0.0, 0.0, 9.0, 9.0, 0.0]), 10)
    a = replace(view("a", ahead=[[0.0] * 10], retraining=waiting(0.1)), value_after=1.0)
    seen = observation(replace(a, history=history), board="A30-24GB", slots=10)
    _, plan = planned(seen, Charge.SURVIVORS, optional=True)
    assert [retraining.tenant for retraining in plan.retrainings] == ["a"]


def test_the_layout_stays_where_a_plan_is_not_better() -> None:
    a, b = view("a", ahead=[[9.0] * 20]), view("b", ahead=[[9.0] * 20])
    held = "2g@0:a 2g@2:b"  # four 1g would do as well, and two
    seen = observation(a, b, board="A30-24GB", slots=20, held=held)
    problem, plan = planned(seen, Charge.SURVIVORS, optional=True)
    assert {slot.instances for slot in plan.slots} == {instances(held)}
    assert not violations(problem, plan)


def test_of_equal_plans_the_one_that_retrains_is_taken() -> None:
    """Nothing is forecast, so no plan is worth anything; a free slice can be used all the same."""
    a = view("a", ahead=[[0.0] * 20], retraining=waiting(0.1))
    seen = observation(a, board="A30-24GB", slots=20, held="2g@0:a")
    problem = problem_of(seen, Charge.SURVIVORS, optional=True)
    plan = make_plan(replace(problem, tenants=tuple(map(required, problem.tenants))), steady=True)
    assert staying_unless_better(problem, plan) is plan


def required(tenant: Tenant) -> Tenant:
    return replace(tenant, retraining_optional=False)


def test_a_small_tenant_beside_a_large_one_is_planned_for() -> None:
    """`b` has a thousandth of the requests of `a`, and slices that nobody uses."""
    large = service("a")
    fast = replace(large.profile, latency_ms={1: curve({14: 0.01, 98: 0.01})})
    a = view(replace(large, profile=fast), ahead=[[9000.0] * 20])
    b = view("b", ahead=[[18.0] * 20])
    seen = observation(a, b, board="A30-24GB", slots=20, held="1g@0:a 1g@1:b")
    _, plan = planned(seen, Charge.SURVIVORS, optional=True)
    task = Task("b", Kind.INFERENCE)
    assert sum(instance.gpcs for instance in plan.slots[-1].instances if instance.task == task) >= 2


def test_a_retraining_longer_than_the_window_runs_on_into_the_next() -> None:
    """It takes 14 s on a 2g in windows of 10 s, and its gain lasts for many of them."""
    a = replace(view("a", ahead=[[30.0] * 10], retraining=waiting(14 / 40)), value_after=8.0)
    seen = observation(a, board="A30-24GB", slots=10, held="1g@0:a 1g@1:a 1g@2:a 1g@3:a")
    problem, plan = planned(seen, Charge.SURVIVORS, optional=True)
    (retraining,) = plan.retrainings
    assert retraining.end == problem.slots == 10
    assert len(plan.slots) == 10
    assert not violations(problem, plan)
    # its value is less by the windows that it is late
    longer = problem_of(seen, Charge.SURVIVORS, optional=True, slots=20)
    length = lengths(longer.tenants[0])
    late = (length[retraining.gpcs] - (10 - retraining.start)) / 10
    assert late > 0
    (window,) = problem_of(seen, Charge.SURVIVORS, optional=True).tenants
    lasting = (1 - late / 8) * window.requests_after
    assert problem.tenants[0].requests_after == pytest.approx(lasting)
    # the paper's rule: a retraining ends inside its window
    assert 1 not in lengths(problem_of(seen, Charge.SURVIVORS).tenants[0])


def test_planning_again_keeps_a_chosen_retraining_that_outlasts_the_window() -> None:
    """One that was not chosen learns the data of the next window instead."""
    a = replace(view("a", ahead=[[30.0] * 10], retraining=waiting(14 / 40)), value_after=8.0)
    seen = observation(a, board="A30-24GB", slots=10, held="1g@0:a 1g@1:a 1g@2:a 1g@3:a")
    problem, plan = planned(seen, Charge.SURVIVORS, optional=True)
    assert plan.retrainings
    later = replace(a, ahead=np.full((1, 8), 30.0))
    again = replace(seen, slot=2, tenants=(later,))
    assert planned(again, Charge.SURVIVORS, optional=True)[1].retrainings == ()
    first = Decision(tuple(slot.instances for slot in plan.slots), problem, plan)
    _, plan = planned(replace(again, decided=first), Charge.SURVIVORS, optional=True)
    assert [retraining.tenant for retraining in plan.retrainings] == ["a"]


def test_the_value_after_a_longer_time_is_less_by_the_windows_that_are_planned() -> None:
    a = replace(view("a", ahead=[[30.0] * 10], retraining=waiting(15 / 70)), value_after=3.0)
    seen = observation(a, board="A30-24GB", slots=10)
    (window,) = problem_of(seen, Charge.SURVIVORS, optional=True).tenants
    (longer,) = problem_of(seen, Charge.SURVIVORS, optional=True, slots=20).tenants
    assert window.requests_after == pytest.approx(3 * 300)
    # of three windows of requests one is in the plan
    assert longer.requests_after == pytest.approx(2 * 300)


def test_a_long_retraining_that_is_left_out_keeps_its_lengths() -> None:
    """Otherwise it would count as one that found no room, and be made smaller."""
    a = view("a", ahead=[[30.0] * 10], retraining=waiting(15 / 70, accuracy_post=0.5))
    a = replace(a, value_after=1.0)
    seen = observation(a, board="A30-24GB", slots=10, held="1g@0:a 1g@1:a 1g@2:a 1g@3:a")
    problem, plan = planned(seen, Charge.SURVIVORS, optional=True)
    assert plan.retrainings == ()
    assert max(lengths(problem.tenants[0]).values()) > problem.slots


def test_nothing_is_planned_beyond_a_window_after_which_a_gain_is_worth_nothing() -> None:
    a = view("a", ahead=[[30.0] * 10], retraining=waiting(14 / 40))
    seen = observation(a, board="A30-24GB", slots=10, held="1g@0:a 1g@1:a 1g@2:a 1g@3:a")
    _, plan = planned(seen, Charge.SURVIVORS, optional=True)
    assert plan.retrainings == ()


@pytest.mark.parametrize("optional", [True, False])
def test_a_requested_retraining_begins_at_once_whether_it_pays_or_not(optional: bool) -> None:
    worthless = replace(waiting(0.2), accuracy_post=0.5)
    seen = observation(
        view("a", ahead=AHEAD, retraining=worthless),
        view("b", ahead=AHEAD),
        board="A30-24GB",
        slot_s=2.0,
        slots=10,
    )
    _, plan = planned(seen, Charge.SURVIVORS, optional=True)
    assert plan.retrainings == ()
    asked = replace(worthless, requested=True)
    tenants = (replace(seen.tenants[0], retraining=asked), seen.tenants[1])
    held = (Instance(0, 2, Task("a", Kind.INFERENCE)), Instance(2, 2, Task("b", Kind.INFERENCE)))
    problem, plan = planned(
        replace(seen, tenants=tenants, held=held), Charge.SURVIVORS, optional=optional
    )
    (begun,) = plan.retrainings
    assert (begun.tenant, begun.start) == ("a", 0)
    assert not list(violations(problem, plan))


def test_a_requested_retraining_without_room_waits() -> None:
    asked = replace(waiting(0.2), requested=True)
    views = [view(name, ahead=AHEAD, retraining=asked) for name in "abcd"]
    seen = observation(*views, board="A30-24GB", slot_s=2.0, slots=10)
    _, plan = planned(seen, Charge.SURVIVORS, optional=True)
    assert plan.retrainings == ()
