"""MIGRator as a policy: a window worked out by hand, pre-initialization, a planner that fails."""

from __future__ import annotations

import pytest
from support.make import tenant
from support.mig_views import instances, observation, sizes, view, waiting, written

from migrator.core.catalogue import board
from migrator.core.errors import SolverError
from migrator.core.plan import Allocation, Plan
from migrator.core.problem import Charge, Problem
from migrator.policies import migrator
from migrator.policies.policy import Observation, Sight

MIGRATOR, PAPER, *_ = migrator.POLICIES
ALL_SERVE = "1g@0:a 1g@1:a 1g@2:a 1g@3:a"


def window() -> Observation:
    """Four slots of 10 s on four GPCs, 40 requests a second, and 8 s of training on a 1g."""
    a = view("a", ahead=[[400.0] * 4], retraining=waiting(8 / 70))
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
    assert [written(each) for each in rest] == [ALL_SERVE] * 3


def test_it_plans_on_the_forecast_once_a_window() -> None:
    for each in (MIGRATOR, PAPER):
        assert (each.sight, each.every_s, each.on_completion) == (Sight.FORECAST, None, False)


def test_the_papers_way_hands_instances_over_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 4g that a gets in slot 3 takes 2 s to start and its slices are unused until then."""
    slots = ["2g@4:a 1g@6:b"] * 3 + ["4g@0:a 2g@4:b 1g@6:b"]
    both = tenant("a", [99.0] * 4, overhead_s=2.0), tenant("b", [99.0] * 4)
    problem = Problem(board("A100-40GB"), 1.0, 4, Charge.PAPER, both)
    plan = Plan(0.0, 0.0, "test", 0.0, (), tuple(Allocation(instances(each)) for each in slots))
    monkeypatch.setattr(migrator, "planned", lambda *_: (problem, plan))
    early = [written(each) for each in PAPER.decide(window()).slots]
    assert early == [slots[0], *["4g@0:a 2g@4:a 1g@6:b"] * 2, slots[3]]
    assert [written(each) for each in MIGRATOR.decide(window()).slots] == slots


def fail(*_: object) -> tuple[Problem, Plan]:
    raise SolverError("no plan was found in time")


def test_a_planner_that_fails_leaves_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrator, "planned", fail)
    seen = observation(view("a"), held="2g@2:a", board="A30-24GB")
    assert [written(each) for each in MIGRATOR.decide(seen).slots] == ["2g@2:a"]


def test_before_anything_is_held_it_falls_back_on_equal_mig(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(migrator, "planned", fail)
    decision = MIGRATOR.decide(observation(view("a"), board="A30-24GB"))
    assert [written(each) for each in decision.slots] == [ALL_SERVE]
    assert decision.plan is None
