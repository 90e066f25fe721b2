"""MIGRator as a policy: a window worked out by hand, pre-initialization, a planner that fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.make import instances, lengths, tenant
from support.mig_views import observation, service, sizes, view, waiting, written

from migrator.core.catalogue import board
from migrator.core.errors import SolverError
from migrator.core.problem import Allocation, Charge, Plan, Problem
from migrator.policies import migrator
from migrator.policies.layouts import usable_sizes
from migrator.policies.policy import Observation, Sight

MIGRATOR, PAPER, REQUIRED, *_ = migrator.POLICIES
ALL_SERVE = "1g@0:a 1g@1:a 1g@2:a 1g@3:a"
HISTORY = [400.0] * 4


def window() -> Observation:
    """Four slots of 10 s on four GPCs, 40 requests a second, and 8 s of training on a 1g."""
    a = view("a", ahead=[[400.0] * 4], retraining=waiting(8 / 70), history=HISTORY)
    return observation(a, board="A30-24GB", slot_s=10.0, slots=4)


def test_retrain_first_then_serve_on_everything() -> None:
    """300 x 0.5 in the first slot, then 3 x 400 x 0.9; the trained instance serves on warm."""
    decision = MIGRATOR.decide(window())
    assert decision.problem is not None
    assert decision.problem.charge is Charge.SURVIVORS
    assert decision.plan is not None
    assert decision.plan.goodput == pytest.approx(1230)
    first, *rest = decision.slots
    assert sizes(first) == ["1g:a", "1g:a", "1g:a", "1g:a*"]
    assert [written(slot) for slot in rest] == [ALL_SERVE] * 3


def test_the_papers_policy_plans_on_the_forecast_once_a_window() -> None:
    assert (PAPER.sight, PAPER.every_s, PAPER.on_completion) == (Sight.FORECAST, None, False)


def retrained(policy: migrator.Migrator, **changes: Any) -> list[str]:
    """Who is retrained in a window in which it takes nearly all of the time on a 1g."""
    a = view("a", ahead=[[400.0] * 4], retraining=waiting(36 / 70), history=HISTORY)
    plan = policy.decide(
        observation(replace(a, **changes), board="A30-24GB", slot_s=10.0, slots=4)
    ).plan
    assert plan is not None
    return [retraining.tenant for retraining in plan.retrainings]


def test_only_the_paper_retrains_where_it_does_not_pay() -> None:
    assert retrained(PAPER) == ["a"]
    assert retrained(REQUIRED) == ["a"]
    assert retrained(MIGRATOR) == []
    assert retrained(MIGRATOR, value_after=1.0) == ["a"]


def test_a_retraining_that_would_probably_not_end_within_two_windows_is_not_begun() -> None:
    late = replace(waiting(36 / 70), longer=12.0)
    assert retrained(MIGRATOR, value_after=1.0, retraining=late) == []


def test_before_any_request_the_board_is_split_evenly_and_the_plan_follows() -> None:
    """A plan on nothing seen would take tenants with ten times the load for equals."""
    a = view("a", ahead=[[40.0] * 100], retraining=waiting(8 / 70))
    seen = observation(a, board="A30-24GB", slots=100)
    first = MIGRATOR.decide(seen)
    assert [written(slot) for slot in first.slots] == [ALL_SERVE]
    assert (first.plan, first.keeps_plan) == (None, False)
    for slot, is_planned in ((4, False), (5, True)):
        short = replace(a, history=np.full(slot, 40.0), ahead=None)
        later = replace(seen, slot=slot, held=first.slots[0], decided=first, tenants=(short,))
        second = MIGRATOR.decide(later)
        assert (second.plan is not None) == is_planned
        if second.plan is not None:
            assert [retraining.tenant for retraining in second.plan.retrainings] == ["a"]


def test_tenants_without_any_request_are_retrained_in_their_parts() -> None:
    a, b = (
        view(name, history=[0.0] * 200, ahead=[[0.0] * 100], retraining=waiting()) for name in "ab"
    )
    decision = MIGRATOR.decide(observation(a, b, board="A30-24GB"))
    assert sizes(decision.slots[0]) == ["1g:a", "1g:a*", "1g:b", "1g:b*"]


def test_a_tenant_that_is_added_gets_an_instance_at_once() -> None:
    old = view("a", history=[9.0] * 100, ahead=[[9.0] * 50])
    seen = observation(old, view("b"), board="A30-24GB", slot=50, held="1g@0:a 1g@1:a")
    assert any(":b" in instance for instance in written(MIGRATOR.decide(seen).slots[0]).split())


def test_a_retraining_runs_only_where_the_model_fits() -> None:
    """A 1g of this board has 5,990 MiB, a 2g twice as much."""
    served = service("a")
    large = replace(served.profile, memory_mib={1: 900.0}, training_memory_mib=6000.0)
    seen = observation(
        view(replace(served, profile=large), ahead=[[400.0] * 4], retraining=waiting(8 / 70)),
        board="A30-24GB",
        slot_s=10.0,
        slots=4,
    )
    problem = PAPER.decide(seen).problem
    assert problem is not None
    assert sorted(lengths(problem.tenants[0])) == [2, 4]
    assert sorted(problem.tenants[0].capability) == [1, 2, 4]
    larger = replace(served, profile=replace(large, memory_mib={1: 6000.0}))
    assert usable_sizes(larger, seen.board) == (2, 4)


def test_the_rest_of_the_plan_stays_where_replanning_does_not_pay() -> None:
    first = MIGRATOR.decide(window())
    assert first.keeps_plan
    later = replace(window(), slot=2, held=first.slots[2], decided=first)
    done = replace(later, tenants=(replace(later.tenants[0], retraining=None, accuracy=0.9),))
    assert MIGRATOR.decide(done).slots == first.slots[2:]


def test_a_retraining_that_ends_early_is_followed_by_a_new_plan() -> None:
    a = view("a", ahead=[[400.0] * 8], retraining=waiting(38 / 70), history=[400.0] * 16)
    seen = observation(replace(a, value_after=2.0), board="A30-24GB", slot_s=10.0, slots=8)
    first = MIGRATOR.decide(seen)
    assert first.plan is not None
    (planned,) = first.plan.retrainings
    now = planned.end - 2
    done = replace(seen.tenants[0], retraining=None, accuracy=0.9)
    later = replace(seen, slot=now, tenants=(done,), held=first.slots[now], decided=first)
    again = MIGRATOR.decide(later)
    assert again.begin == now
    assert written(again.slots[0]) == ALL_SERVE


def test_the_papers_way_hands_instances_over_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 4g that a gets in slot 3 takes 2 s to start and its slices are unused until then."""
    slots = ["2g@4:a 1g@6:b"] * 3 + ["4g@0:a 2g@4:b 1g@6:b"]
    both = tenant("a", [99.0] * 4, overhead_s=2.0), tenant("b", [99.0] * 4)
    problem = Problem(board("A100-40GB"), 1.0, 4, Charge.PAPER, both)
    plan = Plan(0.0, 0.0, "test", 0.0, (), tuple(Allocation(instances(slot)) for slot in slots))
    monkeypatch.setattr(migrator, "planned", lambda *_, **__: (problem, plan))
    early = [written(slot) for slot in PAPER.decide(window()).slots]
    assert early == [slots[0], *["4g@0:a 2g@4:a 1g@6:b"] * 2, slots[3]]
    assert [written(slot) for slot in MIGRATOR.decide(window()).slots] == slots


def fail(*_: object, **__: object) -> tuple[Problem, Plan]:
    raise SolverError("no plan was found in time")


def test_a_planner_that_fails_leaves_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrator, "planned", fail)
    seen = observation(view("a", history=[1.0] * 100), held="2g@2:a", board="A30-24GB")
    assert [written(slot) for slot in MIGRATOR.decide(seen).slots] == ["2g@2:a"]


def test_before_anything_is_held_it_falls_back_on_equal_mig(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(migrator, "planned", fail)
    decision = MIGRATOR.decide(observation(view("a"), board="A30-24GB"))
    assert [written(slot) for slot in decision.slots] == [ALL_SERVE]
    assert decision.plan is None
