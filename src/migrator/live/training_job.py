"""What a retrainer process is asked and what it answers: plain data, JSON between the processes.

`trainings` starts the process with a job, `retrainer` does it. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError, MigratorError
from migrator.learn.estimation import Estimate, Past
from migrator.learn.retraining import Settings
from migrator.serve.assignment import ModelSpec

_PATHS = ("weights", "labels", "folder", "data")


class TrainingFailedError(MigratorError):
    """It cannot be done, and the same job again would end alike; the message says why."""


class TrainingEmptyError(TrainingFailedError):
    """It has no samples to train on or to judge with: it ends until more labels are there."""


class TrainingLostError(MigratorError):
    """Its process died, hung or was ended; the same job again goes on from its checkpoints."""


class JobKind(StrEnum):
    """What a retrainer process can do."""

    RETRAIN = "retrain"
    ESTIMATE = "estimate"
    PRETRAIN = "pretrain"


@dataclass(frozen=True)
class TrainingJob:
    """One retraining, estimation or pre-training of a tenant's model, on one instance."""

    tenant: str
    model: ModelSpec
    folder: Path
    """Of this tenant alone: checkpoints, then the retrained weights."""
    weights: Path | None = None
    """Of the model that serves; None: as built."""
    labels: Path | None = None
    """The labels' file; a pre-training leaves its memory there."""
    window: int = 0
    """The last window whose labels are learned from."""
    since: int | None = None
    """The first one: the model has not been retrained on what came from there; None: `window`."""
    settings: Settings = field(default_factory=Settings)
    replay: int = 200
    """Samples of every class kept from earlier windows that are trained on again."""
    most_samples: int | None = None
    """At most so many are trained on, balanced over classes, the newest first; None: all."""
    held_out: float = 0.2
    """The part of all samples that is never trained on and judged with."""
    past: tuple[Past, ...] = ()
    """For an estimation: what came of the retrainings before."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of the instance, as its driver tells it."""
    device: str = "cpu"
    pace_s: float | None = None
    """On an emulated instance: it takes at least so long, the start of its process included."""
    limit_s: float | None = None
    """It is ended if it takes longer."""
    benchmark: str | None = None
    """For a pre-training: the benchmark whose first scenario is learned."""
    data: Path | None = None
    """For a pre-training: the folder of the benchmark's files."""
    per_class: int | None = None
    """For a pre-training: at most so many samples of a class; None: all there are."""


@dataclass(frozen=True)
class TrainingResult:
    """What a retraining or pre-training brought; accuracies are on held-out samples."""

    adopted: bool
    why: str
    """In words, why it takes over or not."""
    weights: Path | None
    """Of the retrained model; None where it is refused."""
    accuracy_before: float
    accuracy_after: float
    """Of the retrained model, adopted or not."""
    accuracy_new_before: float
    accuracy_new_after: float
    """On new classes alone."""
    new_classes: tuple[int, ...]
    samples: int
    """Trained on, replayed ones included."""
    curve: tuple[float, ...]
    """After every epoch."""
    epochs_resumed: int
    """Taken over from checkpoints of a process that was lost."""
    seconds: float
    """From the start of the process to its answer; that of lost ones is not counted in."""


@dataclass(frozen=True)
class EstimateResult:
    """What a retraining is expected to bring."""

    estimate: Estimate
    new_classes: tuple[int, ...]
    samples: int
    replayed: int
    """Of these: samples of earlier windows."""
    seconds: float
    """From the start of the process to its answer."""


def job_json(kind: JobKind, job: TrainingJob) -> dict[str, Any]:
    """The job as JSON; its environment is passed as one, not written down."""
    told = asdict(job) | {each: _text(getattr(job, each)) for each in _PATHS}
    del told["environment"], told["limit_s"]
    return {"kind": kind, **told}


def job_from(told: Mapping[str, Any]) -> tuple[JobKind, TrainingJob]:
    """The job that was written as JSON; InputError where it is none."""
    try:
        values = dict(told)
        kind = JobKind(values.pop("kind"))
        paths = {each: Path(values[each]) for each in _PATHS if values.get(each) is not None}
        made = {
            "model": ModelSpec(**values["model"]),
            "settings": Settings(**values["settings"]),
            "past": tuple(Past(**each) for each in values["past"]),
        }
        return kind, TrainingJob(**{**values, **paths, **made})
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"the job is not one of a retrainer ({error}); let `migrator serve` start it"
        ) from error


def training_result(told: Mapping[str, Any]) -> TrainingResult:
    """The result that was written as JSON."""
    weights = None if told["weights"] is None else Path(told["weights"])
    tuples = {each: tuple(told[each]) for each in ("new_classes", "curve")}
    return TrainingResult(**{**told, **tuples, "weights": weights})


def estimate_result(told: Mapping[str, Any]) -> EstimateResult:
    """The result that was written as JSON."""
    said = {**told["estimate"], "curve": tuple(told["estimate"]["curve"])}
    return EstimateResult(
        Estimate(**said),
        tuple(told["new_classes"]),
        told["samples"],
        told["replayed"],
        told["seconds"],
    )


def result_json(result: TrainingResult | EstimateResult) -> dict[str, Any]:
    """The result as JSON."""
    told = asdict(result)
    if isinstance(result, TrainingResult):
        told["weights"] = _text(result.weights)
    return told


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
