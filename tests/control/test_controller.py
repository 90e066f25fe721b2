"""The controller over random worlds, with a virtual clock and with the real one."""

# ruff: noqa: ARG002

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.amount import amount
from support.scenarios import H200, Fixed, Flat, profile, serves, trains

from migrator.control.controller import Controller, new_executor
from migrator.control.events import (
    Create,
    Created,
    CreateFailed,
    Destroy,
    Destroyed,
    DestroyFailed,
    Drain,
    Drained,
    Event,
    Instruction,
    Ready,
    Stopped,
    StopWorker,
    Train,
    TrainingEnded,
    Warm,
    WorkerLost,
)
from migrator.control.forecasting_policy import ForecastingPolicy
from migrator.control.tenant_state import TenantState
from migrator.control.units import State, fits
from migrator.control.window_clock import WindowClock
from migrator.core.problem import Holding
from migrator.core.profiles import Service
from migrator.core.scenario import DEFAULT_LIMITS
from migrator.policies.policy import Decision, Observation


class _AtOnce:
    """A policy that answers at the next look."""

    busy = is_warming_up = False
    unused: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, policy: ForecastingPolicy) -> None:
        self._policy = policy
        self._said: Decision | None = None

    def ask(self, window: int, observation: Observation) -> bool:
        self._said = self._policy.decide(observation)
        return True

    def answer(self, window: int, slot: int) -> Decision | None:
        said, self._said = self._said, None
        return said

    def close(self) -> None:
        pass


class _World:
    """Does what the controller says, sometimes late, sometimes not at all."""

    def __init__(
        self, slots: list[tuple[Holding, ...]], faults: list[int], now_s: Callable[[], float]
    ) -> None:
        clock = WindowClock(0.2, 0.02, now_s=now_s)
        clock.start()
        policy = ForecastingPolicy(
            Fixed(*slots), Flat(), lambda now: (np.zeros((1, now.slots_left)),) * 2
        )
        tenants = {name: _tenant(name) for name in "ab"}
        overheads_s = dict.fromkeys("ab", 0.02)
        self.controller = Controller(
            policy,
            H200,
            clock,
            tenants,
            overheads_s,
            lambda _failed: _AtOnce(policy),
            self,
            lambda _tenant: None,
            new_executor(H200, tenants, overheads_s, DEFAULT_LIMITS),
        )
        self.clock, self._faults, self._events = clock, faults, list[Event]()

    def plan_requested(self, reason: str) -> None: ...
    def plan_followed(self, decision: Decision, seconds: float) -> None: ...
    def plan_failed(self, why: str) -> None: ...
    def plan_refused(self, error: Exception) -> None:
        raise error

    def do(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            faulty = bool(self._faults) and self._faults.pop() == 0
            match instruction:
                case Create(place):
                    self._events.append(CreateFailed(place, "x") if faulty else Created(place))
                case Destroy(place):
                    self._events.append(DestroyFailed(place, "x") if faulty else Destroyed(place))
                case Warm(place, _):
                    self._events.append(WorkerLost(place, "x") if faulty else Ready(place, 0.0))
                case Drain(place, _):
                    self._events.append(Drained(place))
                case StopWorker(place):
                    self._events.append(Stopped(place))
                case Train(place, tenant):
                    self._events.append(TrainingEnded(place, tenant, not faulty, "x"))
        self._check()

    def step(self) -> None:
        events, self._events = self._events, []
        for event in events:
            self.do(self.controller.on(event))
        self.do(self.controller.plan())
        self.do(self.controller.tick())

    def _check(self) -> None:
        """Nothing overlaps, and nothing exists twice."""
        sites = [unit.site for unit in self.controller.executor.units]
        assert len(set(sites)) == len(sites)
        assert all(fits(H200, site, sites) for site in sites)

    def ready(self) -> set[str]:
        units = self.controller.executor.units
        return {unit.task.tenant for unit in units if unit.task and unit.state is State.READY}


def _tenant(name: str) -> TenantState:
    service = Service(name, profile(), 0.1, 1)
    return TenantState(service, history=np.zeros(4), overhead_s=0.02)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Holding, ...]:
    owners = draw(st.permutations(["a", "b", draw(st.sampled_from("ab")), None]))
    held = [serves(owner, start, 1) for start, owner in enumerate(owners) if owner]
    if draw(st.booleans()):
        held.append(trains(draw(st.sampled_from("ab")), 4, 3))
    return tuple(held)


WORLDS = {
    "slots": st.lists(layouts(), min_size=1, max_size=10),
    "faults": st.lists(st.integers(0, 9), max_size=60),
}


def _drive(world: _World, pass_time: Callable[[], None], steps: int) -> None:
    for _ in range(steps):
        world.step()
        pass_time()
    assert world.ready() == {"a", "b"}, "every tenant is served in the end"


@settings(max_examples=amount(20, 60), deadline=None)
@given(**WORLDS)
def test_in_virtual_time_every_tenant_is_served_and_nothing_overlaps(
    slots: list[tuple[Holding, ...]], faults: list[int]
) -> None:
    now = [100.0]
    world = _World(slots, faults, lambda: now[0])
    world.do(world.controller.begin_window())

    def pass_time() -> None:
        now[0] += 0.01

    _drive(world, pass_time, 400)


@settings(max_examples=3, deadline=None)
@given(**WORLDS)
def test_in_real_time_every_tenant_is_served_and_nothing_overlaps(
    slots: list[tuple[Holding, ...]], faults: list[int]
) -> None:
    world = _World(slots, faults, time.monotonic)
    world.do(world.controller.begin_window())
    _drive(world, lambda: time.sleep(0.002), 600)
