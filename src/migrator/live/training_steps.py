"""What a retrainer process does, job by job: the data read, a model retrained, judged and saved."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from migrator.core.errors import InputError
from migrator.learn.atomic import written_whole
from migrator.learn.benchmarks.benchmark import Origin, limited
from migrator.learn.benchmarks.benchmark import window_data as scenario_data
from migrator.learn.checkpoint import Checkpoints
from migrator.learn.estimation import estimate
from migrator.learn.model import Model
from migrator.learn.registry import benchmark, build
from migrator.learn.retraining import Retrained, retrain
from migrator.learn.samples import NoSamplesError, WindowData
from migrator.learn.training import accuracy
from migrator.live.label_data import remember, window_data
from migrator.live.pace import Pace
from migrator.live.training_job import (
    EstimateResult,
    JobKind,
    TrainingJob,
    TrainingResult,
    job_json,
)

RETRAINED, EPOCHS, IDENTITY = "retrained.safetensors", "epochs", "job.sha256"
"""In a job's folder: what it led to, its checkpoints, and which job they are of."""
_ELSEWHERE = ("device", "pace_s", "past", "data", "labels", "folder")
"""Does not matter for whether a cut-off job can go on."""

_BUILDING = max(1, min(8, (os.cpu_count() or 1) // 2))
"""Threads that a model for a GPU is built and read with: on one its first weights take seconds."""

_log = logging.getLogger(__name__)
Told = Callable[[float], None]
"""Given the part that is done, after every step."""


@dataclass(frozen=True)
class Work:
    """A job in its process."""

    kind: JobKind
    job: TrainingJob
    began_s: float
    """When its process was started, by the monotonic clock."""
    told: Told

    def done(self) -> TrainingResult | EstimateResult:
        """Do it; InputError says why it cannot be done."""
        if self.kind is JobKind.ESTIMATE:
            return self._estimated()
        data = self._scenario() if self.kind is JobKind.PRETRAIN else self._window()
        return self._retrained(data)

    def _retrained(self, data: WindowData) -> TrainingResult:
        job, model = self.job, self._model()
        samples = len(data.new) + len(data.replay)
        checkpoints = self._checkpoints()
        found = checkpoints.newest_good()
        resumed = 0 if found is None else len(found.about["curve"])
        steps = job.settings.steps(samples)
        before = accuracy(model, data.held_out)
        done = resumed * steps // job.settings.epochs
        pace = Pace(job.pace_s, steps, self.began_s, done=done)

        def step() -> None:
            pace.step()
            self.told(pace.part)

        self.told(pace.part)
        candidate, came = retrain(model, data, before, job.settings, checkpoints, step)
        if self.kind is JobKind.PRETRAIN and job.labels is not None:
            remember(job.labels, job.tenant, data, job.replay, job.settings.seed)
        return TrainingResult(
            adopted=came.adopted,
            why=_reason(came),
            weights=self._saved(candidate) if came.adopted else None,
            accuracy_before=came.accuracy_before,
            accuracy_after=came.accuracy_after,
            accuracy_new_before=came.accuracy_new_before,
            accuracy_new_after=came.accuracy_new_after,
            new_classes=tuple(sorted(data.new_classes)),
            samples=samples,
            curve=came.curve,
            epochs_resumed=resumed,
            seconds=time.monotonic() - self.began_s,
        )

    def _estimated(self) -> EstimateResult:
        job, data, model = self.job, self._window(), self._model()
        if not len(data.new) or not len(data.held_out):
            raise NoSamplesError(
                f"{job.tenant}: window {job.window} has no samples to estimate with; send labels "
                "of every class"
            )
        pace = Pace(job.pace_s, 1, self.began_s)
        before = accuracy(model, data.held_out)
        said = estimate(model, data, before, job.settings, job.past)
        pace.step()
        self.told(1.0)
        samples = len(data.new) + len(data.replay)
        classes = tuple(sorted(data.new_classes))
        seconds = time.monotonic() - self.began_s
        return EstimateResult(said, classes, samples, len(data.replay), seconds)

    def _window(self) -> WindowData:
        job = self.job
        if job.labels is None:
            raise InputError(f"{job.tenant}: the job names no file of labels; give one")
        data = window_data(
            job.labels,
            job.tenant,
            job.window,
            since=job.since,
            replay=job.replay,
            held_out=job.held_out,
            seed=job.settings.seed,
            most=job.most_samples,
        )
        return self._fitting(data)

    def _scenario(self) -> WindowData:
        """The first scenario of a benchmark."""
        job = self.job
        if job.benchmark is None:
            raise InputError(f"{job.tenant}: the job names no benchmark to pre-train on; give one")
        known = benchmark(job.benchmark)
        origin = Origin(job.data, job.settings.seed)
        material = limited(known.load(origin), job.per_class, job.settings.seed)
        return self._fitting(scenario_data(known, material, 0, job.replay, job.settings.seed))

    def _fitting(self, data: WindowData) -> WindowData:
        highest = max(
            (int(each.labels.max()) for each in (data.training, data.held_out) if len(each)),
            default=0,
        )
        if highest >= self.job.model.classes:
            raise InputError(
                f"{self.job.tenant}: a sample is of class {highest}, and the model has "
                f"{self.job.model.classes} classes; give it more, or send labels below that"
            )
        return data

    def _model(self) -> Model:
        spec = self.job.model
        if self.job.device != "cpu":
            import_module("torch").set_num_threads(_BUILDING)  # nothing is emulated by a core here
        model = build(spec.model, spec.classes, spec.seed, spec.pixels)
        if self.job.weights is not None:
            model.load(self.job.weights)
        model.to(self.job.device)
        return model

    def _checkpoints(self) -> Checkpoints:
        """Of this very job; those of another one are removed."""
        checkpoints = Checkpoints(self.job.folder / EPOCHS, _log.warning)
        note, mine = self.job.folder / IDENTITY, _identity(self.kind, self.job)
        if not note.exists() or note.read_text(encoding="utf-8") != mine:
            checkpoints.clear()
            (self.job.folder / RETRAINED).unlink(missing_ok=True)
            with written_whole(note) as unfinished:
                unfinished.write_text(mine, encoding="utf-8")
        return checkpoints

    def _saved(self, model: Model) -> Path:
        path = self.job.folder / RETRAINED
        with written_whole(path) as unfinished:
            model.save(unfinished)
        return path


def _identity(kind: JobKind, job: TrainingJob) -> str:
    told = {k: v for k, v in job_json(kind, job).items() if k not in _ELSEWHERE}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _reason(came: Retrained) -> str:
    after, before = f"{came.accuracy_after:.3f}", f"{came.accuracy_before:.3f}"
    if came.adopted:
        return f"{after} on held-out samples, not worse than the {before} of the model that serves"
    if came.stopped:
        return came.stopped
    return f"{after} on held-out samples, worse than the {before} of the model that serves"
