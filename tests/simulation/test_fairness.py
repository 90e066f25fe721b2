"""MIG policies pay for what they use: planning, estimates, durations as drawn, memory."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from support.mig_views import observation, service, view, waiting
from support.scenarios import Fixed, Flat, drift, scenario, serves, share, tenant, trains

from migrator.core.problem import Instance, Kind
from migrator.core.scenario import Scenario
from migrator.policies.migrator import Migrator
from migrator.policies.policy import Decision, Observation, Policy, Sharing
from migrator.policies.registry import policies, policy
from migrator.simulation.durations import PLAN_S
from migrator.simulation.run import run

MIG_POLICIES = ("migrator", "migrator-paper", "paris", "paris-reconfiguring", "miso", "equal-mig")


def pair(windows: int = 2) -> Scenario:
    drifts = (drift(),) * windows
    both = (tenant(name, [60] * 100 * windows, drifts=drifts) for name in "ab")
    return scenario(*both, window_s=100, windows=windows)


class Unproven:
    """MIGRator, with plans whose distance to the best one is not known to be zero."""

    def __init__(self) -> None:
        self._planner = policy("migrator-paper")
        assert isinstance(self._planner, Migrator)

    def __getattr__(self, name: str) -> object:
        return getattr(self._planner, name)

    def decide(self, observation: Observation) -> Decision:
        decision = self._planner.decide(observation)
        assert decision.plan is not None
        return replace(decision, plan=replace(decision.plan, upper_bound=1e9))


def test_a_plan_that_uses_up_its_limit_arrives_when_the_limit_is_over() -> None:
    # 1% of the window of 100 s, where a plan that is proven arrives after the usual time
    outcomeses = [
        run(pair(), tested, Flat(), spread=0.0).windows[1].tenants
        for tested in (policy("migrator-paper"), cast("Policy", Unproven()))
    ]
    proven, unproven = ([outcome.retrained_s for outcome in tenants] for tenants in outcomeses)
    late = [b - a for a, b in zip(proven, unproven, strict=True) if a is not None and b is not None]
    assert max(late) == pytest.approx(1.0 - PLAN_S, abs=0.05)


def test_a_retraining_takes_as_drawn_whatever_the_policy() -> None:
    def seconds(kind: Policy) -> list[float]:
        this = scenario(tenant("a", [10] * 100, drifts=(drift(),) * 4), window_s=25, windows=4)
        windows = run(this, kind, Flat()).windows
        return [window.tenants[0].retrained_s or 0.0 for window in windows]

    mig = seconds(Fixed((serves("a", 4, 1), trains("a", 0, 4))))
    percent = 100 * 64 / 132
    mps = Fixed((share("a", 12.2), share("a", percent, Kind.RETRAINING)), sharing=Sharing.MPS)
    difference = [a - b for a, b in zip(mig, seconds(mps), strict=True)]
    assert difference == pytest.approx([0.5] * 4, abs=0.1)  # the driver's part
    assert max(mig[1:]) - min(mig[1:]) > 0.2


@pytest.mark.parametrize("name", MIG_POLICIES)
def test_no_instance_is_too_small_for_the_model(name: str) -> None:
    served = service("a")
    large = replace(served.profile, memory_mib={1: 6000.0}, training_memory_mib=12_000.0)
    big = replace(served, profile=large)  # 1g of an A100-40GB has 4.9 GiB, 2g 9.9, 3g and 4g 19.8
    ahead = [[5.0] * 100]
    seen = observation(view(big, history=[5.0] * 100, ahead=ahead, retraining=waiting()))
    for slot in policies()[name].decide(seen).slots:
        for instance in slot:
            assert isinstance(instance, Instance)
            if instance.task is not None:
                assert instance.gpcs >= (2 if instance.task.kind is Kind.INFERENCE else 3)
