"""Logs, times and counts every instruction with its reason. It decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping

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
    Replan,
    Stopped,
    StopWorker,
    Train,
    TrainingEnded,
    Warm,
    WorkerLost,
)
from migrator.control.observation import Decision
from migrator.control.window_clock import WindowClock
from migrator.core.share import Holding, bare
from migrator.live.instruments import DONE, FAILED, HIDDEN, STOPPED, VISIBLE, Instruments

_log = logging.getLogger(__name__)

_STEPS: Mapping[type[Instruction], str] = {
    Create: "create",
    Warm: "warm",
    Drain: "drain",
    StopWorker: "stop",
    Destroy: "destroy",
    Train: "train",
}
_ENDS: Mapping[type[Event], tuple[str, str]] = {
    Created: ("create", DONE),
    CreateFailed: ("create", FAILED),
    Ready: ("warm", DONE),
    WorkerLost: ("warm", FAILED),
    Drained: ("drain", DONE),
    Stopped: ("stop", DONE),
    Destroyed: ("destroy", DONE),
    DestroyFailed: ("destroy", FAILED),
}
_KINDS = {
    "the window begins": "window",
    "it is time": "regular",
    "a retraining ended": "retraining_ended",
    "asked for by an operator": "operator",
}
REASONS = (
    *_KINDS.values(),
    *("create", "destroy", "lost", "trained", "training", "late"),
    *("drained", "other"),
)
"""Kinds of reasons to plan; those in the middle come from the executor."""
_FIRST = "the board is split evenly until the first plan"
_LAST = "the daemon stops and frees what it made"


class Decisions:
    """The instructions of a daemon and their reasons."""

    def __init__(self, instruments: Instruments, clock: WindowClock, planned_by: str) -> None:
        """`planned_by`: the policy's name."""
        self._instruments, self._clock, self._planned_by = instruments, clock, planned_by
        self._because, self._asked_because = _FIRST, ""
        self._kinds: dict[str, str] = {}
        self._begun_s: dict[tuple[str, Holding], float] = {}
        self._tenants: dict[Holding, str] = {}
        self._troubles: dict[Holding, str] = {}
        for each in REASONS:
            instruments.asked.labels(each)

    def asked(self, reason: str) -> None:
        """Count a request for a plan."""
        self._asked_because = reason
        self._instruments.asked.labels(self._kind(reason)).inc()
        self._kinds.clear()

    def taken(self, decision: Decision, seconds: float) -> None:
        """Record that a plan takes effect."""
        plan = decision.plan
        self._instruments.plan_s.observe(seconds)
        self._because = (
            f"the plan taken in slot {self._clock.slot} of window {self._clock.number}, asked for "
            f"because {self._asked_because}"
        )
        fields: dict[str, object] = {"seconds": round(seconds, 3), "because": self._asked_because}
        words = ""
        if plan is not None:
            words = f", expects goodput {plan.goodput:.0f} with a gap of {plan.gap:.2%}"
            fields |= {"goodput": plan.goodput, "gap": plan.gap, "solver": plan.solver}
        _log.info(
            "plan for %d slots by %s after %.2f s%s; because %s",
            len(decision.slots),
            self._planned_by,
            seconds,
            words,
            self._asked_because,
            extra=self._told("plan-taken") | fields,
        )

    def leaving(self) -> None:
        """Record that everything is being freed."""
        self._because = _LAST

    def told(self, instruction: Instruction) -> None:
        """Record an instruction given to the actuator."""
        if isinstance(instruction, Replan):
            self._kinds[instruction.reason] = instruction.about
            return  # it is logged where the policy is asked
        step, holding = _STEPS[type(instruction)], bare(instruction.instance)
        self._begun_s[step, holding] = self._clock.now_s()
        if step == "stop" and self._begun_s.pop(("warm", holding), None) is not None:
            self._instruments.steps.labels("warm", STOPPED).inc()
        tenant = getattr(instruction, "tenant", None) or self._tenants.get(holding, "")
        if isinstance(instruction, Warm):
            self._tenants[holding] = tenant
        because = self._troubles.pop(holding, "") or self._because
        _log.log(
            logging.DEBUG if step == "stop" else logging.INFO,  # it only follows from a drain
            "%s %s%s: %s",
            step,
            holding,
            f" for {tenant}" if tenant else "",
            because,
            extra=self._told(step)
            | {"instance": str(holding), "tenant": tenant, "because": because},
        )

    def heard(self, event: Event) -> None:
        """Record the outcome of an instruction."""
        holding, why = bare(event.instance), getattr(event, "why", "")
        if isinstance(event, WorkerLost) and holding in self._tenants:
            self._instruments.losses.labels(self._tenants[holding]).inc()
        if isinstance(event, TrainingEnded):
            self._trained(event, holding)
        elif (end := _ENDS.get(type(event))) is not None:
            self._ended(*end, holding)
        if why and not isinstance(event, TrainingEnded):
            self._troubles[holding] = f"after {type(event).__name__}: {why}"
        if isinstance(event, Destroyed | Stopped):
            self._tenants.pop(holding, None)
        if isinstance(event, Destroyed):
            self._troubles.pop(holding, None)

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

    def _trained(self, event: TrainingEnded, holding: Holding) -> None:
        began_s = self._begun_s.pop(("train", holding), None)
        self._instruments.steps.labels("train", DONE if event.ok else FAILED).inc()
        if not event.ok:
            self._instruments.retrainings.labels(event.tenant, FAILED).inc()
        elif began_s is not None:
            self._instruments.training_s.observe(self._clock.now_s() - began_s)

    def _ended(self, step: str, outcome: str, holding: Holding) -> None:
        began_s = self._begun_s.pop((step, holding), None)
        if began_s is None:
            return  # it was not requested: a serving worker was lost, or an instance removed
        self._instruments.steps.labels(step, outcome).inc()
        if outcome == DONE:
            self._instruments.parts.labels(step).observe(self._clock.now_s() - began_s)

    def _kind(self, reason: str) -> str:
        kind = _KINDS.get(reason) or self._kinds.get(reason, "")
        if kind in REASONS:
            return kind
        return "drained" if "drained" in reason else "other"

    def _told(self, decision: str) -> dict[str, object]:
        return {
            "decision": decision,
            "window": self._clock.number,
            "slot": self._clock.slot,
            "planned_by": self._planned_by,
        }
