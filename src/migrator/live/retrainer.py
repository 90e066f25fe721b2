"""Retrains one model on one instance, in a process that the forkserver forks.

It begins with the model that the forkserver has built on the host, and gets its job from
`training`. It exits when the daemon has exited. If it is killed, the same job continues after its
last epoch.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from migrator.core.errors import InputError
from migrator.gpu.drivers.virtual_board import register_use, take_memory
from migrator.io.atomic_write import write_atomically
from migrator.io.child_process import Channel
from migrator.io.spawn import one_line, running_as_child
from migrator.learn.benchmarks.benchmark import Origin, resize_images
from migrator.learn.benchmarks.benchmark import window_data as scenario_data
from migrator.learn.checkpoint import Checkpoints
from migrator.learn.estimation import estimate, estimate_each
from migrator.learn.finite_weights import tensors_not_finite
from migrator.learn.held_memory import held_mib
from migrator.learn.model import Modality, Model
from migrator.learn.registry import benchmark, benchmarks, encoder
from migrator.learn.retraining import (
    DATA,
    EVALUATION,
    SAVE,
    START,
    TRIAL,
    DivergedError,
    Laps,
    Retrained,
    accuracy,
    retrain,
)
from migrator.learn.samples import NoSamplesError, Samples, WindowData
from migrator.live.training import (
    Advanced,
    Begin,
    EstimateResult,
    Failed,
    JobKind,
    Progress,
    TrainingJob,
    TrainingResult,
)
from migrator.live.training_data import remember, window_data
from migrator.serving.workers.worker import warm_up

RETRAINED, EPOCHS, IDENTITY = "retrained.safetensors", "epochs", "job.sha256"
"""In a job's folder: its result, its checkpoints, and the identity of the job."""
_THREADS = max(1, min(8, (os.cpu_count() or 1) // 2))
"""Threads on the host beside a GPU, which read weights and samples."""
_REPORT_S = 0.2
"""Seconds between two progress reports."""
_POLITE = 3
"""Niceness: serving has priority where it shares cores with trainings."""

_log = logging.getLogger(__name__)


class EmulatedPace:
    """The pace of an emulated training: waits after every step until a GPU would have finished it.

    The time is spread over the steps, so that progress is realistic.
    """

    def __init__(self, seconds: float | None, steps: int, began_s: float, done: int = 0) -> None:
        """`began_s`: the monotonic clock when its time began. `done`: steps of an earlier
        process."""
        self._until_s, self._steps, self.done = time.monotonic(), max(1, steps), done
        left_s = began_s - self._until_s + (seconds or 0.0) * (1 - done / self._steps)
        self._each_s = max(0.0, left_s) / max(1, steps - done)

    @property
    def part(self) -> float:
        return min(1.0, self.done / self._steps)

    def step(self) -> None:
        """Count a step and wait for its end."""
        self.done += 1
        self._until_s += self._each_s
        time.sleep(max(0.0, self._until_s - time.monotonic()))


@dataclass(frozen=True)
class Work:
    """One job."""

    job: TrainingJob
    built: Model
    """The model as the forkserver has built it; this process owns it."""
    began_s: float
    """When it was requested, by the monotonic clock."""
    report: Progress

    def run(self) -> TrainingResult | EstimateResult:
        """Do the job; InputError if it cannot be done."""
        if self.job.kind is JobKind.ESTIMATE:
            return self._estimate()
        return self._retrain()

    def _retrain(self) -> TrainingResult:
        job, laps, model = self.job, Laps(self.began_s), self._model()
        started_s = time.monotonic()
        laps.end(START)
        data = self._data(_picture_side(model))
        samples = len(data.new) + len(data.replay)
        checkpoints = self._checkpoints()
        checkpoint = checkpoints.newest_good()
        resumed = 0 if checkpoint is None else len(checkpoint.about["curve"])
        part = job.settings.part
        trained = samples if part == 1 else len(data.training_part(part, job.settings.seed))
        steps = job.settings.steps(trained)
        _expect(model, steps)
        laps.end(DATA)
        before = accuracy(model, data.held_out, job.settings.batch)
        laps.end(EVALUATION)
        expected = None
        if job.kind is JobKind.PRETRAIN:
            expected = estimate(model, data, before, job.settings, ())
            laps.end(TRIAL)
        done = resumed * steps // job.settings.epochs
        pace = EmulatedPace(job.pace_s, steps, started_s, done)
        steps_made = 0

        def step() -> None:
            nonlocal steps_made
            steps_made += 1
            pace.step()
            self.report(pace.part)

        self.report(pace.part)
        candidate, result = retrain(model, data, before, job.settings, checkpoints, step, laps)
        if job.kind is JobKind.PRETRAIN:
            remember(job.labels, job.tenant, data, job.replay, job.settings.seed)
        weights = None
        if result.adopted:
            try:
                weights = self._save(candidate)
            except DivergedError as error:
                result = replace(result, adopted=False, stopped=str(error))
        laps.end(SAVE)
        return TrainingResult(
            adopted=result.adopted,
            why=_reason(result),
            weights=weights,
            accuracy_before=result.accuracy_before,
            accuracy_after=result.accuracy_after,
            new_classes=tuple(sorted(data.new_classes)),
            samples=samples,
            trained=trained,
            curve=result.curve,
            epochs_resumed=resumed,
            seconds=time.monotonic() - self.began_s,
            start_s=started_s - self.began_s,
            parts_s={part: round(seconds, 3) for part, seconds in laps.parts_s.items()},
            steps=steps_made,
            held_mib=held_mib(job.device),
            estimate=expected,
        )

    def _estimate(self) -> EstimateResult:
        job, data, model = self.job, self._data(), self._model()
        if not len(data.new) or not len(data.held_out):
            raise NoSamplesError(
                f"{job.tenant}: window {job.window} has no samples to estimate with; send labels "
                "of every class"
            )
        pace = EmulatedPace(job.pace_s, 1, self.began_s)
        _expect(model, 0)
        before = accuracy(model, data.held_out, job.settings.batch)
        expected = estimate_each(
            model, data, before, job.configurations or (job.settings,), job.past
        )
        pace.step()
        self.report(1.0)
        return EstimateResult(expected, len(data.replay), held_mib(job.device))

    def _data(self, pixels: int | None = None) -> WindowData:
        """The samples of the job; `pixels`: the side of the pictures that clients send."""
        data = self._scenario(pixels) if self.job.kind is JobKind.PRETRAIN else self._window()
        every = (data.training, data.held_out)
        highest = max((int(samples.classes.max()) for samples in every if len(samples)), default=0)
        if highest >= self.job.model.classes:
            raise InputError(
                f"{self.job.tenant}: a sample is of class {highest}, and the model has "
                f"{self.job.model.classes} classes; give it more, or send labels below that"
            )
        return data

    def _window(self) -> WindowData:
        job = self.job
        return window_data(
            job.labels,
            job.tenant,
            job.window,
            since=job.since,
            replay=job.replay,
            held_out=job.held_out,
            seed=job.settings.seed,
            most=job.most_samples,
        )

    def _scenario(self, pixels: int | None) -> WindowData:
        job, seed = self.job, self.job.settings.seed
        assert job.benchmark is not None, "others have no pre-training"
        if self.built.modality is Modality.TENSORS:
            raise InputError(
                f"{job.tenant}: {job.model.model} declares tensors of its own, which "
                f"{job.benchmark} does not have; leave the benchmark out and give classes, and "
                "weights if it has any"
            )
        data_set = benchmark(job.benchmark)
        origin = Origin(
            seed=seed, encode=encoder(job.model.model, data_set.modality), pixels=pixels
        )
        data = scenario_data(data_set, data_set.load(origin), 0, job.replay, seed)
        if data_set.modality is not Modality.IMAGES or pixels is None:
            return data
        return _with_pictures_of(data, pixels)

    def _model(self) -> Model:
        model = self.built
        # one thread: an instance is emulated by one core, however many there are
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1 if self.job.device == "cpu" else _THREADS)
        if self.job.weights is not None:
            begins = self.job.kind is JobKind.PRETRAIN
            load = getattr(model, "begin_with", model.load) if begins else model.load
            load(self.job.weights)
        model.to(self.job.device)
        return model

    def _checkpoints(self) -> Checkpoints:
        """The checkpoints of this job; those of another job are removed."""
        folder = self.job.folder
        folder.mkdir(parents=True, exist_ok=True)
        checkpoints = Checkpoints(folder / EPOCHS, _log.warning)
        note, mine = folder / IDENTITY, _identity(self.job)
        if not note.exists() or note.read_text(encoding="utf-8") != mine:
            checkpoints.clear()
            (folder / RETRAINED).unlink(missing_ok=True)
            with write_atomically(note) as unfinished:
                unfinished.write_text(mine, encoding="utf-8")
        return checkpoints

    def _save(self, model: Model) -> Path:
        path = self.job.folder / RETRAINED
        with write_atomically(path) as unfinished:
            model.save(unfinished)
            self._require_finite(unfinished)
        self._require_servable(path)
        return path

    def _require_finite(self, path: Path) -> None:
        """DivergedError if the training made weights NaN or infinite; a mask may be from the start.

        An infinite weight need not show in any answer to a held-out sample.
        """
        if names := tensors_not_finite(path):
            before = path.with_suffix(".before")
            try:
                self.built.save(before)
                names -= tensors_not_finite(before)
            finally:
                before.unlink(missing_ok=True)
        if names:
            raise DivergedError(
                f"weights became NaN or infinite ({min(names)}), so the previous model stays in "
                "service; lower its learning_rate"
            )

    def _require_servable(self, path: Path) -> None:
        """InputError unless a worker can serve these weights; this process's model takes them."""
        model, kind = self.built, self.job.model.model
        try:
            model.load(path)
        except Exception as error:
            raise InputError(
                f"{self.job.tenant}: load() of {kind} refuses what its save() wrote "
                f"({one_line(error)}), so the model is not adopted; correct the class"
            ) from error
        model.to(self.job.device)
        warm_up(model, 1)


def _expect(model: Model, steps: int) -> None:
    """Let the model prepare for a training of `steps` steps, if it has a method for that."""
    if hasattr(model, "expect_training"):
        model.expect_training(steps)


def _picture_side(model: Model) -> int | None:
    """The side of the pictures that clients send; None if the model takes no square pictures."""
    shape = model.example(1).shape[1:]
    return shape[2] if len(shape) == 3 and shape[1] == shape[2] else None


def _with_pictures_of(data: WindowData, pixels: int) -> WindowData:
    """The samples in the size in which clients send theirs, so that they are learned together."""

    def resized(samples: Samples) -> Samples:
        return replace(samples, inputs=resize_images(samples.inputs, pixels))

    return replace(
        data,
        new=resized(data.new),
        replay=resized(data.replay),
        held_out=resized(data.held_out),
        validation=resized(data.validation),
    )


def _identity(job: TrainingJob) -> str:
    """A digest of everything that determines the result."""
    elsewhere = replace(
        job,
        folder=Path(),
        labels=Path(),
        past=(),
        configurations=(),
        environment={},
        device="",
        pace_s=None,
        limit_s=0.0,
        emulated_mib=(0.0, 0.0),
    )
    return hashlib.sha256(msgspec.json.encode(elsewhere, enc_hook=str)).hexdigest()


def _reason(result: Retrained) -> str:
    if result.stopped:
        return result.stopped
    return (
        f"accuracy {result.accuracy_after:.3f} on held-out samples against "
        f"{result.accuracy_before:.3f} now: {'adopted' if result.adopted else 'refused'}"
    )


def answer(
    begin: Begin, model: Model, report: Progress
) -> TrainingResult | EstimateResult | Failed:
    """Do the job. Returns the result or any error."""
    job = begin.job
    os.environ.update(job.environment)
    try:
        with register_use(os.environ, f"migrator {job.kind} {job.tenant}"):
            take_memory(*job.emulated_mib)
            return Work(job, model, begin.began_s, _seldom(report)).run()
    except NoSamplesError as error:
        return Failed(str(error), empty=True)
    except InputError as error:
        return Failed(str(error))
    except (OSError, ValueError) as error:
        problem = f"{job.folder} cannot be written or the job cannot be done"
        return Failed(f"{problem} ({type(error).__name__}: {error}); see to its files and data")
    except Exception as error:  # of the model, the GPU or CUDA: a retry may succeed
        return Failed(f"{one_line(error)}; start it again", again=True)


def _seldom(report: Progress) -> Progress:
    """Report progress, at most a few times per second."""
    last_s = 0.0

    def reported(part: float) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= _REPORT_S or part >= 1:
            last_s = now_s
            report(round(part, 4))

    return reported


def run(end: socket.socket, model: Model, name: str) -> None:
    """Do the job that arrives at the socket with this model, in a process of its own."""
    with suppress(OSError):
        os.nice(_POLITE)
    channel = Channel[Begin](end, Begin)
    with running_as_child(end.fileno(), name):
        frame = channel.receive()
        if frame is None:
            return

        def report(part: float) -> None:
            channel.send(0, Advanced(part))

        channel.send(frame.number, answer(frame.message, model, report))


def import_ahead() -> None:
    """Import what trainings need; the forkserver calls it, so that they begin at once."""
    benchmarks()
    if torch := sys.modules.get("torch"):
        # the first optimiser of a process loads a compiler, which takes as long as torch itself
        torch.optim.SGD([torch.zeros(1, requires_grad=True)])
