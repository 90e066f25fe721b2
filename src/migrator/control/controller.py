"""The controller of one GPU: takes events, returns instructions, and does no I/O.

It combines the planning loop (when the policy is asked and its decision is followed), the executor
(which instances to create, warm, drain, train and destroy) and what is measured at run time: how
long new instances take, and which retraining follows one that outlasted its window. The daemon runs
it in real time, the simulator in virtual time. They differ only in the clock and in what carries
out the instructions.

`RetrainingPlans` plans the retrainings of every window from the labels that are not learned yet. It
decides which tenants are estimated, when, and on which instance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Protocol

from migrator.control.events import Event, Instruction, Replan, TrainingEnded
from migrator.control.executor import Executor
from migrator.control.planning_loop import Decider, ForecastingPolicy, PlanningLoop, WindowClock
from migrator.control.standbys import most_standbys
from migrator.control.tenant_state import FEWEST_LABELS, TenantState, TrainingRoom
from migrator.core.catalogue import Board
from migrator.core.problem import Holding, Kind, Task
from migrator.core.scenario import DEFAULT_LIMITS, PeerLimits, ResizedTraining
from migrator.policies.fixed_shares import EqualMps, equal_allocation
from migrator.policies.policy import Decision, Observation, Sharing

_FOLLOWED = 0.5
"""Smoothing factor for measured overheads."""
_LONGEST = 0.5
"""Share of a window that limits a measured overhead. With a longer overhead no new instance would
be planned, so the overhead would never be measured again."""


class Observer(Protocol):
    """Receives the controller's decisions, to record them."""

    def plan_requested(self, reason: str) -> None:
        """The policy was asked for a decision."""
        ...

    def plan_followed(self, decision: Decision, seconds: float, /) -> None:
        """A decision takes effect, `seconds` after it was requested."""
        ...

    def plan_refused(self, error: Exception) -> None:
        """A decision cannot be followed."""
        ...

    def plan_failed(self, why: str) -> None:
        """There is no decision, or it came too late."""
        ...


class Controller:
    """Decides for one GPU and performs no action itself."""

    def __init__(
        self,
        policy: ForecastingPolicy,
        board: Board,
        clock: WindowClock,
        tenants: MutableMapping[str, TenantState],
        overheads_s: MutableMapping[str, float],
        decider: Callable[[Callable[[str], None]], Decider],
        observer: Observer,
        plan_retraining: Callable[[TenantState], None],
        executor: Executor | None = None,
        limits: PeerLimits = DEFAULT_LIMITS,
    ) -> None:
        """`overheads_s`: per tenant, seconds until a new instance serves; updated by measurements.

        `plan_retraining`: sets the next retraining of a tenant whose last one outlasted its window.
        `executor`: an executor that other parts of a daemon read as well. `limits`: which MPS
        processes there may be.
        """
        self._policy, self._clock, self._tenants = policy, clock, tenants
        self._overheads_s, self._observer = overheads_s, observer
        self._plan_retraining = plan_retraining
        self.executor = executor or Executor(
            board,
            overheads_s=overheads_s,
            resizes=limits.resized_training is not ResizedTraining.STAYS,
            standbys=standbys_of(board, tenants),
        )
        self.planning = PlanningLoop(
            policy, board, clock, tenants, decider, observer.plan_failed, limits
        )
        self._limits = limits
        self._renewed: set[str] = set()
        """Tenants with a new retraining that the policy has not been asked about yet."""
        self.estimates = policy.estimates
        """Whether the policy plans with estimates of retrainings."""
        self.decisions = 0
        """Number of decisions followed."""
        self.started = False
        """Whether the first window has begun. Plans are made only after that."""

    def split_evenly(self) -> list[Instruction]:
        """Serve every tenant on an equal part of the board until the first decision."""
        even = even_split(
            self._policy.sharing,
            self.planning.board,
            self._tenants.values(),
            self._clock,
            self._limits,
        )
        return self.executor.follow(self._clock.now_s(), [even], self._clock.slot_s)

    def begin_window(self) -> list[Instruction]:
        """Begin a window whose retrainings are set, and plan it."""
        self.started = True
        planned = [each for each in self._tenants.values() if each.planned]
        sms = TrainingRoom.of(self.planning.board, planned, self._clock.window_s).sms
        for tenant in self._tenants.values():
            tenant.value_retraining(sms, self._clock.window_s, self._clock.windows_left)
        self.planning.begin_window()
        return self.plan()

    def plan(self) -> list[Instruction]:
        """Follow an answer of the policy, and ask it if a question is due."""
        found = self.planning.answer()
        instructions = [] if found is None else self._follow(*found)
        reason = self.planning.ask(self.executor.iter_units(), self._overheads_s)
        if reason is not None:
            # not earlier: the questions before did not include these retrainings
            while self._renewed:
                self.executor.renew(self._renewed.pop())
            self._observer.plan_requested(reason)
        return instructions

    def tick(self) -> list[Instruction]:
        """The instructions due at this time."""
        return self._heed(self.executor.tick(self._clock.now_s()))

    def on(self, *events: Event) -> list[Instruction]:
        """Process events of one moment and return the instructions that follow."""
        for event in events:
            if isinstance(event, TrainingEnded):
                self._on_training_ended(event)
        return self._heed(self.executor.on(self._clock.now_s(), *events))

    def _on_training_ended(self, event: TrainingEnded) -> None:
        if not event.ok and self.executor.is_stopping(event.instance):
            return  # on request; it continues on another share
        self.planning.completed()
        tenant = self._tenants.get(event.tenant)  # None: removed meanwhile
        if tenant is not None and event.ok:
            late = tenant.outlasted(self._clock.number)
            tenant.gain.complete(1.0 if late else self._clock.slot / self._clock.slots)
        if tenant is not None and tenant.outlasted(self._clock.number):
            self._plan_retraining(tenant)
            self._renewed.add(tenant.name)
        if tenant is not None and tenant.drained:
            self.planning.changed(f"the retraining of {event.tenant}, which is drained, ended")

    def measured(self, tenant: str, instance: Holding, took_s: float) -> float:
        """Record that a new instance of a tenant serves, `took_s` after its creation began.

        Returns the seconds that the plan waited for it. Call it before `on` gets the event.
        """
        late_s = self.executor.late_s(self._clock.now_s(), instance)
        # waiting for slices counts as well if the instance could not be prepared ahead
        counted_s = min(max(late_s, took_s), _LONGEST * self._clock.window_s)
        self._overheads_s[tenant] += _FOLLOWED * (counted_s - self._overheads_s[tenant])
        self._tenants[tenant].overhead_s = self._overheads_s[tenant]
        return late_s

    def _follow(self, decision: Decision, seconds: float) -> list[Instruction]:
        """Follow a decision if possible; otherwise keep the current layout."""
        clock = self._clock
        try:
            instructions = self.executor.follow(
                clock.now_s(),
                decision.slots,
                clock.slot_s,
                window=clock.number,
                # its slots follow the clock, so a late first slot does not delay the others
                since_s=clock.slot_began_s,
                available=self.planning.board,
            )
        except Exception as error:  # custom policies may return anything
            self._observer.plan_refused(error)
            self.planning.refuse(f"{type(error).__name__}: {error}")
            return []
        self.decisions += 1
        self._note_left_out(decision)
        self._observer.plan_followed(decision, seconds)
        return self._heed(instructions)

    def _note_left_out(self, decision: Decision) -> None:
        """Note which retrainings the plan leaves out although they would fit."""
        if decision.problem is None or decision.plan is None:
            return
        retrained = {each.tenant for each in decision.plan.retrainings}
        for tenant in decision.problem.tenants:
            if tenant.name in self._tenants:
                fits = decision.problem.may_retrain(tenant)
                self._tenants[tenant.name].left_out = fits and tenant.name not in retrained

    def _heed(self, instructions: list[Instruction]) -> list[Instruction]:
        for each in instructions:
            if isinstance(each, Replan):
                self.planning.because(each.reason)
        return instructions


def standbys_of(board: Board, tenants: Mapping[str, TenantState]) -> Callable[[], int]:
    """How many standbys the tenants of the moment may have."""
    return lambda: most_standbys(board, (each.live.service for each in tenants.values()))


def even_split(
    sharing: Sharing,
    board: Board,
    tenants: Iterable[TenantState],
    clock: WindowClock,
    limits: PeerLimits = DEFAULT_LIMITS,
) -> tuple[Holding, ...]:
    """Instances or shares of equal size for the inference of every tenant."""
    views = tuple(each.view() for each in tenants if each.planned)
    if not views:
        return ()
    nothing = Observation(board, clock.slot_s, clock.slots, 0, views, (), limits=limits)
    if sharing is Sharing.MIG:
        found: tuple[Holding, ...] = equal_allocation(nothing)
    else:
        found = EqualMps().decide(nothing).slots[0]
    return tuple(each for each in found if each.task and each.task.kind is Kind.INFERENCE)


_AHEAD, _MOST_AHEAD_S = 0.35, 30.0
"""Share of a window before its end at which the next retraining is estimated, and its maximum in
seconds."""
_MARGIN_S, _MARGIN = 1.0, 0.25
"""An estimate on an instance ends this many seconds before the window does, or this share of the
remaining time if that is less. The next plan may destroy the instance, and CUDA takes a moment to
release it."""
_SETTLED_S = 1.0
"""Seconds without another label after which those for the first window are complete."""


@dataclass(frozen=True)
class Estimate:
    """Estimate the next retraining of a tenant, from the labels up to this window."""

    tenant: str
    window: int
    most_samples: int
    instance: Holding | None = None
    """An instance that serves the tenant; None: the host."""
    limit_s: float | None = None
    """Seconds after which it must have ended, because the instance may be destroyed."""


class LabelSource(Protocol):
    """The labels of all tenants."""

    def kept(self, tenant: str, first: int, before: int) -> int:
        """Number of stored labels of the windows from `first` to `before` - 1."""
        ...

    def accuracy(self, tenant: str, window: int, fewest: int, /) -> float | None:
        """Accuracy by the labels of a window; None if there are less than `fewest`."""
        ...


class RetrainingPlans:
    """Plans and estimates retrainings, once per window and tenant."""

    def __init__(
        self,
        tenants: Mapping[str, TenantState],
        clock: WindowClock,
        labels: LabelSource,
        controller: Controller,
        *,
        on_instances: bool,
    ) -> None:
        """`on_instances`: estimates use the tenants' instances rather than the host."""
        self._tenants, self._clock, self._labels = tenants, clock, labels
        self._controller, self._on_instances = controller, on_instances
        self._estimated: dict[str, int] = {}
        """The window in which the last estimate of each tenant was due."""
        self._arrived: dict[str, tuple[int, float]] = {}
        """Labels of each tenant before the first window, and since when there were that many."""

    def begin_window(self) -> None:
        """Plan what every tenant can learn in the window that begins."""
        for tenant in self._tenants.values():
            # a few late labels, perhaps of an old version, say nothing about the model
            window = self._clock.number - 1
            self.begin(tenant, self._labels.accuracy(tenant.name, window, FEWEST_LABELS))

    def end_window(self) -> None:
        """End a window. While paused no retraining could run, so none counts as missed."""
        if not self._controller.executor.paused:
            for tenant in self._tenants.values():
                tenant.end_window()

    def begin(self, tenant: TenantState, accuracy: float | None) -> None:
        """Plan what one tenant can learn in this window. `accuracy`: by its last labels."""
        number = self._clock.number
        # a version that was made on another machine may name a later window
        tenant.since = min(tenant.since, number)
        labelled = self._labels.kept(tenant.name, tenant.since, number)
        tenant.begin(number, labelled, accuracy, self.room())

    def due(self) -> Iterator[Estimate]:
        """Yield the estimates that are due, once per window and tenant. A late estimate is better
        than none.

        If a retraining of the tenant runs, its estimate waits for the new model for up to half of
        the time: one with the old model does not say how accurate the new one is on the next data.
        """
        if not self._controller.estimates:
            return
        clock = self._clock
        left_s = clock.window_s - clock.into_s
        ahead_s = min(_MOST_AHEAD_S, _AHEAD * clock.window_s)
        if left_s > ahead_s:
            return
        for name, tenant in self._tenants.items():
            # estimates are asked for once per slot
            waits = tenant.is_retraining and left_s - clock.slot_s >= 0.5 * ahead_s
            if waits or self._estimated.get(name) == clock.number:
                continue
            self._estimated[name] = clock.number
            labelled = self._labels.kept(name, tenant.since, clock.number + 1)
            if not tenant.planned or labelled < FEWEST_LABELS:
                continue
            most, instance = tenant.most_samples(self.room()), self._instance(name)
            limit_s = left_s - min(_MARGIN_S, _MARGIN * left_s) if instance else None
            yield Estimate(name, clock.number, most, instance, limit_s)

    def due_before_first_window(self) -> Iterator[Estimate]:
        """Yield the estimates for the first window, once the samples for it have arrived."""
        clock, now_s = self._clock, self._clock.now_s()
        for name, tenant in self._tenants.items():
            labelled = self._labels.kept(name, tenant.since, clock.number)
            before, since_s = self._arrived.get(name, (0, now_s))
            if labelled != before:
                since_s = now_s
            self._arrived[name] = labelled, since_s
            if labelled < FEWEST_LABELS or now_s - since_s < _SETTLED_S:
                continue
            self._arrived[name] = labelled, math.inf  # once, unless more arrive
            if self._controller.estimates and tenant.planned:
                most = tenant.most_samples(self.room())
                yield Estimate(name, clock.number - 1, most, self._instance(name))

    def room(self) -> TrainingRoom:
        """Limits of a retraining of the tenants that are planned."""
        planned = [each for each in self._tenants.values() if each.planned]
        return TrainingRoom.of(self._controller.planning.board, planned, self._clock.window_s)

    def _instance(self, tenant: str) -> Holding | None:
        """An instance that serves the tenant. An estimate beside it takes seconds."""
        if not self._on_instances:
            return None
        task, units = Task(tenant, Kind.INFERENCE), self._controller.executor.units
        return next((each.bare for each in units if each.does(task)), None)
