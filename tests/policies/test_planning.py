"""From an observation to a problem, number by number, and what is left out when not all fits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.make import instances
from support.mig_views import observation, running, service, view, waiting

from migrator.core.errors import InfeasibleError
from migrator.core.problem import Charge, Instance, RunningRetraining
from migrator.core.profiles import INTERFERING_PART
from migrator.policies.mps_workers import BUSY
from migrator.policies.planning import planned, problem_of
from migrator.policies.policy import RetrainingState

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
    assert (tenant.accuracy_pre, tenant.accuracy_post) == (0.5, 0.9)
    # 1 s to start, 14, 8 or 4 s to train, up to 0.1 s for a batch on the instance before
    assert tenant.retraining_slots == {1: 8, 2: 5, 4: 3}


def test_shares_are_counted_on_beside_busy_neighbours() -> None:
    some = service("a")
    quiet, busy = (replace(some, profile=replace(some.profile, interference=i)) for i in (0.0, 0.2))
    found = {}
    for each in (quiet, busy):
        seen = observation(view(each, ahead=AHEAD), board="H200-141GB-MPS", slots=10)
        (tenant,) = problem_of(seen, Charge.SURVIVORS).tenants
        found[each.profile.interference] = tenant.capability
        seen = observation(view(each, ahead=AHEAD), board="H200-141GB", slots=10)
        (tenant,) = problem_of(seen, Charge.SURVIVORS).tenants
        isolated = each.capabilities_rps(seen.board)
        assert tenant.capability == pytest.approx(isolated)
    slowdowns = {gpcs: found[0.0][gpcs] / rate for gpcs, rate in found[0.2].items()}
    sms = {1: 16, 2: 32, 4: 64, 8: 132}
    beside = {gpcs: (1 - held / 132) / INTERFERING_PART for gpcs, held in sms.items()}
    assert slowdowns == pytest.approx({g: 1 + 0.2 * BUSY * each for g, each in beside.items()})


def test_a_share_that_is_in_time_only_beside_idle_neighbours_is_still_used() -> None:
    some = service("a", slo_s=0.105)  # 100 ms on 16 SMs
    near = replace(some, profile=replace(some.profile, interference=0.2))
    seen = observation(view(near, ahead=AHEAD), board="H200-141GB-MPS", slots=10)
    (tenant,) = problem_of(seen, Charge.SURVIVORS).tenants
    slowdown = 1 + 0.2 * BUSY * (1 - 16 / 132) / INTERFERING_PART
    assert tenant.capability[1] == pytest.approx(near.capability_rps(16) / slowdown)


def test_a_retraining_is_given_time_for_the_batch_before_it() -> None:
    """15 s are 15 slots, and another one for the tenth of a second that a batch may take."""
    seen = observation(view("a", ahead=[[5.0] * 20], retraining=waiting(0.2)), slots=20)
    slots = problem_of(seen, Charge.SURVIVORS).tenants[0].retraining_slots
    assert slots is not None
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
    assert tenant.retraining_slots == {2: 5, 4: 3}


@pytest.mark.parametrize("state", [None, waiting(5.0)], ids=["none", "too long"])
def test_nothing_to_retrain_or_no_time_for_it(state: RetrainingState | None) -> None:
    seen = observation(view("a", ahead=AHEAD, retraining=state), slots=10)
    (tenant,) = problem_of(seen, Charge.PAPER).tenants
    assert tenant.retraining_slots is None


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
    assert [each.tenant for each in plan.retrainings] == ["b"]
    assert [each.name for each in problem.tenants if problem.must_retrain(each)] == ["b"]


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
    assert [each.tenant for each in plan.retrainings] == ["short"]
    assert [problem.must_retrain(each) for each in problem.tenants] == [False, True]
