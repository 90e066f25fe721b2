"""Prometheus counters and histograms of a daemon, incremented where something happens.

`metrics` adds the values that are read from the daemon's state on request.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from migrator.core.action import ActionKind, Outcome

_PART_BOUNDS_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PLAN_BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0)
_TRAINING_BOUNDS_S = (1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 100.0, 150.0, 200.0, 400.0, 800.0)

_STEPS = ("create", "warm", "drain", "stop", "destroy", "train", "swap")
_PARTS = (
    "create",
    "load",
    "context",
    "copy",
    "first",
    "warm",
    "drain",
    "stop",
    "destroy",
    "swap",
)
_FILES = ("journal.db", "labels.db", "records.db")
DONE, FAILED, STOPPED = "done", "failed", "stopped"
HIDDEN, VISIBLE = "hidden", "visible"
ADOPTED, REFUSED = "adopted", "refused"
STORED, REPEATED = "stored", "repeated"

disable_created_metrics()  # type: ignore[no-untyped-call]


class Instruments:
    """One daemon's instruments. Series start with 0, so that rates can be computed."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, words: str, *labels: str) -> Counter:
            return Counter(f"migrator_{name}", words, labels, registry=registry)

        def histogram(name: str, words: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
            full = f"migrator_{name}"
            return Histogram(full, words, labels, buckets=bounds, registry=registry)

        self.retrainings = counter(
            "retrainings",
            "Retrainings by outcome: adopted ones serve, refused ones were not better, failed ones "
            "are tried again.",
            "tenant",
            "outcome",
        )
        self.labels = counter(
            "labels",
            "Labels that clients sent: stored ones are on disk, repeated ones were known, failed "
            "ones could not be written.",
            "tenant",
            "outcome",
        )
        self.losses = counter(
            "worker_losses",
            "Workers that died, hung and were killed, or could not start; each is replaced.",
            "tenant",
        )
        self.overhead_s = counter(
            "overhead_spent_seconds",
            "Seconds until new instances served: hidden ones passed before the plan needed the "
            "instance, visible ones after.",
            "tenant",
            "seen",
        )
        self.asked = counter(
            "plans_asked",
            "Plans that were requested, by reason: window and regular are routine, all others "
            "follow a deviation from the plan.",
            "reason",
        )
        self.plan_s = histogram(
            "planner_seconds",
            "From the request of a plan to the plan.",
            _PLAN_BOUNDS_S,
        )
        self.steps = counter(
            "reconfigurations",
            "Steps of reconfigurations by outcome; a warm step that a later plan made needless "
            "was stopped.",
            "kind",
            "outcome",
        )
        self.parts = histogram(
            "reconfiguration_seconds",
            "Durations of the parts of a reconfiguration; warm consists of load (read the "
            "weights), context (open CUDA), copy (to the GPU) and first (answers).",
            _PART_BOUNDS_S,
            "part",
        )
        self.training_s = histogram(
            "retraining_seconds", "Durations of completed retrainings.", _TRAINING_BOUNDS_S
        )
        self.unwritten = counter(
            "record_failures",
            "Times that records could not be written; the service goes on, reports have a gap.",
        )
        self.damaged = counter(
            "damaged_files",
            "Files that could not be read when the daemon started: kept aside and created anew.",
            "file",
        )
        self.actions = counter(
            "actions",
            "Actions of operators on the running system, by outcome: done, refused or failed.",
            "kind",
            "outcome",
        )
        self._set_to_zero()

    def add_tenant(self, name: str) -> None:
        """Create the series of a tenant."""
        for outcome in (ADOPTED, REFUSED, FAILED):
            self.retrainings.labels(name, outcome)
        for outcome in (STORED, REPEATED, FAILED):
            self.labels.labels(name, outcome)
        for seen in (HIDDEN, VISIBLE):
            self.overhead_s.labels(name, seen)
        self.losses.labels(name)

    def _set_to_zero(self) -> None:
        for step in _STEPS:
            self.steps.labels(step, DONE)
            self.steps.labels(step, FAILED)
        self.steps.labels("warm", STOPPED)
        for part in _PARTS:
            self.parts.labels(part)
        for file in _FILES:
            self.damaged.labels(file)
        for kind in ActionKind:
            for outcome in Outcome:
                self.actions.labels(kind, outcome)
