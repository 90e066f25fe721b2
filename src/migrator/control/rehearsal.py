"""Goodput that a plan reaches when the executor carries it out.

The charge of a plan knows which instances are new, not the order in which they can be created. In
most changes each tenant keeps a ready instance until its next one serves. Where no order of steps
does that, a tenant has a gap, which may be longer than the charge says: it waits while others move
in an order that serves them throughout. The executor itself, in virtual time, tells how long.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import pairwise

from migrator.control.events import (
    Create,
    Created,
    Destroy,
    Destroyed,
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
)
from migrator.control.executor import LEAD_S, OVERHEADS, Executor
from migrator.control.units import State
from migrator.core.catalogue import Board
from migrator.core.problem import Instance, Kind, Plan, Problem, Task
from migrator.planning.check import goodput_of
from migrator.policies.policy import Decision, Observation

Shares = Mapping[str, Sequence[float]]
"""Per tenant and slot, the share of the slot."""
_Slots = Sequence[tuple[Instance, ...]]
_TOLERANCE_S = 1e-9


def with_prediction(observation: Observation, decision: Decision) -> Decision:
    """The decision with the goodput that its plan reaches on the instances that exist now.

    A decision that keeps the plan of the last one keeps its prediction.
    """
    plan, problem, last = decision.plan, decision.problem, observation.decided
    if plan is None or problem is None or (last is not None and plan is last.plan):
        return decision
    slots = [
        tuple(holding for holding in holdings if isinstance(holding, Instance))
        for holdings in decision.slots
    ]
    held = [holding for holding in observation.held if isinstance(holding, Instance)]
    cold_s = dict(zip(held, observation.cold_s, strict=False))
    overheads_s = {tenant.name: tenant.overhead_s for tenant in problem.tenants}
    without = without_instance(
        observation.board, slots, observation.slot_s, overheads_s, held or None, cold_s
    )
    return replace(decision, rehearsed_goodput=goodput_of(problem, plan, without))


def predicted_goodput(problem: Problem, plan: Plan) -> float:
    """The goodput of a plan that is carried out from the problem's initial instances."""
    without = without_instance(
        problem.board,
        [
            tuple(instance for instance in slot.instances if instance.task is not None)
            for slot in plan.slots
        ],
        problem.slot_s,
        {tenant.name: tenant.overhead_s for tenant in problem.tenants},
        problem.initial.instances if problem.initial else None,
    )
    return goodput_of(problem, plan, without)


def without_instance(
    board: Board,
    slots: _Slots,
    slot_s: float,
    overheads_s: Mapping[str, float],
    held: Sequence[Instance] | None = None,
    cold_s: Mapping[Instance, float] | None = None,
) -> Shares:
    """Per tenant and slot of a decision, the share of the slot in which no instance serves it.

    `held`: what exists before slot 0; None: the layout of slot 0 is already there. `cold_s`: for
    how long some of that does not serve yet. A new worker serves after the tenant's overhead, a
    retraining takes as long as the decision has it, and other steps take no time.
    """
    rehearsal = _Rehearsal(board, slots, slot_s, overheads_s)
    rehearsal.begin(_serving(slots[0]) if held is None else held, cold_s or {})
    return rehearsal.run()


class _Rehearsal:
    """An executor in virtual time. Slot 0 begins at 0 s."""

    def __init__(
        self, board: Board, slots: _Slots, slot_s: float, overheads_s: Mapping[str, float]
    ) -> None:
        self._slots, self._slot_s = slots, slot_s
        self._overheads_s = overheads_s
        self._executor = Executor(board, overheads_s=overheads_s)
        self._now_s = 0.0
        self._queue: list[tuple[float, int, Event]] = []
        self._number = 0
        self._warm_s: Mapping[Instance, float] | None = None
        """While the first instances are set up, seconds until they serve."""
        self._lengths_s = _lengths_s(slots, slot_s)

    def begin(self, held: Iterable[Instance], cold_s: Mapping[Instance, float]) -> None:
        """Set up the instances that exist before slot 0."""
        layout = tuple(held)
        self._warm_s = {
            Instance(instance.start, instance.gpcs): cold_s.get(instance, 0.0)
            for instance in layout
        }
        self._do(self._executor.follow(0.0, [layout], self._slot_s))
        self._process_events(0.0)
        self._warm_s = None

    def run(self) -> Shares:
        """Follow the decision to its end."""
        without: dict[str, list[float]] = {
            tenant: [0.0] * len(self._slots) for tenant in self._overheads_s
        }
        self._do(self._executor.follow(0.0, list(self._slots), self._slot_s, window=0))
        changing = self._changing()
        for slot, layout in enumerate(self._slots):
            self._now_s = slot * self._slot_s
            self._process_events(self._now_s)
            if slot in changing:
                self._do(self._executor.tick(self._now_s))
            end_s = self._now_s + self._slot_s
            served = {instance.task.tenant for instance in _serving(layout) if instance.task}
            while self._now_s < end_s - _TOLERANCE_S:
                self._process_events(self._now_s)
                until_s = min(end_s, self._queue[0][0]) if self._queue else end_s
                for tenant in served.difference(self._ready()).intersection(without):
                    without[tenant][slot] += (until_s - self._now_s) / self._slot_s
                self._now_s = until_s
        return without

    def _changing(self) -> set[int]:
        """Slots in which a change begins or is prepared; in others only events matter."""
        longest_s = max(self._overheads_s.values(), default=0.0)
        ahead = math.ceil(max(LEAD_S, OVERHEADS * longest_s) / self._slot_s) + 1
        return {
            earlier
            for slot, (before, after) in enumerate(pairwise(self._slots), start=1)
            if before != after
            for earlier in range(slot - ahead, slot + 1)
        }

    def _ready(self) -> set[str]:
        units = self._executor.iter_units()
        return {unit.task.tenant for unit in units if unit.task and unit.state is State.READY}

    def _process_events(self, now_s: float) -> None:
        while self._queue and self._queue[0][0] <= now_s + _TOLERANCE_S:
            event = heappop(self._queue)[2]
            self._do(self._executor.on(now_s, event))

    def _do(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Create(instance):
                    self._push(0.0, Created(instance))
                case Destroy(instance):
                    self._push(0.0, Destroyed(instance))
                case Warm(Instance() as instance, tenant):
                    seconds = self._overheads_s.get(tenant, 0.0)
                    if self._warm_s is not None:
                        seconds = self._warm_s[instance]
                    self._push(seconds, Ready(instance, seconds))
                case Drain(instance, _):
                    self._push(0.0, Drained(instance))
                case StopWorker(instance):
                    # a worker that is stopped before it serves never does
                    self._queue = [
                        (at_s, number, event)
                        for at_s, number, event in self._queue
                        if not (isinstance(event, Ready) and event.instance == instance)
                    ]
                    heapify(self._queue)
                    self._push(0.0, Stopped(instance))
                case Train(Instance() as instance, tenant):
                    task = Task(tenant, Kind.RETRAINING)
                    place = Instance(instance.start, instance.gpcs, task)
                    self._push(
                        self._lengths_s.get(place, 0.0), TrainingEnded(instance, tenant, True)
                    )
                case _:
                    pass  # shares and standbys are not rehearsed

    def _push(self, seconds: float, event: Event) -> None:
        self._number += 1
        heappush(self._queue, (self._now_s + seconds, self._number, event))


def _serving(layout: Iterable[Instance]) -> tuple[Instance, ...]:
    return tuple(
        instance for instance in layout if instance.task and instance.task.kind is Kind.INFERENCE
    )


def _lengths_s(slots: _Slots, slot_s: float) -> dict[Instance, float]:
    """Seconds for which the decision has each retraining."""
    lengths_s: dict[Instance, float] = {}
    for layout in slots:
        for instance in layout:
            if instance.task is not None and instance.task.kind is Kind.RETRAINING:
                lengths_s[instance] = lengths_s.get(instance, 0.0) + slot_s
    return lengths_s
