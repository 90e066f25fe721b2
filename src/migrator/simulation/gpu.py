"""The simulated GPU with its workers and trainers: carries out instructions in virtual time.

It replaces the daemon's actuator. Every instruction is answered by the same events, after the time
that `durations` gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from migrator.control.events import (
    Create,
    Created,
    Destroy,
    Destroyed,
    DestroyFailed,
    Discard,
    Drain,
    Drained,
    Event,
    Instruction,
    Keep,
    Prepare,
    Prepared,
    Ready,
    Replan,
    RetrainingEvent,
    Stopped,
    StopTraining,
    StopWorker,
    Train,
    TrainingEnded,
    TrainingInterrupted,
    TrainingProgressed,
    Warm,
)
from migrator.control.observation import Sharing
from migrator.control.retraining import TenantRetraining
from migrator.control.retraining_plans import Estimate
from migrator.core.catalogue import Board
from migrator.core.problem import Holding, Kind, Share, Task, bare, sms_of
from migrator.core.profiles import Curve, Service
from migrator.core.scenario import CHECKPOINTS
from migrator.simulation.durations import ESTIMATE_PART, Durations

_STOPPED = "it was ended on request"


@dataclass(eq=False)
class SimulatedWorker:
    """One process on one instance or share, from the instruction to start it to its end."""

    holding: Holding
    task: Task
    sms: float
    since_s: float
    ready_s: float
    until_s: float = math.inf
    """From this time on it starts no batch; it finishes the batch it has."""
    free_s: float = -math.inf
    """When it finishes its current batch."""
    estimating: bool = False
    """Whether it estimates a retraining, on an instance where another worker serves."""

    @property
    def duty(self) -> float:
        """The share of the time for which it has its SMs."""
        return self.holding.duty if isinstance(self.holding, Share) else 1.0


@dataclass(eq=False)
class StandbyWorker:
    """A worker of a tenant that waits on slices in use."""

    holding: Holding
    tenant: str
    ready_s: float
    until_s: float = math.inf


@dataclass
class RunningTraining:
    """A running retraining."""

    worker: SimulatedWorker
    job: TenantRetraining
    whole_s: float
    """Seconds of the whole retraining at full speed."""
    measured: bool
    """Whether `whole_s` already includes the slowdown by neighbours."""
    at_s: float
    """Progress is computed up to this time."""
    done: float = 0.0
    ending: bool = False
    began: float = 0.0
    """The part that was done before this process."""
    speed: float = 0.0
    """In the current slot."""
    before: Spent = field(default_factory=lambda: Spent(0.0, 0.0))
    """The time of the processes before this one."""

    def done_at(self, now_s: float) -> float:
        """The part that is done at a time of the current slot."""
        reached_s, per_s = max(now_s, self.worker.ready_s), self.speed / self.whole_s
        if self.ending:  # not advanced over this slot
            return self.done + max(0.0, reached_s - max(self.at_s, self.worker.ready_s)) * per_s
        return self.done - max(0.0, self.at_s - reached_s) * per_s

    def spent(self, now_s: float, done: float) -> Spent:
        """The time of all its processes so far."""
        planned_s = (done - self.began) * self.job.seconds.at(self.worker.sms)
        took_s = max(0.0, now_s - self.worker.ready_s)
        return Spent(self.before.planned_s + planned_s, self.before.took_s + took_s)


@dataclass(frozen=True)
class Spent:
    """Seconds of a retraining by the profile, and as they passed."""

    planned_s: float
    took_s: float


@dataclass(frozen=True)
class StoppedTraining:
    """A retraining that was ended on request and may be continued."""

    job: TenantRetraining
    done: float
    """The part that the next process need not do again."""
    spent: Spent


@dataclass
class RunningEstimate:
    """A running estimate of a retraining."""

    worker: SimulatedWorker
    window: int
    whole_s: float
    """Seconds of the whole estimate at full speed."""
    at_s: float
    """Progress is computed up to this time."""
    done: float = 0.0


@dataclass(frozen=True, order=True)
class _QueuedEvent:
    at_s: float
    number: int
    event: Event | None
    """None: poll for the policy's answer."""


class SimulatedGpu:
    """One board, all processes on it, and the pending events."""

    def __init__(
        self,
        board: Board,
        services: Mapping[str, Service],
        durations: Durations,
        sharing: Sharing,
        start: Callable[[str, Holding], TenantRetraining | None],
        report: Callable[[str, RetrainingEvent], None],
        speed: Callable[[SimulatedWorker], float],
        *,
        free_resizing: bool = False,
    ) -> None:
        """`start`: starts a tenant's retraining on an instance; None if there is nothing to train.

        `report`: gets what happens to a tenant's retraining until it ends.
        `speed`: the share of its full speed that a training has beside its neighbours.
        `free_resizing`: a training that continues on another share loses no time and no work.
        """
        self._free_resizing = free_resizing
        self._board, self._services, self._durations = board, services, durations
        self._start, self._report, self._speed = start, report, speed
        self.sharing = sharing
        self.now_s = 0.0
        self.window = 0
        self.instant = False
        """Whether instances serve without delay. Used before a run begins."""
        self.workers: list[SimulatedWorker] = []
        """Running workers, and those that ended since the last `forget`."""
        self._at: dict[Holding, SimulatedWorker] = {}
        self._trainings: dict[str, RunningTraining] = {}
        self._stopped: dict[str, StoppedTraining] = {}
        self._estimates: dict[str, RunningEstimate] = {}
        self._creating_s: dict[Holding, float] = {}
        self.standbys: list[StandbyWorker] = []
        """Standbys, and those that ended since the last `forget`."""
        self._standbys: dict[tuple[Holding, str], StandbyWorker] = {}
        self._queue: list[_QueuedEvent] = []
        self._number = 0
        self._slot_end_s = 0.0

    def do(
        self, instructions: Iterable[Instruction], owner: Callable[[Holding], Task | None]
    ) -> None:
        """Begin to carry out instructions. `owner`: the task that an instance is created for."""
        for instruction in instructions:
            match instruction:
                case Create(instance):
                    self._create(instance, owner(instance))
                case Destroy(instance):
                    self._destroy(instance)
                case Warm(instance, tenant):
                    self._warm(instance, tenant)
                case Prepare(instance, tenant):
                    self._prepare(instance, tenant)
                case Keep(instance, tenant):
                    del self._at[bare(instance)]
                    self._wait(instance, tenant, self.now_s)
                case Discard(instance, tenant):
                    self._end_standby(instance, tenant)
                case Drain(instance, _):
                    self._drain(instance)
                case StopWorker(instance):
                    self._stop(instance)
                case StopTraining(instance, tenant):
                    self._stop_training(instance, tenant)
                case Train(instance, tenant):
                    self._train(instance, tenant)
                case Replan():
                    pass  # the controller handles it

    def wake(self, at_s: float) -> None:
        """Make `next_events` return at that time."""
        self._push(at_s, None)

    def next_events(self, until_s: float) -> list[Event] | None:
        """Advance to the next event up to `until_s` and return all events of that time; None if
        there are none.

        The list is empty at a time set with `wake`.
        """
        while self._queue and self._queue[0].at_s <= until_s + 1e-9:
            self.now_s = max(self.now_s, self._queue[0].at_s)
            events, woken = [], False
            while self._queue and self._queue[0].at_s <= self.now_s:
                event = heappop(self._queue).event
                if event is None:
                    woken = True
                elif self._happened(event):
                    events.append(event)
            if events or woken:
                return events
        return None

    def report_progress(self) -> None:
        """Update the reported progress of every retraining, as of the end of the slot."""
        for tenant, training in self._trainings.items():
            self._report(tenant, TrainingProgressed(training.done))

    def train_until(self, slot_end_s: float) -> None:
        """Advance every retraining to the end of a slot, or to its own end."""
        self._slot_end_s = slot_end_s
        for training in self._trainings.values():
            self._advance(training)
        for estimate in self._estimates.values():
            self._advance_estimate(estimate)

    def estimate(self, wanted: Estimate, training_s: Curve) -> None:
        """Begin an estimate beside the worker of an instance. `training_s`: of its retraining.

        An estimate on the host would take longer than the rest of the window.
        """
        if wanted.instance is None or wanted.limit_s is None or wanted.tenant in self._estimates:
            return
        place, sms = bare(wanted.instance), sms_of(self._board, wanted.instance)
        start_s = self._durations.training_start_s(self.window, wanted.tenant)
        worker = SimulatedWorker(
            place,
            Task(wanted.tenant, Kind.RETRAINING),
            sms,
            self.now_s,
            self.now_s + start_s,
            until_s=self.now_s + wanted.limit_s,
            estimating=True,
        )
        self.workers.append(worker)
        whole_s = ESTIMATE_PART * training_s.at(sms)
        self._estimates[wanted.tenant] = RunningEstimate(worker, wanted.window, whole_s, self.now_s)

    def ended_estimates(self) -> Iterator[tuple[str, int, bool]]:
        """Remove the estimates that have ended. Yields the tenant and window, and whether it has a
        result: it was not stopped before."""
        for tenant, estimate in list(self._estimates.items()):
            if estimate.worker.until_s <= self.now_s + 1e-6:
                del self._estimates[tenant]
                yield tenant, estimate.window, estimate.done >= 1

    def worker(self, instance: Holding) -> SimulatedWorker:
        """The worker on an instance."""
        return self._at[bare(instance)]

    def plan_s(self, window: int) -> float:
        """Planning time in seconds."""
        return self._durations.plan_s(window)

    def swap_s(self, window: int, tenant: str) -> float:
        """Seconds from the end of a retraining until its model serves."""
        return self._durations.swap_s(window, tenant)

    def forget(self, before_s: float) -> None:
        """Drop workers that ended by then."""
        self.workers = [worker for worker in self.workers if worker.until_s > before_s]
        self.standbys = [standby for standby in self.standbys if standby.until_s > before_s]

    def _create(self, instance: Holding, task: Task | None) -> None:
        place = bare(instance)
        seconds = 0.0
        if not self.instant or (task is not None and task.kind is Kind.RETRAINING):
            tenant = task.tenant if task is not None else next(iter(self._services))
            seconds = self._durations.create_s(self.window, tenant, instance)
        self._creating_s[place] = self.now_s
        self._push(self.now_s + seconds, Created(instance))

    def _destroy(self, instance: Holding) -> None:
        for estimate in self._estimates.values():
            if estimate.worker.holding == bare(instance) and estimate.worker.until_s > self.now_s:
                estimate.worker.until_s, estimate.done = self.now_s, 0.0
        if self.instant:
            self._push(self.now_s, Destroyed(instance))
            return
        removal = self._durations.destroy(self.window, instance)
        ended: Event = Destroyed(instance)
        if removal.why:
            ended = DestroyFailed(instance, removal.why)
        self._push(self.now_s + removal.seconds, ended)

    def _prepare(self, instance: Holding, tenant: str) -> None:
        """Start a standby. What that takes from the worker on its slices is not simulated."""
        seconds = 0.0 if self.instant else self._durations.warm_s(self.window, tenant, instance)
        self._wait(instance, tenant, self.now_s + seconds)
        self._push(self.now_s + seconds, Prepared(instance, tenant))

    def _wait(self, instance: Holding, tenant: str, ready_s: float) -> None:
        self._end_standby(instance, tenant)
        standby = StandbyWorker(bare(instance), tenant, ready_s)
        self._standbys[standby.holding, tenant] = standby
        self.standbys.append(standby)

    def _end_standby(self, instance: Holding, tenant: str) -> StandbyWorker | None:
        standby = self._standbys.pop((bare(instance), tenant), None)
        if standby is not None:
            standby.until_s = self.now_s
        return standby

    def _warm_s(self, instance: Holding, tenant: str) -> float:
        standby = self._end_standby(instance, tenant)
        if self.instant:
            return 0.0
        if standby is None:
            return self._durations.warm_s(self.window, tenant, instance)
        left_s = max(0.0, standby.ready_s - self.now_s)
        return left_s + self._durations.take_over_s(self.window, tenant, instance)

    def _warm(self, instance: Holding, tenant: str) -> None:
        place = bare(instance)
        seconds = self._warm_s(instance, tenant)
        since_s = self._creating_s.pop(place, self.now_s)
        worker = self._begin(place, Task(tenant, Kind.INFERENCE), since_s, self.now_s + seconds)
        self._push(worker.ready_s, Ready(instance, seconds))

    def _drain(self, instance: Holding) -> None:
        worker = self._at[bare(instance)]
        worker.until_s = self.now_s
        service = self._services[worker.task.tenant]
        longest_s = service.latency_s(service.batch, worker.sms) / worker.duty
        self._push(self.now_s + longest_s * (not self.instant), Drained(instance))

    def _stop(self, instance: Holding) -> None:
        worker = self._at.pop(bare(instance), None)
        if worker is not None:
            worker.until_s = min(worker.until_s, self.now_s)
        seconds = 0.0 if self.instant else self._durations.stop_s(self.window, instance)
        self._push(self.now_s + seconds, Stopped(instance))

    def _train(self, instance: Holding, tenant: str) -> None:
        task, place = Task(tenant, Kind.RETRAINING), bare(instance)
        on = instance if isinstance(instance, Share) else replace(instance, task=task)
        self._creating_s.pop(place, None)
        job = self._start(tenant, on)
        if job is None:
            self._push(self.now_s, TrainingEnded(instance, tenant, True, "nothing to train on"))
            return
        sms = sms_of(self._board, instance)
        before = self._stopped.pop(tenant, None)
        of = job.window, job.configuration
        if before is not None and (before.job.window, before.job.configuration) != of:
            before = None
        start_s = self._durations.training_start_s(self.window, tenant)
        if before is not None and self._free_resizing:
            start_s = 0.0
        worker = self._begin(place, task, self.now_s, self.now_s + start_s)
        measured_s = self._durations.training_s(job.window, tenant, job.seconds, sms)
        whole_s = measured_s
        if whole_s is None:
            whole_s = job.seconds.at(sms) * self._durations.slower(job.window, tenant)
        training = RunningTraining(worker, job, whole_s, measured_s is not None, self.now_s)
        if before is not None:
            training.done = training.began = before.done
            self._report(tenant, TrainingProgressed(before.done))
            training.before = before.spent
        self._trainings[tenant] = training
        self._advance(training)

    def _stop_training(self, instance: Holding, tenant: str) -> None:
        """End a retraining. It keeps what it had learned by its last checkpoint."""
        training = self._trainings.pop(tenant)
        done = training.done_at(self.now_s)
        kept = done if self._free_resizing else int(done * CHECKPOINTS + 1e-9) / CHECKPOINTS
        kept = max(kept, training.began)
        self._stopped[tenant] = StoppedTraining(
            training.job, kept, training.spent(self.now_s, done)
        )
        training.worker.until_s = self.now_s
        self._at.pop(training.worker.holding, None)
        self._report(tenant, TrainingInterrupted())
        stop_s = self._durations.stop_s(self.window, instance)
        self._push(self.now_s + stop_s, TrainingEnded(instance, tenant, False, _STOPPED))

    def _begin(self, place: Holding, task: Task, since_s: float, ready_s: float) -> SimulatedWorker:
        worker = SimulatedWorker(place, task, sms_of(self._board, place), since_s, ready_s)
        self.workers.append(worker)
        self._at[place] = worker
        return worker

    def _advance(self, training: RunningTraining) -> None:
        if training.ending:
            return
        begin_s = max(training.at_s, training.worker.ready_s)
        speed = 1.0 if training.measured else self._speed(training.worker)
        training.speed = speed
        needs_s = (1 - training.done) * training.whole_s / speed if speed else math.inf
        if begin_s + needs_s <= self._slot_end_s + 1e-9:
            training.ending = True
            ended = TrainingEnded(training.worker.holding, training.worker.task.tenant, True)
            self._push(begin_s + needs_s, ended)
            return
        training.done += max(0.0, self._slot_end_s - begin_s) * speed / training.whole_s
        training.at_s = max(training.at_s, self._slot_end_s)

    def _advance_estimate(self, estimate: RunningEstimate) -> None:
        worker = estimate.worker
        until_s = min(self._slot_end_s, worker.until_s)
        begin_s = max(estimate.at_s, worker.ready_s)
        if estimate.done >= 1 or begin_s >= until_s:
            return
        speed = self._speed(worker)
        needs_s = (1 - estimate.done) * estimate.whole_s / speed
        if begin_s + needs_s <= until_s:
            worker.until_s, estimate.done = begin_s + needs_s, 1.0
            return
        estimate.done += (until_s - begin_s) * speed / estimate.whole_s
        estimate.at_s = until_s

    def _happened(self, event: Event) -> bool:
        """Whether an event is still valid; updates the state if it is."""
        if isinstance(event, Prepared):
            standby = self._standbys.get((bare(event.instance), event.tenant))
            return standby is not None and abs(standby.ready_s - self.now_s) < 1e-6
        if isinstance(event, Ready):
            worker = self._at.get(bare(event.instance))
            return worker is not None and abs(worker.ready_s - self.now_s) < 1e-6
        if isinstance(event, TrainingEnded) and event.why != _STOPPED:
            training = self._trainings.get(event.tenant)
            if event.instance != (training.worker.holding if training else None) and not event.why:
                return False  # it was stopped before it ended
            if training is not None:
                training.worker.until_s = self.now_s
                self._at.pop(training.worker.holding, None)
        return True

    def end_training(self, tenant: str) -> RunningTraining | None:
        """Remove and return the retraining that has just ended; None if there was nothing to train
        on."""
        return self._trainings.pop(tenant, None)

    def _push(self, at_s: float, event: Event | None) -> None:
        self._number += 1
        heappush(self._queue, _QueuedEvent(at_s, self._number, event))
