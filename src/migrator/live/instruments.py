"""Prometheus instruments of a daemon: what happens is counted on them where it happens.

`metrics` adds the values that are read from the daemon's state on request.
"""

from __future__ import annotations

from itertools import product

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from migrator.core.action import ActionKind, Outcome
from migrator.core.not_retrained import Reason

_PART_BOUNDS_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PLAN_BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0)
_TRAINING_BOUNDS_S = (1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 100.0, 150.0, 200.0, 400.0, 800.0)
_STEPS = ("create", "prepare", "warm", "drain", "stop", "destroy", "swap")
_WARM_PARTS = ("load", "context", "copy", "first")
_FILES = ("journal.db", "labels.db", "records.db")
DONE, FAILED, STOPPED = "done", "failed", "stopped"
HIDDEN, VISIBLE = "hidden", "visible"
ADOPTED, REFUSED = "adopted", "refused"
STORED, REPEATED, CONFLICTING = "stored", "repeated", "conflicting"
disable_created_metrics()  # type: ignore[no-untyped-call]


class Instruments:
    """One daemon's instruments. Series start with 0, so that rates can be computed."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"migrator_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
            full = f"migrator_{name}"
            return Histogram(full, text, labels, buckets=bounds, registry=registry)

        text = "Retrainings by outcome: adopted ones serve, refused ones were not better."
        self.retrainings = counter("retrainings", text, "tenant", "outcome")
        text = "Windows that ended without a retraining of the tenant, by reason."
        self.not_retrained = counter("windows_not_retrained", text, "tenant", "reason")
        text = "Labels that clients sent: stored, repeated, conflicting or failed (not written)."
        self.labels = counter("labels", text, "tenant", "outcome")
        text = "Workers that died, hung and were killed, or could not start; each is replaced."
        self.losses = counter("worker_losses", text, "tenant")
        text = (
            "Seconds until new instances served: hidden ones passed before the plan needed the "
            "instance, visible ones after."
        )
        self.overhead_s = counter("overhead_spent_seconds", text, "tenant", "seen")
        text = "Requests for plans by reason: all but window and regular follow a deviation."
        self.asked = counter("plans_asked", text, "reason")
        text = "From the request of a plan to the plan."
        self.plan_s = histogram("planner_seconds", text, _PLAN_BOUNDS_S)
        text = "Steps of reconfigurations by outcome; stopped ones were no longer needed."
        self.steps = counter("reconfigurations", text, "kind", "outcome")
        text = (
            "Durations of the parts of a reconfiguration; warm consists of load (read the "
            "weights), context (open CUDA), copy (to the GPU) and first (answers)."
        )
        self.parts = histogram("reconfiguration_seconds", text, _PART_BOUNDS_S, "part")
        text = "Durations of completed retrainings."
        self.training_s = histogram("retraining_seconds", text, _TRAINING_BOUNDS_S)
        text = "Times that records could not be written."
        self.unwritten = counter("record_failures", text)
        text = "Files that were damaged when the daemon started."
        self.damaged = counter("damaged_files", text, "file")
        text = "Actions of operators on the running system, by outcome: done, refused or failed."
        self.actions = counter("actions", text, "kind", "outcome")
        self._create_series()

    def add_tenant(self, name: str) -> None:
        for outcome in (ADOPTED, REFUSED, FAILED):
            self.retrainings.labels(name, outcome)
        for reason in Reason:
            self.not_retrained.labels(name, reason.value)
        for outcome in (STORED, REPEATED, CONFLICTING, FAILED):
            self.labels.labels(name, outcome)
        for seen in (HIDDEN, VISIBLE):
            self.overhead_s.labels(name, seen)
        self.losses.labels(name)

    def _create_series(self) -> None:
        for step, outcome in (*product((*_STEPS, "train"), (DONE, FAILED)), ("warm", STOPPED)):
            self.steps.labels(step, outcome)
        for part in (*_STEPS, *_WARM_PARTS):
            self.parts.labels(part)
        for file in _FILES:
            self.damaged.labels(file)
        for kind, result in product(ActionKind, Outcome):
            self.actions.labels(kind, result)
