"""Runs a scenario in virtual time.

For every window, first the control plane runs event by event: the controller of the daemon
(`control/`) with a simulated GPU, workers and trainers. Then the data plane serves each tenant's
requests one by one on the workers that existed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from migrator.control.controller import Controller, new_executor
from migrator.control.events import (
    Event,
    Instruction,
    Ready,
    Train,
    TrainingCompleted,
    TrainingEnded,
    TrainingProgressed,
    Warm,
)
from migrator.control.forecasting_policy import ForecastingPolicy
from migrator.control.observation import (
    Decision,
    Observation,
    Policy,
    Routing,
    Sharing,
    Sight,
    lends,
    sharing_on,
)
from migrator.control.retraining_plans import RetrainingPlans
from migrator.control.tenant_state import TenantState, TrainingSettings
from migrator.control.units import State
from migrator.control.why_not_retrained import why_not_retrained
from migrator.control.window_clock import WindowClock
from migrator.core.batch import Batch
from migrator.core.outcome import Tally
from migrator.core.preferences import Preferences
from migrator.core.problem import Holding, Kind, Problem, Task, bare
from migrator.core.profiles import Service
from migrator.core.scenario import Overlap, ResizedTraining, Scenario
from migrator.forecast.forecaster import Forecaster
from migrator.planning.check import goodput_of
from migrator.records.outcome import RunOutcome, TenantOutcome, WindowOutcome
from migrator.simulation.decider import SimulatedDecider
from migrator.simulation.durations import (
    RETRAINING_SPREAD,
    Durations,
    overheads_s,
    profile_durations,
)
from migrator.simulation.gpu import SimulatedGpu, SimulatedWorker
from migrator.simulation.interference import (
    BatchSlowdown,
    activities,
    slowdown_by_estimate,
    slowdowns,
    training_speed,
)
from migrator.simulation.recording import EndedTraining, SimulatedRecorder
from migrator.simulation.tenant import RunningTenant, Spans, TenantModel, idle_spans, lent_to

_HELD = (State.WARMING, State.READY, State.TRAINING)


@dataclass(frozen=True)
class MeasuredRun:
    """Measurements of a live run that replace the assumptions of a scenario."""

    durations: Durations
    models: Mapping[str, TenantModel]
    tenants: Mapping[str, TrainingSettings]
    """How each tenant is retrained."""
    overheads_s: Mapping[str, float]
    """Overheads known when the first window began."""
    seen: Mapping[str, NDArray[np.float64]]
    """Requests per slot of each tenant, as counted by the controller."""
    on_instances: bool = True
    """Whether retrainings were estimated on the instances; else on the host."""
    sharing: Sharing | None = None
    """How the processes actually shared the GPU; None: as policy and board say."""
    lends: bool = False
    """Whether standbys served on idle slices."""
    slowdown: BatchSlowdown | None = None
    """Of its batches; None: that of the profiles."""


def run(
    scenario: Scenario,
    policy: Policy,
    forecaster: Forecaster,
    *,
    drawn: bool = False,
    even_start: bool = False,
    measured: MeasuredRun | None = None,
    models: Mapping[str, TenantModel] | None = None,
    spread: float = RETRAINING_SPREAD,
    longer: float = 1.0,
    slower: float = 1.0,
    record: bool = False,
    batches: Callable[[Batch], None] | None = None,
    step: Callable[[], None] = lambda: None,
) -> RunOutcome:
    """Run the policy over all windows.

    `drawn`: draw the correctness of each request instead of using its expected value. `even_start`:
    split the board evenly before the first decision; otherwise the first decision's layout exists
    at once. `models`: by tenant, in place of those with the accuracies of the scenario. `spread`:
    relative standard deviation of the durations of retrainings. `longer`, `slower`: factors on the
    durations of retrainings and batches that the profiles do not tell. `record`: the outcome has
    records. `batches`: gets every batch. `step`: called after every window.
    """
    models = models or (measured.models if measured else {})
    simulation = _Simulation(
        *(scenario, policy, forecaster, drawn, measured, models, spread, longer, slower),
        record=record,
        batches=batches,
    )
    windows = []
    for number in range(scenario.windows):
        windows.append(simulation.window(number, even_start=even_start))
        step()
    recorder = simulation.recorder
    return RunOutcome(
        *(scenario.name, policy.name, forecaster.name, scenario.seed, tuple(windows)),
        labels=scenario.labels,
        records=None if recorder is None else recorder.end_run(),
        preferences=Preferences.of(tenant.service for tenant in scenario.tenants),
    )


class _SimulatedTenantState(TenantState):
    """A tenant whose request history is its trace."""

    def __init__(
        self,
        service: Service,
        training: TrainingSettings | None,
        trace: Callable[[], NDArray[np.float64]],
        overhead_s: float,
    ) -> None:
        super().__init__(service, training, overhead_s=overhead_s)
        self._trace = trace

    def requests(self) -> NDArray[np.float64]:
        """Requests per slot so far, including the trace before the run."""
        return self._trace()


class _Simulation:
    """One run: the controller, the simulated GPU, and the tenants with their requests."""

    def __init__(
        self,
        scenario: Scenario,
        policy: Policy,
        forecaster: Forecaster,
        drawn: bool,
        measured: MeasuredRun | None,
        models: Mapping[str, TenantModel],
        spread: float,
        longer: float,
        slower: float,
        *,
        record: bool,
        batches: Callable[[Batch], None] | None,
    ) -> None:
        self.scenario, self.policy, self.drawn = scenario, policy, drawn
        self.measured, self.batches, self.slower = measured is not None, batches, slower
        self.tenants = [
            RunningTenant(
                *(tenant, scenario.slot_s, scenario.seed, number, models.get(tenant.name)),
                fixed_s=measured.slowdown.fixed_s if measured and measured.slowdown else 0.0,
            )
            for number, tenant in enumerate(scenario.tenants)
        ]
        self.by_name = {tenant.name: tenant for tenant in self.tenants}
        self.forecasting = ForecastingPolicy(policy, forecaster, self._truth_ahead)
        self.overheads_s = overheads_s(scenario, policy) | dict(
            measured.overheads_s if measured else {}
        )
        self.states = {tenant.name: self._state(tenant, measured) for tenant in self.tenants}
        self.gpu = SimulatedGpu(
            scenario.board,
            {tenant.name: tenant.service for tenant in self.tenants},
            measured.durations if measured else profile_durations(scenario, policy, spread, longer),
            (measured.sharing if measured else None) or sharing_on(policy, scenario.board),
            lambda tenant, holding: self.states[tenant].start_retraining(holding),
            lambda tenant, event: self.states[tenant].on(event),
            self._training_speed,
            free_resizing=scenario.peers.resized_training is ResizedTraining.FREE,
        )
        self.lends = lends(policy, scenario.board) if measured is None else measured.lends
        self.clock = WindowClock(scenario.window_s, scenario.slot_s, now_s=lambda: self.gpu.now_s)
        self.decider = SimulatedDecider(
            policy, self.forecasting, self.clock.now_s, self._planning_s, self.gpu.wake
        )
        self.new: Counter[str] = Counter()
        self.planned: list[tuple[Holding, ...]] = []
        self.slowdown = measured.slowdown if measured else None
        self.controller = Controller(
            self.forecasting,
            scenario.board,
            self.clock,
            self.states,
            self.overheads_s,
            lambda _failed: self.decider,
            self,
            self._plan,
            new_executor(scenario.board, self.states, self.overheads_s, scenario.peers),
            scenario.peers,
        )
        self.retrainings = RetrainingPlans(
            self.states,
            self.clock,
            self,
            self.controller,
            on_instances=measured is None or measured.on_instances,
        )
        names, executor = (policy.name, forecaster.name), self.controller.executor
        self.recorder: SimulatedRecorder | None = None
        if record:
            self.recorder = SimulatedRecorder(scenario, names, self.clock, self.states, executor)

    # The labels of all tenants.

    def kept(self, tenant: str, first: int, before: int) -> int:
        """Number of labels that a retraining in the window `before` can learn."""
        return self.by_name[tenant].model.labelled(first, before)

    def accuracy(self, _tenant: str, _window: int, _fewest: int) -> float | None:
        """None: models set the accuracy themselves."""
        return None

    # The controller's observer.

    def plan_requested(self, reason: str) -> None:
        """Record it."""
        if self.recorder is not None:
            self.recorder.plan_requested(reason)

    def plan_followed(self, decision: Decision, seconds: float) -> None:
        """Note what the decision holds in the rest of the window."""
        if self.recorder is not None:
            self.recorder.plan_followed(decision, seconds)
            if decision.problem is None and self.decider.seen is not None:
                self.recorder.expect(self.decider.seen)
        slot = self.clock.slot
        left = self.scenario.slots - slot
        self.planned[slot:] = [decision.slots[min(k, len(decision.slots) - 1)] for k in range(left)]

    def plan_refused(self, error: Exception) -> None:
        """Raise the error: a policy whose decision no GPU can follow has a bug."""
        raise error

    def plan_failed(self, why: str) -> None:
        """Record it."""
        if self.recorder is not None:
            self.recorder.plan_failed(why)

    # The run.

    def window(self, window: int, *, even_start: bool = False) -> WindowOutcome:
        """Run one window: its control plane event by event, then its requests."""
        begin_s, end_s = window * self.scenario.window_s, (window + 1) * self.scenario.window_s
        self._begin(window, begin_s, even_start=even_start)
        before = {tenant.name: tenant.model.accuracy for tenant in self.tenants}
        for slot in range(self.scenario.slots):
            self._slot(begin_s + slot * self.scenario.slot_s, slot)
        received = {tenant.name: tenant.received(begin_s, end_s) for tenant in self.tenants}
        slower = self._slowdowns(begin_s, received)
        estimates = [
            (worker, slowdown_by_estimate(service, worker.sms, self.scenario.board.sms))
            for worker in self.gpu.workers
            if worker.estimating and self.gpu.sharing is Sharing.MIG
            for service in [self.by_name[worker.task.tenant].service]
        ]
        decisions, outcomes = self.decider.of_window, []

        def serve(
            tenant: RunningTenant, lent: Sequence[Spans], *, trial: bool = False
        ) -> tuple[Tally, list[Spans]]:
            return tenant.serve(
                self.gpu.workers,
                begin_s,
                end_s,
                slower[tenant.name],
                estimates,
                slowest_first=self.policy.routing is Routing.SLOWEST_FIRST,
                drawn=self.drawn,
                lent=lent,
                trial=trial,
                record=None if trial else self.batches,
            )

        ran: list[Spans] = []
        are_lent = self.lends and bool(self.gpu.standbys)
        lending = [worker for worker in self.gpu.workers if worker.task.kind is Kind.INFERENCE]
        if are_lent:
            # a worker is idle when its own tenant does not need it, whatever the others borrow
            ran = [spans for tenant in self.tenants for spans in serve(tenant, (), trial=True)[1]]
            ran += [
                Spans(worker, np.array([begin_s]), np.array([worker.free_s]))
                for worker in lending
                if worker.free_s > begin_s
            ]
        for tenant in self.tenants:
            lent: list[Spans] = []
            if are_lent:
                others = [worker for worker in lending if worker.task.tenant != tenant.name]
                idle = idle_spans(others, ran, begin_s, end_s)
                lent = lent_to(tenant.name, idle, self.gpu.standbys)
            tally, served = serve(tenant, lent)
            ran += [spans for spans in served if spans.worker.task.tenant != tenant.name]
            assert abs(tally.balance) < 1e-6 * max(1, tally.received), tally
            switches = tenant.model.switches
            outcomes.append(
                TenantOutcome(
                    tenant.name,
                    tally,
                    self.new[tenant.name],
                    before[tenant.name],
                    switches[-1][0] - begin_s if len(switches) > 1 else None,
                    tenant.model.accuracy,
                    decisions.forecast_by.get(tenant.name),
                    why_not_retrained(self.states[tenant.name], paused=False),
                )
            )
        self.gpu.forget(end_s)
        outcome = WindowOutcome(
            window,
            tuple(outcomes),
            tuple(self.planned),
            decisions.plan_s,
            decisions.first.predicted_goodput if decisions.first else None,
            self._fluid(decisions.first, begin_s),
            tuple(decisions.gaps),
        )
        if self.recorder is not None:
            self.recorder.end_window(outcome, received)
        return outcome

    def _begin(self, window: int, begin_s: float, *, even_start: bool) -> None:
        """Begin a window with new data, new retrainings and a new plan."""
        self.gpu.report_progress()
        self.gpu.now_s = self.clock.began_s = begin_s
        self.clock.number = self.gpu.window = window
        self.decider.begin_window()
        self.new.clear()
        units = self.controller.executor.units
        held = tuple(unit.instance for unit in units if unit.state in _HELD)
        self.planned = [held] * self.scenario.slots
        if window > 0:
            self.retrainings.end_window()
        for tenant in self.tenants:
            if window == 0 and self.policy.estimates:
                tenant.model.end_estimate(self.states[tenant.name], window)  # made before the run
            tenant.model.begin(begin_s, window)
            self._plan(self.states[tenant.name])
        if self.recorder is not None:
            if window == 0:
                self.recorder.begin_run(
                    {tenant.name: tenant.model.accuracy for tenant in self.tenants}
                )
            self.recorder.begin_window()
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
        for tenant, window, done in self.gpu.ended_estimates():
            self.controller.end_estimate(tenant)
            if not done:
                continue
            self.by_name[tenant].model.end_estimate(self.states[tenant], window + 1)
        if self.recorder is not None:
            self.recorder.end_slot()

    def _run_until(self, until_s: float) -> None:
        """Process all events up to a time, in order."""
        while (events := self.gpu.next_events(until_s)) is not None:
            for event in events:
                self._note(event)
            self._do(self.controller.on(*events))
            if self.recorder is not None:
                self.recorder.update_units()
            self._plan_now(self.controller.plan())

    def _note(self, event: Event) -> None:
        if isinstance(event, TrainingEnded) and event.ok:
            self._end_retraining(event.tenant)
        if isinstance(event, Ready) and not self.gpu.instant:
            worker = self.gpu.worker(event.instance)
            took_s = worker.ready_s - worker.since_s
            late_s = self.controller.measured(worker.task.tenant, event.instance, took_s)
            if self.recorder is not None:
                place = bare(event.instance)
                create_s = self.recorder.created_s(place)
                parts_s = {"create_s": create_s, "warm_s": event.seconds, "late_s": late_s}
                self.recorder.started(place, parts_s)
        if self.recorder is not None:
            self.recorder.ended(event)

    def _plan_now(self, instructions: list[Instruction]) -> None:
        """Carry out instructions, and follow an answer that takes no planning time at once."""
        self._do(instructions)
        self._do(self.controller.plan())
        wait_s = self.controller.planning.due_s()
        if wait_s is not None and wait_s > 0:
            self.gpu.wake(self.gpu.now_s + wait_s)

    def _do(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Warm | Train):
                self.new[instruction.tenant] += 1
            if self.recorder is not None:
                self.recorder.instructed(instruction)
        if self.recorder is not None and instructions:
            self.recorder.update_units()
        self.gpu.do(instructions, self._owner)

    def _owner(self, instance: Holding) -> Task | None:
        return self.controller.executor.task_for(self.gpu.now_s, instance)

    # Deciding.

    def _planning_s(self, search_s: float) -> float:
        """Seconds that the last decision takes."""
        if self.gpu.instant:
            return 0.0
        known_s = self.gpu.plan_s(self.clock.number)
        return known_s if self.measured else max(known_s, search_s)

    def _truth_ahead(self, now: Observation) -> tuple[NDArray[np.float64], ...]:
        begin_s = self.clock.slot_began_s
        end_s = self.clock.began_s + self.scenario.window_s
        return tuple(
            self.by_name[tenant.name].received(begin_s, end_s)[None, :] for tenant in now.tenants
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
        for estimate in self.retrainings.due():
            model, state = self.by_name[estimate.tenant].model, self.states[estimate.tenant]
            seconds = model.training_s(state, estimate.window + 1, estimate.most_samples)
            self.gpu.estimate(estimate, seconds.scaled(state.duration.slower))

    def _end_retraining(self, tenant: str) -> None:
        """Serve the retrained model, and learn from how long the retraining took."""
        training = self.gpu.end_training(tenant)
        if training is None:
            return
        state, job = self.states[tenant], training.job
        spent = training.spent(self.gpu.now_s, 1.0)
        swap_s = self.gpu.swap_s(job.window, tenant)
        model = self.by_name[tenant].model
        # a retraining evaluates the model that serves
        before = state.accuracy if state.model.is_measured else model.accuracy
        switches = len(model.switches)
        state.on(TrainingProgressed(1.0))
        model.finish(state, job, self.gpu.now_s, swap_s)
        # the accuracies of a retraining that outlasted its window are those on newer data
        is_late = job.window < self.clock.number
        # estimates and gains of earlier retrainings are those of the first configuration
        after = min(1.0, state.accuracy + model.expected_below_first(job))
        state.model.compare(before, after, None if is_late else job.estimated)
        if self.recorder is not None:
            worker = training.worker
            start_s = worker.ready_s - worker.since_s
            ended = EndedTraining(job, worker.holding, spent, start_s, swap_s)
            is_adopted = len(model.switches) > switches
            self.recorder.retrained(tenant, ended, model.accuracy if is_adopted else None)
        state.measure_training(spent.planned_s, spent.took_s)
        state.model.learn_labels(job.window)
        state.on(TrainingCompleted())

    def _training_speed(self, worker: SimulatedWorker) -> float:
        now_s = self.gpu.now_s
        alive = [worker for worker in self.gpu.workers if worker.since_s <= now_s < worker.until_s]
        active: dict[str, float] = {}
        if self.gpu.sharing is not Sharing.MIG or worker.estimating:
            at_s = self.clock.slot_began_s
            slot_s = self.scenario.slot_s
            rates_rps = {
                tenant.name: float(tenant.received(at_s, at_s + slot_s)[0]) / slot_s
                for tenant in self.tenants
            }
            services = [tenant.service for tenant in self.tenants]
            active = activities(
                self.gpu.sharing,
                self.scenario.board.sms,
                services,
                alive,
                rates_rps,
                limited=self._is_overlap_limited,
            )
        return training_speed(
            self.gpu.sharing,
            self.scenario.board.sms,
            worker,
            alive,
            active,
            limited=self._is_overlap_limited,
            interference=self.by_name[worker.task.tenant].service.profile.training_interference,
        )

    @property
    def _is_overlap_limited(self) -> bool:
        return self.scenario.peers.overlap is Overlap.LIMITED

    # Figures of a window.

    def _slowdowns(
        self, begin_s: float, received: Mapping[str, NDArray[np.float64]]
    ) -> dict[str, NDArray[np.float64]]:
        slot_s = self.scenario.slot_s
        starts_s = [begin_s + slot * slot_s for slot in range(self.scenario.slots)]
        alive = [
            [worker for worker in self.gpu.workers if worker.ready_s <= now_s < worker.until_s]
            if self.gpu.sharing is not Sharing.MIG
            else []
            for now_s in starts_s
        ]
        factors = slowdowns(
            self.gpu.sharing,
            self.scenario.board.sms,
            [tenant.service for tenant in self.tenants],
            alive,
            {name: counts / slot_s for name, counts in received.items()},
            limited=self._is_overlap_limited,
            lends=self.lends and bool(self.gpu.standbys),
            measured=self.slowdown,
        )
        return {name: self.slower * factor for name, factor in factors.items()}

    def _fluid(self, decision: Decision | None, begin_s: float) -> float | None:
        """The plan's goodput in the planner's model with the requests that actually arrived."""
        if decision is None or decision.plan is None or decision.problem is None:
            return None
        return goodput_of(self._truth(decision.problem, begin_s), decision.plan)

    def _truth(self, problem: Problem, begin_s: float) -> Problem:
        end_s = begin_s + self.scenario.window_s
        came = {tenant.name: tenant.received(begin_s, end_s) for tenant in self.tenants}
        return replace(
            problem,
            tenants=tuple(
                replace(tenant, received=(tuple(came[tenant.name].tolist()),))
                for tenant in problem.tenants
            ),
        )

    # Construction.

    def _state(self, tenant: RunningTenant, measured: MeasuredRun | None) -> TenantState:
        training = measured.tenants.get(tenant.name) if measured else None
        return _SimulatedTenantState(
            tenant.service,
            training,
            lambda: self._past(tenant, measured),
            self.overheads_s[tenant.name],
        )

    def _past(self, tenant: RunningTenant, measured: MeasuredRun | None) -> NDArray[np.float64]:
        """Requests per slot so far: those of the trace, or those counted live."""
        slot = self.clock.number * self.clock.slots + self.clock.slot
        if measured is None:
            return tenant.history(slot * self.scenario.slot_s)
        return np.concatenate([tenant.history(0.0), measured.seen[tenant.name][:slot]])
