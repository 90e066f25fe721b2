"""A run: a policy decides window by window, and every request is served as it decided.

First the window's control plane, slot by slot: the policy is asked when it wants to be, worker
processes start and end, retrainings go on. Then its data plane: each tenant's requests, one by
one, against the processes that were there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import perf_counter

from migrator.core.instance import Kind, Task
from migrator.core.outcome import RunOutcome, TenantOutcome, WindowOutcome
from migrator.core.problem import Problem
from migrator.core.scenario import Scenario
from migrator.core.share import Holding
from migrator.forecast.forecaster import Forecaster
from migrator.plan.check import goodput_of
from migrator.policies.forecasts import forecasts_of
from migrator.policies.policy import (
    Decision,
    Observation,
    Policy,
    RetrainingState,
    Routing,
    Sharing,
    Sight,
    TenantView,
)
from migrator.simulate.interference import activity, slowdowns, training_speed
from migrator.simulate.lives import Costs, Life, Lives, MigLives, MpsLives
from migrator.simulate.tenant import RunningTenant

Floats = tuple[float, ...]


def run(
    scenario: Scenario,
    policy: Policy,
    forecaster: Forecaster,
    *,
    drawn: bool = False,
    begin: tuple[Holding, ...] = (),
) -> RunOutcome:
    """The policy's whole run. `drawn`: correctness is drawn per request, else expected.

    `begin`: what serves before the first decision; nothing: what that asks for is there at once.
    """
    windows = tuple(windows_of(scenario, policy, forecaster, drawn=drawn, begin=begin))
    return RunOutcome(scenario.name, policy.name, forecaster.name, scenario.seed, windows)


def windows_of(
    scenario: Scenario,
    policy: Policy,
    forecaster: Forecaster,
    *,
    drawn: bool = False,
    begin: tuple[Holding, ...] = (),
) -> Iterator[WindowOutcome]:
    """The same window by window, for those who want to see it go."""
    simulation = _Simulation(scenario, policy, forecaster, drawn)
    simulation.begin(begin)
    for window in range(scenario.windows):
        yield simulation.window(window)


def overheads_s(scenario: Scenario, policy: Policy) -> dict[str, float]:
    """Tenant -> what passes until something new to it serves, as the policy shares the GPU."""
    mig = policy.sharing is Sharing.MIG
    return {
        each.name: each.service.profile.overhead.total_s(mig=mig, prepared=scenario.prepared)
        for each in scenario.tenants
    }


@dataclass
class _Course:
    """What happened in a window so far."""

    holdings: list[tuple[Holding, ...]]
    alive: list[list[Life]]
    """Per slot, the processes that were warm in it."""
    new: dict[str, int]
    plan_s: float = 0.0
    first: Decision | None = None
    last: Decision | None = None
    expected: dict[str, Floats] | None = None
    forecast_by: dict[str, str] | None = None


class _Simulation:
    def __init__(
        self, scenario: Scenario, policy: Policy, forecaster: Forecaster, drawn: bool
    ) -> None:
        self.scenario, self.policy, self.drawn = scenario, policy, drawn
        self.forecasts = forecasts_of(forecaster)
        self.tenants = [
            RunningTenant(each, scenario.slot_s, scenario.seed, number)
            for number, each in enumerate(scenario.tenants)
        ]
        self.overhead_s = overheads_s(scenario, policy)
        costs = Costs(self.overhead_s, {each.name: each.service for each in self.tenants})
        self.lives: Lives = (
            MigLives(scenario.board, costs)
            if policy.sharing is Sharing.MIG
            else MpsLives(scenario.board, costs)
        )
        self.held: tuple[Holding, ...] = ()

    def begin(self, held: tuple[Holding, ...]) -> None:
        """What is there and warm before the first decision."""
        if held:
            self.lives.retarget(0.0, held)
            self.held = held

    def window(self, window: int) -> WindowOutcome:
        """One window: decide and act slot by slot, then serve its requests."""
        begin_s, end_s = window * self.scenario.window_s, (window + 1) * self.scenario.window_s
        for each in self.tenants:
            each.learner.begin(begin_s, self._trains(each) is not None)
        before = {each.name: each.learner.accuracy for each in self.tenants}
        course = self._control(begin_s)
        received = {each.name: each.received(begin_s, end_s) for each in self.tenants}
        slower = slowdowns(
            self.policy.sharing,
            self.scenario.board.sms,
            [each.service for each in self.tenants],
            course.alive,
            {name: counts / self.scenario.slot_s for name, counts in received.items()},
        )
        outcomes = []
        for each in self.tenants:
            tally = each.serve(
                self.lives.everyone,
                begin_s,
                end_s,
                slower[each.name],
                thrifty=self.policy.routing is Routing.THRIFTY,
                drawn=self.drawn,
            )
            assert abs(tally.balance) < 1e-6 * max(1, tally.received), tally
            switches = each.learner.switches
            outcomes.append(
                TenantOutcome(
                    each.name,
                    tally,
                    course.new[each.name],
                    before[each.name],
                    switches[-1][0] - begin_s if len(switches) > 1 else None,
                    each.learner.accuracy,
                    tuple(int(count) for count in received[each.name]),
                    (course.expected or {}).get(each.name),
                    (course.forecast_by or {}).get(each.name),
                )
            )
        self.lives.forget(end_s)
        return WindowOutcome(
            window,
            tuple(outcomes),
            tuple(course.holdings),
            course.plan_s,
            course.first.plan.goodput if course.first and course.first.plan else None,
            self._fluid(course.first, begin_s),
        )

    def _control(self, begin_s: float) -> _Course:
        course = _Course([], [], {each.name: 0 for each in self.tenants})
        slot_s = self.scenario.slot_s
        decided: tuple[tuple[Holding, ...], ...] = ()
        decided_at, waiting = 0, True
        for slot in range(self.scenario.slots):
            now_s = begin_s + slot * slot_s
            if waiting or self._is_time(slot):
                decided, decided_at = self._decide(course, begin_s, slot).slots, slot
            wanted = decided[min(slot - decided_at, len(decided) - 1)]
            for life in self.lives.retarget(now_s, wanted):
                course.new[life.task.tenant] += 1
            self.held = wanted
            completed = self._train(now_s, now_s + slot_s)
            waiting = completed and self.policy.on_completion
            course.holdings.append(wanted)
            course.alive.append(
                [e for e in self.lives.everyone if e.ready_s <= now_s and e.until_s > now_s]
            )
        return course

    def _is_time(self, slot: int) -> bool:
        if self.policy.every_s is None:
            return False
        return slot % max(1, round(self.policy.every_s / self.scenario.slot_s)) == 0

    def _decide(self, course: _Course, begin_s: float, slot: int) -> Decision:
        observation = self._observe(begin_s, slot, course.last)
        before = perf_counter()
        decision = self.policy.decide(observation)
        course.plan_s += perf_counter() - before
        course.last = decision
        if course.first is None:
            course.first = decision
            course.expected = {
                each.name: tuple(each.ahead.mean(axis=0).tolist())
                for each in observation.tenants
                if each.ahead is not None
            }
            if self.policy.sight in (Sight.FORECAST, Sight.START):
                names = [each.name for each in observation.tenants]
                words = self.forecasts.words(observation)
                course.forecast_by = dict(zip(names, words, strict=True))
        return decision

    def _observe(self, begin_s: float, slot: int, decided: Decision | None) -> Observation:
        now_s = begin_s + slot * self.scenario.slot_s
        end_s = begin_s + self.scenario.window_s
        seen = Observation(
            self.scenario.board,
            self.scenario.slot_s,
            self.scenario.slots,
            slot,
            tuple(self._view(each, now_s) for each in self.tenants),
            self.held,
            decided,
            tuple(self._cold_s(each, now_s) for each in self.held),
        )
        sight = self.policy.sight
        if sight is Sight.NOTHING or (sight is Sight.START and slot > 0):
            return seen
        if sight is Sight.TRUTH:
            ahead = tuple(each.received(now_s, end_s)[None, :] for each in self.tenants)
        else:
            ahead = self.forecasts.ahead(seen)
        views = zip(seen.tenants, ahead, strict=True)
        return replace(seen, tenants=tuple(replace(each, ahead=what) for each, what in views))

    def _cold_s(self, holding: Holding, now_s: float) -> float:
        """How long until a process on it serves."""
        alive = (e for e in self.lives.everyone if e.holding == holding and e.until_s > now_s)
        return max((each.ready_s - now_s for each in alive), default=0.0)

    def _view(self, tenant: RunningTenant, now_s: float) -> TenantView:
        job, training = tenant.learner.job, self._trains(tenant)
        sees_all = self.policy.sight is Sight.TRUTH
        retraining = None
        if job is not None:
            retraining = RetrainingState(
                tenant.learner.accuracy,
                job.accuracy_post if sees_all else job.accuracy_expected,
                job.seconds,
                job.done,
                training.holding if training else None,
            )
        return TenantView(
            tenant.service,
            tenant.history(now_s),
            None,
            retraining,
            self.overhead_s[tenant.name],
            tenant.learner.accuracy,
        )

    def _trains(self, tenant: RunningTenant) -> Life | None:
        """The process its retraining runs on; one that trained for it before does not count."""
        if tenant.learner.job is None or not tenant.learner.job.started:
            return None
        task = Task(tenant.name, Kind.RETRAINING)
        for life in self.lives.everyone:
            if life.task == task and life.until_s == math.inf:
                return life
        return None

    def _train(self, from_s: float, to_s: float) -> bool:
        """Every retraining goes on for a slot; whether one of them ended."""
        alive = [e for e in self.lives.everyone if e.since_s < to_s and e.until_s > from_s]
        active = self._active(alive, from_s)
        before = [len(each.learner.switches) for each in self.tenants]
        for tenant in self.tenants:
            task = Task(tenant.name, Kind.RETRAINING)
            for life in [each for each in alive if each.task == task]:
                if tenant.learner.job is not None:
                    tenant.learner.job.started = True
                begin, end = max(from_s, life.ready_s), min(to_s, life.until_s)
                speed = training_speed(
                    self.policy.sharing, self.scenario.board.sms, life, alive, active
                )
                tenant.learner.train(begin, end, life.sms, speed)
        return before != [len(each.learner.switches) for each in self.tenants]

    def _active(self, alive: list[Life], now_s: float) -> dict[str, float]:
        """How busy every tenant's serving processes are in the slot that begins; none under MIG."""
        if self.policy.sharing is Sharing.MIG:
            return {}
        slot_s = self.scenario.slot_s
        return {
            each.name: activity(
                each.service, alive, float(each.received(now_s, now_s + slot_s)[0]) / slot_s
            )
            for each in self.tenants
        }

    def _fluid(self, decision: Decision | None, begin_s: float) -> float | None:
        """The plan's goodput in the planner's model, had it known what came."""
        if decision is None or decision.plan is None or decision.problem is None:
            return None
        return goodput_of(self._truth(decision.problem, begin_s), decision.plan)

    def _truth(self, problem: Problem, begin_s: float) -> Problem:
        end_s = begin_s + self.scenario.window_s
        came = {each.name: each.received(begin_s, end_s) for each in self.tenants}
        return replace(
            problem,
            tenants=tuple(
                replace(each, received=(tuple(came[each.name].tolist()),))
                for each in problem.tenants
            ),
        )
