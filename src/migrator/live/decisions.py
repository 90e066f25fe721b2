"""Every decision of a daemon on its way to the hands: told in one log line with its reason, timed
and counted. It decides nothing.
"""

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
from migrator.core.share import Holding, bare
from migrator.live.tallies import DONE, FAILED, HIDDEN, STOPPED, TAKEN, VISIBLE, Tallies
from migrator.live.window_clock import WindowClock
from migrator.policies.policy import Decision

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
"""Kinds of reasons to plan; those in the middle are the executor's."""
_FIRST = "the board is split evenly until the first plan"
_LAST = "the daemon stops and frees what it made"


class Decisions:
    """What is done, and because of what."""

    def __init__(self, tallies: Tallies, clock: WindowClock, planned_by: str) -> None:
        """`planned_by`: the policy's name."""
        self._tallies, self._clock, self._planned_by = tallies, clock, planned_by
        self._because, self._asked_because = _FIRST, ""
        self._kinds: dict[str, str] = {}
        self._begun_s: dict[tuple[str, Holding], float] = {}
        self._tenants: dict[Holding, str] = {}
        self._troubles: dict[Holding, str] = {}

    def asked(self, reason: str) -> None:
        """A plan was asked for."""
        self._asked_because = reason
        self._tallies.asked[self._kind(reason)] += 1
        self._kinds.clear()

    def taken(self, decision: Decision, seconds: float) -> None:
        """A plan is followed from now on."""
        plan, tallies = decision.plan, self._tallies
        tallies.plans[TAKEN] += 1
        tallies.plan_s.add(seconds)
        tallies.taken_s = self._clock.now_s()
        tallies.gap = plan.gap if plan else None
        tallies.expected = plan.goodput if plan else None
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
        """From now on everything is freed."""
        self._because = _LAST

    def told(self, instruction: Instruction) -> None:
        """The hands are told to do it."""
        if isinstance(instruction, Replan):
            self._kinds[instruction.reason] = instruction.about
            return  # it is told where the policy is asked
        step, holding = _STEPS[type(instruction)], bare(instruction.instance)
        self._begun_s[step, holding] = self._clock.now_s()
        if step == "stop" and self._begun_s.pop(("warm", holding), None) is not None:
            self._tallies.steps["warm", STOPPED] += 1
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
        """What became of it."""
        holding, why = bare(event.instance), getattr(event, "why", "")
        if isinstance(event, WorkerLost):
            self._tallies.losses[self._tenants.get(holding, "")] += 1
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
        """What a new worker took in its parts, and how much of it the plan had to wait for."""
        for part in ("load", "context", "copy", "first"):
            if (seconds := parts_s.get(f"{part}_s")) is not None:
                self._tallies.parts[part].add(seconds)
        took_s = parts_s["create_s"] + parts_s["warm_s"]
        spent = self._tallies.overhead_s
        for seen, seconds in ((HIDDEN, max(0.0, took_s - late_s)), (VISIBLE, late_s)):
            spent[tenant, seen] = spent.get((tenant, seen), 0.0) + seconds

    def swapped(self, seconds: float | None) -> None:
        """A worker serves other weights; None: it could not and keeps those it had."""
        self._tallies.steps["swap", FAILED if seconds is None else DONE] += 1
        if seconds is not None:
            self._tallies.parts["swap"].add(seconds)

    def _trained(self, event: TrainingEnded, holding: Holding) -> None:
        began_s = self._begun_s.pop(("train", holding), None)
        self._tallies.steps["train", DONE if event.ok else FAILED] += 1
        if not event.ok:
            self._tallies.retrainings[event.tenant, FAILED] += 1
        elif began_s is not None:
            self._tallies.training_s.add(self._clock.now_s() - began_s)

    def _ended(self, step: str, outcome: str, holding: Holding) -> None:
        began_s = self._begun_s.pop((step, holding), None)
        if began_s is None:
            return  # nobody asked for it: a worker that served was lost, an instance removed
        self._tallies.steps[step, outcome] += 1
        if outcome == DONE:
            self._tallies.parts[step].add(self._clock.now_s() - began_s)

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
