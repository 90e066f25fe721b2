"""The controller of one GPU: takes events, returns instructions, and does no I/O.

It combines the planning loop (when the policy is asked and its decision is followed), the executor
(which instances to create, warm, drain, train and destroy) and what is measured at run time: how
long new instances take, and which retraining follows one that outlasted its window.
`retraining_plans.py` plans the retrainings of every window. The daemon runs it in real time, the
simulator in virtual time. They differ only in the clock and in what carries out the instructions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from itertools import chain
from typing import Protocol

from migrator.control.decider import Decider
from migrator.control.events import Event, Instruction, Replan, TrainingEnded
from migrator.control.executor import Executor
from migrator.control.forecasting_policy import ForecastingPolicy
from migrator.control.memory import GpuMemory, ProcessMemory
from migrator.control.planning_loop import PlanningLoop
from migrator.control.retraining import Phase
from migrator.control.tenant_state import TenantState, TrainingRoom
from migrator.control.why_not_retrained import why_not_planned
from migrator.control.window_clock import WindowClock
from migrator.core.catalogue import Board
from migrator.core.not_retrained import NotRetrained, Reason
from migrator.core.problem import Holding, Kind
from migrator.core.scenario import DEFAULT_LIMITS, PeerLimits, ResizedTraining
from migrator.policies.fixed_shares import EqualMps, equal_allocation
from migrator.policies.planning import LONGEST_WINDOWS
from migrator.policies.policy import Decision, Observation, Sharing, Sight

_SMOOTHING = 0.5
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
        executor: Executor,
        limits: PeerLimits = DEFAULT_LIMITS,
    ) -> None:
        """`overheads_s`: per tenant, seconds until a new instance serves; updated by measurements.

        `plan_retraining`: sets the next retraining of a tenant whose last one outlasted its window.
        `executor`: `new_executor` makes one. `limits`: which MPS processes there may be.
        """
        self._policy, self._clock, self._tenants = policy, clock, tenants
        self._overheads_s, self._observer = overheads_s, observer
        self._plan_retraining, self.executor = plan_retraining, executor
        self.planning = PlanningLoop(
            policy, board, clock, tenants, decider, observer.plan_failed, limits
        )
        self._limits = limits
        self._renewed: set[str] = set()
        """Tenants with a new retraining that the policy has not been asked about yet."""
        self.sharing = policy.sharing
        self._plans = policy.sight is not Sight.NOTHING
        self.estimates = policy.estimates
        """Whether the policy plans with estimates of retrainings."""
        self.estimates_always = policy.estimates_always
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
        planned = [tenant for tenant in self._tenants.values() if tenant.planned]
        sms = TrainingRoom.of(self.planning.board, planned, self._clock.window_s).sms
        for tenant in self._tenants.values():
            tenant.value_retraining(sms, self._clock.window_s)
            tenant.explain(None)
        self.planning.begin_window()
        return self.plan()

    def plan(self) -> list[Instruction]:
        """Follow an answer of the policy, and ask it if a question is due."""
        answer = self.planning.answer()
        instructions = [] if answer is None else self._follow(*answer)
        reason = self.planning.ask(self.executor.iter_units(), self._overheads_s)
        if reason is not None:
            # not earlier: the questions before did not include these retrainings
            while self._renewed:
                self.executor.renew(self._renewed.pop())
            self._observer.plan_requested(reason)
        return instructions

    def tick(self) -> list[Instruction]:
        """The instructions due at this time."""
        return self._request_replans(self.executor.tick(self._clock.now_s()))

    def on(self, *events: Event) -> list[Instruction]:
        """Process events of one moment and return the instructions that follow."""
        for event in events:
            if isinstance(event, TrainingEnded):
                self._on_training_ended(event)
        return self._request_replans(self.executor.on(self._clock.now_s(), *events))

    def _on_training_ended(self, event: TrainingEnded) -> None:
        if not event.ok and self.executor.is_stopping(event.instance):
            return  # on request; it continues on another share
        self.planning.completed()
        tenant = self._tenants.get(event.tenant)  # None: removed meanwhile
        if tenant is not None and not event.ok:
            tenant.explain(NotRetrained(Reason.FAILED, f"failed: {event.why}"))
        if tenant is not None and event.ok:
            late = tenant.outlasted(self._clock.number)
            tenant.value_after.complete(1.0 if late else self._clock.slot / self._clock.slots)
        if tenant is not None and tenant.outlasted(self._clock.number):
            self._plan_retraining(tenant)
            self._renewed.add(tenant.name)
        if tenant is not None and tenant.drained:
            self.planning.changed(f"the retraining of {event.tenant}, which is drained, ended")

    def request_retraining(self, tenant: str, reason: str) -> None:
        """Ask the policy at once about a retraining of a tenant that has just been planned."""
        self._renewed.add(tenant)
        self.planning.changed(reason)

    def end_estimate(self, tenant: str) -> None:
        """An estimate has ended, or did not begin: its memory is free."""
        self.executor.memory.end_estimate(tenant)

    def measured(self, tenant: str, instance: Holding, took_s: float) -> float:
        """Record that a new instance of a tenant serves, `took_s` after its creation began.

        Returns the seconds that the plan waited for it. Call it before `on` gets the event.
        """
        late_s = self.executor.late_s(self._clock.now_s(), instance)
        # waiting for slices counts as well if the instance could not be prepared ahead
        counted_s = min(max(late_s, took_s), _LONGEST * self._clock.window_s)
        self._overheads_s[tenant] += _SMOOTHING * (counted_s - self._overheads_s[tenant])
        self._tenants[tenant].measure_overhead(self._overheads_s[tenant])
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
        for name, configuration in decision.configurations.items():
            if name in self._tenants:  # else removed meanwhile
                self._tenants[name].choose(configuration)
        self._note_left_out(decision)
        self._explain(decision)
        self._observer.plan_followed(decision, seconds)
        return self._request_replans(instructions)

    def _note_left_out(self, decision: Decision) -> None:
        """Note which retrainings the plan leaves out although they would fit."""
        if decision.problem is None or decision.plan is None:
            return
        retrained = {retraining.tenant for retraining in decision.plan.retrainings}
        windows = LONGEST_WINDOWS if decision.begin == 0 else 1
        for tenant in decision.problem.tenants:
            state = self._tenants.get(tenant.name)  # None: removed meanwhile
            if state is not None:
                ways = (choice.slots.values() for choice in tenant.configurations)
                fits = min(chain(*ways), default=math.inf) <= windows * decision.problem.slots
                state.leave_out(planned=tenant.name in retrained, fits=fits)

    def _explain(self, decision: Decision) -> None:
        """Note why waiting retrainings do not run. A failure explains the rest of its window."""
        board, slot_s, slot = self.planning.board, self._clock.slot_s, self._clock.slot
        for tenant in self._tenants.values():
            job, explained = tenant.retraining, tenant.not_planned
            if job is None or job.phase is not Phase.WAITING or not tenant.planned:
                continue
            if explained is None or explained.reason is not Reason.FAILED:
                why = why_not_planned(tenant, decision, board, slot_s, slot, plans=self._plans)
                tenant.explain(why)

    def _request_replans(self, instructions: list[Instruction]) -> list[Instruction]:
        for instruction in instructions:
            if isinstance(instruction, Replan):
                self.planning.request_plan(instruction.reason)
        return instructions


def new_executor(
    board: Board,
    tenants: Mapping[str, TenantState],
    overheads_s: Mapping[str, float],
    limits: PeerLimits,
) -> Executor:
    """An executor for a GPU that serves the tenants of the moment."""

    def by_tenant() -> Mapping[str, ProcessMemory]:
        return {name: tenant.memory for name, tenant in tenants.items()}

    resizes = limits.resized_training is not ResizedTraining.STAYS
    memory = GpuMemory.of(board, by_tenant)
    return Executor(board, overheads_s=overheads_s, resizes=resizes, memory=memory)


def even_split(
    sharing: Sharing,
    board: Board,
    tenants: Iterable[TenantState],
    clock: WindowClock,
    limits: PeerLimits = DEFAULT_LIMITS,
) -> tuple[Holding, ...]:
    """Instances or shares of equal size for the inference of every tenant."""
    views = tuple(tenant.view() for tenant in tenants if tenant.planned)
    if not views:
        return ()
    nothing = Observation(board, clock.slot_s, clock.slots, 0, views, (), limits=limits)
    if sharing is Sharing.MIG:
        holdings: tuple[Holding, ...] = equal_allocation(nothing)
    else:
        holdings = EqualMps().decide(nothing).slots[0]
    return tuple(
        holding for holding in holdings if holding.task and holding.task.kind is Kind.INFERENCE
    )
