"""What a retraining leaves is its own until the policy decides anew: the next one in line gets it.

With the real policy in its process, on a clock that is set by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.live_context import idle_context
from support.live_daemon import scenario_file
from support.waiting import until

from migrator.control.events import RetrainingPlanned, TrainingCompleted
from migrator.control.planning_loop import PlanningLoop
from migrator.control.retraining import TenantRetraining
from migrator.control.tenant_state import TenantState
from migrator.control.units import Site, State, Unit
from migrator.control.window_clock import WindowClock
from migrator.core.problem import Instance, Kind, Task
from migrator.core.profiles import Curve
from migrator.live.context import Context
from migrator.live.daemon import new_controller
from migrator.live.options import DaemonOptions
from migrator.live.recorder import LiveRecorder
from migrator.policies.policy import Decision
from migrator.workload.live import read_live


@dataclass
class Policy:
    """The planning of a daemon that does not run."""

    context: Context
    planning: PlanningLoop

    @property
    def tenants(self) -> dict[str, TenantState]:
        return self.context.tenants

    @property
    def clock(self) -> WindowClock:
        return self.context.clock


@pytest.fixture
def policy(tmp_path: Path) -> Iterator[Policy]:
    """Two tenants with a retraining each; the clock stands."""
    path = scenario_file(tmp_path, "photos", "cameras", window_s=20, policy="static-4-3")
    context = idle_context(DaemonOptions(read_live(path), tmp_path))
    made = Policy(context, new_controller(context, LiveRecorder(context), lambda _: None).planning)
    made.clock.now_s = lambda: 100.0
    made.clock.start()
    for name, seconds in (("photos", 20.0), ("cameras", 30.0)):
        curve = Curve(((14.0, seconds), (98.0, seconds / 5)))
        made.tenants[name].on(RetrainingPlanned(TenantRetraining(1, curve, 1.0, 0.9)))
    yield made
    made.planning.close()


def decided(policy: Policy, units: list[Unit]) -> Decision:
    """What the policy says to what is there now."""
    assert policy.planning.ask(units, {}) is not None
    decision: Decision = until(policy.planning.answer, "the policy answers", look_s=0.02)[0]
    return decision


def retrained(decision: Decision) -> dict[str, Instance]:
    """Tenant to the instance that its retraining has now."""
    return {
        instance.task.tenant: instance
        for instance in decision.slots[0]
        if isinstance(instance, Instance)
        and instance.task
        and instance.task.kind is Kind.RETRAINING
    }


def serving(policy: Policy, decision: Decision) -> list[Unit]:
    """The units that serve as decided."""
    board = policy.planning.board
    return [
        Unit(Site.of(board, holding), State.READY, 100.0, holding.task)
        for holding in decision.slots[0]
        if holding.task and holding.task.kind is Kind.INFERENCE
    ]


def test_the_next_retraining_gets_what_an_ended_one_left(policy: Policy) -> None:
    policy.planning.begin_window()
    first = decided(policy, [])
    assert list(retrained(first)) == ["photos"], "one after the other, the shorter first"
    # it ran and has ended; its instance is free
    photos = policy.tenants["photos"]
    photos.start_retraining(retrained(first)["photos"])
    photos.on(TrainingCompleted())
    policy.clock.now_s = lambda: 108.0
    policy.planning.completed()
    policy.planning.request_plan_now("so that the test need not wait")
    second = decided(policy, serving(policy, first))
    place = retrained(first)["photos"]
    assert retrained(second) == {
        "cameras": Instance(place.start, place.gpcs, Task("cameras", Kind.RETRAINING))
    }


def test_what_others_use_by_now_is_not_its_own_any_more(policy: Policy) -> None:
    policy.planning.begin_window()
    first = decided(policy, [])
    place = retrained(first)["photos"]
    photos = policy.tenants["photos"]
    photos.start_retraining(retrained(first)["photos"])
    photos.on(TrainingCompleted())
    policy.clock.now_s = lambda: 108.0
    policy.planning.request_plan_now("so that the test need not wait")
    site = Site.of(policy.planning.board, place)
    taken = Unit(site, State.READY, 100.0, Task("cameras", Kind.INFERENCE))
    second = decided(policy, [*serving(policy, first), taken])
    assert not retrained(second)
