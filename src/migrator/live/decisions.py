"""The log and the counters of what a daemon does, each instruction with its reason."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from migrator.control import events
from migrator.control.events import Event, Instruction
from migrator.control.observation import Decision
from migrator.control.window_clock import WindowClock
from migrator.core.problem import Holding, bare
from migrator.live.instruments import DONE, FAILED, HIDDEN, STOPPED, VISIBLE, Instruments

if TYPE_CHECKING:
    from migrator.serving.spans import Tracing

_STEP_OF: Mapping[type[Instruction], str] = {
    events.Create: "create",
    events.Prepare: "prepare",
    events.Keep: "keep",
    events.Discard: "discard",
    events.Warm: "warm",
    events.Drain: "drain",
    events.StopWorker: "stop",
    events.StopTraining: "stop",
    events.Destroy: "destroy",
    events.Train: "train",
}
_ENDS: Mapping[type[Event], tuple[str, str]] = {
    events.Created: ("create", DONE),
    events.CreateFailed: ("create", FAILED),
    events.Ready: ("warm", DONE),
    events.WorkerLost: ("warm", FAILED),
    events.Drained: ("drain", DONE),
    events.Stopped: ("stop", DONE),
    events.Destroyed: ("destroy", DONE),
    events.DestroyFailed: ("destroy", FAILED),
}
_KINDS = {
    "the window begins": "window",
    "it is time": "regular",
    "a retraining ended": "retraining_ended",
    "asked for by an operator": "operator",
}
_OTHER = "other"
"""Of reasons to plan: a deviation from the plan, or a change of the tenants."""

_log = logging.getLogger(__name__)


class Decisions:
    """The instructions of a daemon and their reasons."""

    def __init__(
        self,
        instruments: Instruments,
        clock: WindowClock,
        planned_by: str,
        tracing: Tracing | None = None,
    ) -> None:
        """`planned_by`: the policy's name."""
        self._tracing = tracing
        self._instruments, self._clock, self._planned_by = instruments, clock, planned_by
        self._because = "the board is split evenly until the first plan"
        self._requested_because = ""
        self._begun_s: dict[tuple[str, Holding], float] = {}
        self._preparing_s: dict[tuple[Holding, str], float] = {}
        """By place and tenant of a standby."""
        self._tenants: dict[Holding, str] = {}
        self._failures: dict[Holding, str] = {}
        for kind in (*_KINDS.values(), _OTHER):
            instruments.asked.labels(kind)

    def plan_requested(self, reason: str) -> None:
        """Count a request for a plan."""
        self._requested_because = reason
        self._instruments.asked.labels(_KINDS.get(reason, _OTHER)).inc()

    def plan_followed(self, decision: Decision, seconds: float, *, changed: bool = True) -> None:
        """Count and log a plan. One that is the last one again (not `changed`) is a detail."""
        plan, reason = decision.plan, self._requested_because
        goodput = decision.predicted_goodput
        self._instruments.plan_s.observe(seconds)
        if changed:
            self._because = (
                f"the plan taken in slot {self._clock.slot} of window {self._clock.number}, asked "
                f"for because {reason}"
            )
        fields = self._fields("plan-taken") | {"seconds": round(seconds, 3), "because": reason}
        text = ""
        if plan is not None:
            text = f", expects goodput {goodput:.0f} with a gap of {plan.gap:.2%}"
            fields |= {"goodput": goodput, "gap": plan.gap, "solver": plan.solver}
        if self._tracing is not None:
            self._tracing.plan(seconds, fields)
        _log.log(
            logging.INFO if changed else logging.DEBUG,
            "plan for %d slots by %s after %.2f s%s; because %s",
            len(decision.slots),
            self._planned_by,
            seconds,
            text,
            reason,
            extra=fields,
        )

    def stopping(self) -> None:
        self._because = "the daemon stops and frees what it made"

    def instructed(self, instruction: Instruction) -> None:
        if isinstance(instruction, events.Replan):
            return  # it is logged where the policy is asked
        step, holding = _STEP_OF[type(instruction)], bare(instruction.instance)
        if isinstance(instruction, events.Prepare | events.Keep | events.Discard):
            self._instructed_standby(step, holding, instruction)
            return
        self._begun_s[step, holding] = self._clock.now_s()
        if step == "stop" and self._begun_s.pop(("warm", holding), None) is not None:
            self._instruments.steps.labels("warm", STOPPED).inc()
        tenant = getattr(instruction, "tenant", None) or self._tenants.get(holding, "")
        if isinstance(instruction, events.Warm):
            self._tenants[holding] = tenant
        because = self._failures.pop(holding, "") or self._because
        fields = {"instance": str(holding), "tenant": tenant, "because": because}
        _log.log(
            logging.DEBUG if step == "stop" else logging.INFO,  # it only follows from a drain
            "%s %s%s: %s",
            step,
            holding,
            f" for {tenant}" if tenant else "",
            because,
            extra=self._fields(step) | fields,
        )

    def _instructed_standby(
        self,
        step: str,
        holding: Holding,
        instruction: events.Prepare | events.Keep | events.Discard,
    ) -> None:
        standby = holding, instruction.tenant
        if isinstance(instruction, events.Prepare):
            self._preparing_s[standby] = self._clock.now_s()
        elif self._preparing_s.pop(standby, None) is not None:
            self._instruments.steps.labels("prepare", STOPPED).inc()
        _log.debug("%s %s of %s: %s", step, *standby, self._because, extra=self._fields(step))

    def _prepared(self, event: events.Prepared, holding: Holding) -> None:
        began_s = self._preparing_s.pop((holding, event.tenant), None)
        if began_s is None:
            return  # a standby was lost that had started before
        self._instruments.steps.labels("prepare", FAILED if event.why else DONE).inc()
        if not event.why:
            self._instruments.parts.labels("prepare").observe(self._clock.now_s() - began_s)

    def ended(self, event: Event) -> None:
        holding = bare(event.instance)
        if isinstance(event, events.Prepared):
            self._prepared(event, holding)
            return
        if isinstance(event, events.TrainingEnded):
            self._training_ended(event, holding)
            return
        if isinstance(event, events.WorkerLost) and holding in self._tenants:
            self._instruments.losses.labels(self._tenants[holding]).inc()
        step, outcome = _ENDS[type(event)]
        began_s = self._begun_s.pop((step, holding), None)
        if began_s is not None:  # None: a serving worker was lost, or an instance removed
            self._instruments.steps.labels(step, outcome).inc()
            if outcome == DONE:
                self._instruments.parts.labels(step).observe(self._clock.now_s() - began_s)
        if why := getattr(event, "why", ""):
            self._failures[holding] = f"after {type(event).__name__}: {why}"
        if isinstance(event, events.Destroyed | events.Stopped):
            self._tenants.pop(holding, None)
        if isinstance(event, events.Destroyed):
            self._failures.pop(holding, None)

    def measured(self, tenant: str, parts_s: Mapping[str, float], late_s: float) -> None:
        """Record the parts of the time a new worker took, and how long the plan waited for it."""
        for part in ("load", "context", "copy", "first"):
            if (seconds := parts_s.get(f"{part}_s")) is not None:
                self._instruments.parts.labels(part).observe(seconds)
        took_s = parts_s["create_s"] + parts_s["warm_s"]
        for seen, seconds in ((HIDDEN, max(0.0, took_s - late_s)), (VISIBLE, late_s)):
            self._instruments.overhead_s.labels(tenant, seen).inc(seconds)

    def swapped(self, seconds: float | None) -> None:
        """Record that a worker serves other weights; None: it failed and keeps the old ones."""
        self._instruments.steps.labels("swap", FAILED if seconds is None else DONE).inc()
        if seconds is not None:
            self._instruments.parts.labels("swap").observe(seconds)

    def _training_ended(self, event: events.TrainingEnded, holding: Holding) -> None:
        began_s = self._begun_s.pop(("train", holding), None)
        self._instruments.steps.labels("train", DONE if event.ok else FAILED).inc()
        if not event.ok:
            self._instruments.retrainings.labels(event.tenant, FAILED).inc()
        elif began_s is not None:
            self._instruments.training_s.observe(self._clock.now_s() - began_s)

    def _fields(self, decision: str) -> dict[str, object]:
        return {
            "decision": decision,
            "window": self._clock.number,
            "slot": self._clock.slot,
            "planned_by": self._planned_by,
        }
