"""Runs a scenario in virtual time.

For every window, first the control plane runs event by event: the controller of the daemon
(`control/`) with a simulated GPU, workers and trainers. Then the data plane serves each tenant's
requests one by one on the workers that existed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from migrator.control.controller import Controller
from migrator.control.events import Event, Instruction, Ready, Train, TrainingEnded, Warm
from migrator.control.forecasting_policy import ForecastingPolicy, tenants_without_instance
from migrator.control.observation import (
    Decision,
    Observation,
    Policy,
    Routing,
    Sharing,
    Sight,
)
from migrator.control.planning_loop import rest_of
from migrator.control.retraining_plans import RetrainingPlans
from migrator.control.tenant_state import Retraining, TenantState
from migrator.control.units import State
from migrator.control.window_clock import WindowClock
from migrator.core.errors import PolicyWarning
from migrator.core.instance import Task
from migrator.core.outcome import PlanGap, RunOutcome, TenantOutcome, WindowOutcome
from migrator.core.peer_limits import Overlap, ResizedTraining
from migrator.core.plan import Plan
from migrator.core.problem import Problem
from migrator.core.scenario import Scenario
from migrator.core.share import Holding
from migrator.forecast.forecaster import Forecaster
from migrator.plan.check import goodput_of
from migrator.plan.solve import default_time_limit_s
from migrator.simulate.durations import (
    DECISION_S,
    PLAN_S,
    RETRAINING_SPREAD,
    Durations,
    ProfileDurations,
)
from migrator.simulate.gpu import SimulatedGpu, Worker
from migrator.simulate.interference import (
    activities,
    slowdown_by_estimate,
    slowdowns,
    training_speed,
)
from migrator.simulate.learning import Model
from migrator.simulate.tenant import RunningTenant
from migrator.workload.live import LiveTenant

Floats = tuple[float, ...]
_HELD = (State.WARMING, State.READY, State.TRAINING)


@dataclass(frozen=True)
class MeasuredRun:
    """Measurements of a live run that replace the assumptions of a scenario."""

    durations: Durations
    models: Mapping[str, Model]
    tenants: Mapping[str, LiveTenant]
    """How each tenant is retrained."""
    overheads_s: Mapping[str, float]
    """Overheads known when the first window began."""
    seen: Mapping[str, NDArray[np.float64]]
    """Requests per slot of each tenant, as counted by the controller."""
    on_instances: bool = True
    """Whether retrainings were estimated on the instances; else on the host."""
    sharing: Sharing | None = None
    """How the processes actually shared the GPU; None: as the policy says."""


def run(
    scenario: Scenario,
    policy: Policy,
    forecaster: Forecaster,
    *,
    drawn: bool = False,
    even_start: bool = False,
    measured: MeasuredRun | None = None,
    spread: float = RETRAINING_SPREAD,
) -> RunOutcome:
    """Run the policy over all windows.

    `drawn`: draw the correctness of each request instead of using its expected value. `even_start`:
    split the board evenly before the first decision; otherwise the first decision's layout exists
    at once. `spread`: relative standard deviation of the durations of retrainings.
    """
    windows = tuple(
        windows_of(
            scenario,
            policy,
            forecaster,
            drawn=drawn,
            even_start=even_start,
            measured=measured,
            spread=spread,
        )
    )
    return RunOutcome(
        scenario.name, policy.name, forecaster.name, scenario.seed, windows, scenario.labels
    )


def windows_of(
    scenario: Scenario,
    policy: Policy,
    forecaster: Forecaster,
    *,
    drawn: bool = False,
    even_start: bool = False,
    measured: MeasuredRun | None = None,
    spread: float = RETRAINING_SPREAD,
) -> Iterator[WindowOutcome]:
    """Run the policy and yield the outcome of each window."""
    simulation = _Simulation(scenario, policy, forecaster, drawn, measured, spread)
    for window in range(scenario.windows):
        yield simulation.window(window, even_start=even_start)


def overheads_s(scenario: Scenario, policy: Policy) -> dict[str, float]:
    """Per tenant, seconds until a new instance serves under the policy's way of sharing the GPU."""
    mig, prepared = policy.sharing is Sharing.MIG, has_prepared_workers(scenario, policy)
    return {
        each.name: each.service.profile.overhead.total_s(mig=mig, prepared=prepared)
        for each in scenario.tenants
    }


def has_prepared_workers(scenario: Scenario, policy: Policy) -> bool:
    """Whether worker processes are started in advance for the policy.

    Starting them for instances to come is part of policies that look ahead.
    """
    return scenario.prepared and (scenario.peers.prepared or policy.sight is not Sight.NOTHING)


@dataclass
class _Course:
    """The events of a window so far."""

    new: dict[str, int]
    planned: list[tuple[Holding, ...]]
    """By slot: the decisions that were followed."""
    plan_s: float = 0.0
    first: Decision | None = None
    last: Plan | None = None
    plans: list[PlanGap] = field(default_factory=list)
    expected: dict[str, Floats] | None = None
    forecast_by: dict[str, str] | None = None


class _SimulatedTenantState(TenantState):
    """A tenant whose request history is its trace."""

    trace: Callable[[], NDArray[np.float64]]

    def seen(self) -> NDArray[np.float64]:
        """Requests per slot so far, including the trace before the run."""
        return self.trace()


class _SimulatedDecider:
    """A policy that answers after its planning time."""

    rehearsing = False
    unused: Mapping[str, int] = {}

    def __init__(
        self,
        decide: Callable[[Observation], Decision],
        now_s: Callable[[], float],
        plan_s: Callable[[int], float],
        wake: Callable[[float], None],
    ) -> None:
        self._decide, self._now_s, self._plan_s, self._wake = decide, now_s, plan_s, wake
        self._asked: tuple[int, int, float, Decision] | None = None

    @property
    def busy(self) -> bool:
        """Whether the planning time has not passed yet."""
        return self._asked is not None and self._now_s() + 1e-9 < self._asked[2]

    def ask(self, window: int, observation: Observation) -> bool:
        """Decide at once, and hold the decision until the planning time has passed."""
        if self.busy:
            return False
        decision = self._decide(observation)
        ready_s = self._now_s() + self._plan_s(window)
        self._asked = (window, observation.slot, ready_s, decision)
        self._wake(ready_s)
        return True

    def answer(self, window: int, slot: int) -> Decision | None:
        """The remaining slots of the decision; None if its window is over."""
        if self._asked is None or self.busy:
            return None
        (asked_in, asked_at, _, decision), self._asked = self._asked, None
        return rest_of(decision, slot - asked_at) if asked_in == window else None

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


class _Simulation:
    """One run: the controller, the simulated GPU, and the tenants with their requests."""

    def __init__(
        self,
        scenario: Scenario,
        policy: Policy,
        forecaster: Forecaster,
        drawn: bool,
        measured: MeasuredRun | None,
        spread: float,
    ) -> None:
        self.scenario, self.policy, self.drawn = scenario, policy, drawn
        self.measured, self.search_s = measured is not None, 0.0
        models: Mapping[str, Model] = measured.models if measured else {}
        self.tenants = [
            RunningTenant(each, scenario.slot_s, scenario.seed, number, models.get(each.name))
            for number, each in enumerate(scenario.tenants)
        ]
        self.by_name = {each.name: each for each in self.tenants}
        self.forecasting = ForecastingPolicy(policy, forecaster, self._truth_ahead)
        self.overheads_s = overheads_s(scenario, policy) | dict(
            measured.overheads_s if measured else {}
        )
        self.states = {each.name: self._state(each, measured) for each in self.tenants}
        self.gpu = SimulatedGpu(
            scenario.board,
            {each.name: each.service for each in self.tenants},
            measured.durations if measured else self._profile_durations(spread),
            (measured.sharing if measured else None) or policy.sharing,
            self._start_retraining,
            self._training_speed,
            free_resizing=scenario.peers.resized_training is ResizedTraining.FREE,
        )
        self.clock = WindowClock(scenario.window_s, scenario.slot_s, now_s=lambda: self.gpu.now_s)
        self.course = _Course({}, [])
        self._unserved: set[str] = set()
        self.controller = Controller(
            self.forecasting,
            scenario.board,
            self.clock,
            self.states,
            self.overheads_s,
            lambda _failed: _SimulatedDecider(
                self._decide, self.clock.now_s, self._plan_s, self.gpu.wake
            ),
            self,
            self._plan,
            limits=scenario.peers,
        )
        self.retrainings = RetrainingPlans(
            self.states,
            self.clock,
            self,
            self.controller,
            on_instances=measured is None or measured.on_instances,
        )

    # The labels of all tenants.

    def kept(self, tenant: str, first: int, before: int) -> int:
        """Number of labels that a retraining in the window `before` can learn."""
        return self.by_name[tenant].model.labelled(first, before)

    def accuracy(self, tenant: str, window: int, fewest: int) -> float | None:  # noqa: ARG002
        """None: models set the accuracy themselves."""
        return None

    # The controller's observer.

    def plan_requested(self, reason: str) -> None:
        """Ignored."""

    def plan_followed(self, decision: Decision, _seconds: float) -> None:
        """Note what the decision holds in the rest of the window."""
        planned, slot = self.course.planned, self.clock.slot
        left = self.scenario.slots - slot
        planned[slot:] = [decision.slots[min(k, len(decision.slots) - 1)] for k in range(left)]

    def plan_refused(self, error: Exception) -> None:
        """Raise the error: a policy whose decision no GPU can follow has a bug."""
        raise error

    def plan_failed(self, why: str) -> None:
        """Ignored."""

    # The run.

    def window(self, window: int, *, even_start: bool) -> WindowOutcome:
        """Run one window: its control plane event by event, then its requests."""
        begin_s, end_s = window * self.scenario.window_s, (window + 1) * self.scenario.window_s
        self._begin(window, begin_s, even_start=even_start)
        before = {each.name: each.model.accuracy for each in self.tenants}
        for slot in range(self.scenario.slots):
            self._slot(begin_s + slot * self.scenario.slot_s, slot)
        received = {each.name: each.received(begin_s, end_s) for each in self.tenants}
        slower = self._slowdowns(begin_s, received)
        estimates = [
            (each, slowdown_by_estimate(service, each.sms, self.scenario.board.sms))
            for each in self.gpu.workers
            if each.estimating and self.gpu.sharing is Sharing.MIG
            for service in [self.by_name[each.task.tenant].service]
        ]
        course, outcomes = self.course, []
        for each in self.tenants:
            tally = each.serve(
                self.gpu.workers,
                begin_s,
                end_s,
                slower[each.name],
                estimates,
                slowest_first=self.policy.routing is Routing.SLOWEST_FIRST,
                drawn=self.drawn,
            )
            assert abs(tally.balance) < 1e-6 * max(1, tally.received), tally
            switches = each.model.switches
            outcomes.append(
                TenantOutcome(
                    each.name,
                    tally,
                    course.new[each.name],
                    before[each.name],
                    switches[-1][0] - begin_s if len(switches) > 1 else None,
                    each.model.accuracy,
                    tuple(int(count) for count in received[each.name]),
                    (course.expected or {}).get(each.name),
                    (course.forecast_by or {}).get(each.name),
                )
            )
        self.gpu.forget(end_s)
        return WindowOutcome(
            window,
            tuple(outcomes),
            tuple(course.planned),
            course.plan_s,
            course.first.predicted_goodput if course.first else None,
            self._fluid(course.first, begin_s),
            tuple(course.plans),
        )

    def _begin(self, window: int, begin_s: float, *, even_start: bool) -> None:
        """Begin a window with new data, new retrainings and a new plan."""
        self.gpu.report_progress()
        self.gpu.now_s = self.clock.began_s = begin_s
        self.clock.number = self.gpu.window = window
        self.course = self._new_course()
        if window > 0:
            self.retrainings.end_window()
        for each in self.tenants:
            if window == 0 and self.policy.estimates:
                each.model.end_estimate(self.states[each.name], window)  # made before the run
            each.model.begin(begin_s, window)
            self._plan(self.states[each.name])
        if window == 0:
            self.gpu.instant = True
            if even_start:
                self._do(self.controller.split_evenly())
            else:
                self._plan_now(self.controller.begin_window())
            self._run_until(begin_s)
            self.gpu.instant = False
        if window > 0 or even_start:
            self._plan_now(self.controller.begin_window())

    def _slot(self, now_s: float, slot: int) -> None:
        """Run one slot."""
        self.gpu.now_s = now_s
        if slot > 0:
            self.gpu.report_progress()
            self._estimate()
            self._plan_now(self.controller.plan())
        self._plan_now(self.controller.tick())
        end_s = now_s + self.scenario.slot_s
        self.gpu.train_until(end_s)
        self._run_until(end_s - 1e-6)
        for tenant, window in self.gpu.ended_estimates():
            self.by_name[tenant].model.end_estimate(self.states[tenant], window + 1)

    def _run_until(self, until_s: float) -> None:
        """Process all events up to a time, in order."""
        while (events := self.gpu.next_events(until_s)) is not None:
            for event in events:
                self._note(event)
            self._do(self.controller.on(*events))
            self._plan_now(self.controller.plan())

    def _note(self, event: Event) -> None:
        if isinstance(event, TrainingEnded) and event.ok:
            self._end_retraining(event.tenant)
        if isinstance(event, Ready) and not self.gpu.instant:
            worker = self.gpu.worker(event.instance)
            took_s = worker.ready_s - worker.since_s
            self.controller.measured(worker.task.tenant, event.instance, took_s)

    def _plan_now(self, instructions: list[Instruction]) -> None:
        """Carry out instructions, and follow an answer that takes no planning time at once."""
        self._do(instructions)
        self._do(self.controller.plan())
        wait_s = self.controller.planning.due_s()
        if wait_s is not None and wait_s > 0:
            self.gpu.wake(self.gpu.now_s + wait_s)

    def _do(self, instructions: list[Instruction]) -> None:
        for each in instructions:
            if isinstance(each, Warm | Train):
                self.course.new[each.tenant] += 1
        self.gpu.do(instructions, self._owner)

    def _owner(self, instance: Holding) -> Task | None:
        return self.controller.executor.task_for(self.gpu.now_s, instance)

    # Deciding.

    def _decide(self, observation: Observation) -> Decision:
        before = perf_counter()
        seen = self.forecasting.with_forecast(observation)
        decision = self.forecasting.decide_on(seen)
        course = self.course
        course.plan_s += perf_counter() - before
        self._warn_of_unserved(seen, decision)
        self._note_plan(decision)
        if course.first is None:
            course.first = decision
            course.expected = {
                each.name: tuple(each.ahead.mean(axis=0).tolist())
                for each in seen.tenants
                if each.ahead is not None
            }
            if self.policy.sight in (Sight.FORECAST, Sight.START):
                names = [each.name for each in seen.tenants]
                words = self.forecasting.forecasts.words(seen)
                course.forecast_by = dict(zip(names, words, strict=True))
        return decision

    def _note_plan(self, decision: Decision) -> None:
        """Note the gap of a plan that is new, and how long it took."""
        course, plan, problem = self.course, decision.plan, decision.problem
        self.search_s = 0.0
        if plan is not None and problem is not None and plan is not course.last:
            course.plans.append(PlanGap(decision.begin, problem.charge, plan.gap))
            if plan.gap > 0:  # the planner has used all the work of its limit
                self.search_s = default_time_limit_s(problem)
        course.last = plan

    def _plan_s(self, window: int) -> float:
        """Seconds of the last decision."""
        if self.gpu.instant:
            return 0.0
        known_s = self.gpu.plan_s(window)
        return known_s if self.measured else max(known_s, self.search_s)

    def _truth_ahead(self, now: Observation) -> tuple[NDArray[np.float64], ...]:
        begin_s = self.clock.slot_began_s
        end_s = self.clock.began_s + self.scenario.window_s
        return tuple(
            self.by_name[each.name].received(begin_s, end_s)[None, :] for each in now.tenants
        )

    # Retraining.

    def _plan(self, state: TenantState) -> None:
        """Set the retraining of a tenant in this window."""
        self.by_name[state.name].model.plan(
            state,
            self.clock.number,
            self.retrainings.room(),
            known=self.policy.sight is Sight.TRUTH,
        )

    def _estimate(self) -> None:
        """Begin the estimates that are due."""
        for each in self.retrainings.due():
            model, state = self.by_name[each.tenant].model, self.states[each.tenant]
            seconds = model.training_s(state, each.window + 1, each.most_samples)
            self.gpu.estimate(each, seconds.scaled(state.slower))

    def _start_retraining(self, tenant: str, on: Holding) -> Retraining | None:
        return self.states[tenant].start_retraining(on)

    def _end_retraining(self, tenant: str) -> None:
        """Serve the retrained model, and learn from how long the retraining took."""
        training = self.gpu.end_training(tenant)
        if training is None:
            return
        state, job = self.states[tenant], training.job
        spent = training.spent(self.gpu.now_s, 1.0)
        swap_s = self.gpu.swap_s(job.window, tenant)
        self.by_name[tenant].model.finish(state, job, self.gpu.now_s, swap_s)
        state.end_retraining(job, spent.planned_s, spent.took_s)

    def _training_speed(self, worker: Worker) -> float:
        now_s = self.gpu.now_s
        alive = [e for e in self.gpu.workers if e.since_s <= now_s < e.until_s]
        active: dict[str, float] = {}
        if self.gpu.sharing is not Sharing.MIG or worker.estimating:
            at_s = self.clock.slot_began_s
            slot_s = self.scenario.slot_s
            rates_rps = {
                each.name: float(each.received(at_s, at_s + slot_s)[0]) / slot_s
                for each in self.tenants
            }
            services = [each.service for each in self.tenants]
            active = activities(
                self.gpu.sharing, self.scenario.board.sms, services, alive, rates_rps
            )
        return training_speed(
            self.gpu.sharing,
            self.scenario.board.sms,
            worker,
            alive,
            active,
            limited=self._is_overlap_limited,
        )

    @property
    def _is_overlap_limited(self) -> bool:
        return self.scenario.peers.overlap is Overlap.LIMITED

    def _warn_of_unserved(self, seen: Observation, decision: Decision) -> None:
        """Warn once per tenant for which a decision holds no instance or share."""
        for name, slot in tenants_without_instance(seen, decision):
            if name not in self._unserved:
                self._unserved.add(name)
                warnings.warn(
                    f"{self.policy.name} holds nothing for the inference of {name} from slot "
                    f"{slot} of window {self.clock.number} on; without an instance its requests "
                    "are dropped",
                    PolicyWarning,
                    stacklevel=2,
                )

    # Figures of a window.

    def _slowdowns(
        self, begin_s: float, received: Mapping[str, NDArray[np.float64]]
    ) -> dict[str, NDArray[np.float64]]:
        slot_s = self.scenario.slot_s
        starts_s = [begin_s + slot * slot_s for slot in range(self.scenario.slots)]
        alive = [
            [e for e in self.gpu.workers if e.ready_s <= now_s and e.until_s > now_s]
            if self.gpu.sharing is not Sharing.MIG
            else []
            for now_s in starts_s
        ]
        return slowdowns(
            self.gpu.sharing,
            self.scenario.board.sms,
            [each.service for each in self.tenants],
            alive,
            {name: counts / slot_s for name, counts in received.items()},
            limited=self._is_overlap_limited,
        )

    def _fluid(self, decision: Decision | None, begin_s: float) -> float | None:
        """The plan's goodput in the planner's model with the requests that actually arrived."""
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

    # Construction.

    def _new_course(self) -> _Course:
        held = tuple(e.instance for e in self.controller.executor.units if e.state in _HELD)
        return _Course({each.name: 0 for each in self.tenants}, [held] * self.scenario.slots)

    def _profile_durations(self, spread: float) -> ProfileDurations:
        return ProfileDurations(
            {each.name: each.service.profile.overhead for each in self.tenants},
            self.policy.sharing is Sharing.MIG,
            has_prepared_workers(self.scenario, self.policy),
            DECISION_S if self.policy.sight is Sight.NOTHING else PLAN_S,
            spread,
            self.scenario.seed,
        )

    def _state(self, tenant: RunningTenant, measured: MeasuredRun | None) -> TenantState:
        live = (measured.tenants if measured else {}).get(tenant.name) or LiveTenant(
            tenant.service, None, None, None, None, 0, 1, 0, 0.0
        )
        state = _SimulatedTenantState(live, np.empty(0), overhead_s=self.overheads_s[tenant.name])
        state.trace = lambda: self._past(tenant, measured)
        return state

    def _past(self, tenant: RunningTenant, measured: MeasuredRun | None) -> NDArray[np.float64]:
        """Requests per slot so far: those of the trace, or those counted live."""
        slot = self.clock.number * self.clock.slots + self.clock.slot
        if measured is None:
            return tenant.history(slot * self.scenario.slot_s)
        return np.concatenate([tenant.history(0.0), measured.seen[tenant.name][:slot]])
