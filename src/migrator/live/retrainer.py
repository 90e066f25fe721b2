"""Retrains one model on one instance: `python -m migrator.live.retrainer FD [MODEL]`.

`training` starts this process with one end of a socket pair and sends its job. Until then it waits
with the model built on the host and without using CUDA. It exits when its parent has exited. If it
is killed, the same job continues after its last epoch.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import msgspec

from migrator.core.errors import InputError
from migrator.gpu.drivers.virtual_board import register_use
from migrator.io.atomic import write_atomically
from migrator.io.child_process import exit_with_parent, one_line
from migrator.io.frames import Channel
from migrator.learn.benchmarks.benchmark import Origin
from migrator.learn.benchmarks.benchmark import window_data as scenario_data
from migrator.learn.checkpoint import Checkpoints
from migrator.learn.estimation import estimate
from migrator.learn.laps import DATA, EVALUATION, SAVE, START, Laps
from migrator.learn.model import Model
from migrator.learn.registry import benchmark, build, encoder, model_class
from migrator.learn.retraining import Retrained, accuracy, retrain
from migrator.learn.samples import NoSamplesError, WindowData
from migrator.live.training import (
    Advanced,
    Begin,
    EstimateResult,
    Failed,
    JobKind,
    Progress,
    TrainingJob,
    TrainingResult,
    built_model,
)
from migrator.live.training_data import remember, window_data

RETRAINED, EPOCHS, IDENTITY = "retrained.safetensors", "epochs", "job.sha256"
"""In a job's folder: its result, its checkpoints, and the identity of the job."""
_BUILDING = max(1, min(8, (os.cpu_count() or 1) // 2))
"""Threads to build and read a model for a GPU: with one thread its first weights take seconds."""
_REPORT_S = 0.2
"""Seconds between two progress reports."""
_POLITE = 3
"""Niceness: serving has priority where it shares cores with trainings."""

_log = logging.getLogger(__name__)


class Pace:
    """The pace of an emulated training: waits after every step until a GPU would have finished it.

    The time is spread over the steps, so that progress is realistic.
    """

    def __init__(
        self,
        seconds: float | None,
        steps: int,
        began_s: float,
        *,
        done: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`began_s`: time of the clock at which its time began. `done`: steps of an earlier
        process."""
        now = clock()
        left = 0.0 if seconds is None else seconds * (1 - done / max(1, steps))
        self._first_s, self._steps, self.done = now, max(1, steps), done
        self._each_s = max(0.0, left - (now - began_s)) / max(1, steps - done)
        self._begun, self._clock, self._sleep = done, clock, sleep

    @property
    def part(self) -> float:
        """The share of completed steps."""
        return min(1.0, self.done / self._steps)

    def step(self) -> None:
        """Count a step and wait for its end."""
        self.done += 1
        until_s = self._first_s + self._each_s * (self.done - self._begun)
        left_s = until_s - self._clock()
        if left_s > 0:
            self._sleep(left_s)


@dataclass(frozen=True)
class ReadyModel:
    """A model without its weights."""

    spec: str
    """As `training.built_model` describes it."""
    model: Model


@dataclass(frozen=True)
class Work:
    """One job."""

    job: TrainingJob
    began_s: float
    """When its process was started, by the monotonic clock."""
    report: Progress
    ready: ReadyModel | None = None
    """A model that was built before the job was known."""

    def run(self) -> TrainingResult | EstimateResult:
        """Do the job; InputError if it cannot be done."""
        if self.job.kind is JobKind.ESTIMATE:
            return self._estimate()
        return self._retrain()

    def _retrain(self) -> TrainingResult:
        job, laps, model = self.job, Laps(self.began_s), self._model()
        started_s = time.monotonic()
        laps.end(START)
        data = self._data(job.model.input_pixels or getattr(model, "pixels", None))
        samples = len(data.new) + len(data.replay)
        checkpoints = self._checkpoints()
        found = checkpoints.newest_good()
        resumed = 0 if found is None else len(found.about["curve"])
        steps = job.settings.steps(samples)
        _expect(model, steps)
        laps.end(DATA)
        before = accuracy(model, data.held_out)
        laps.end(EVALUATION)
        done = resumed * steps // job.settings.epochs
        pace = Pace(job.pace_s, steps, started_s, done=done)
        made = 0

        def step() -> None:
            nonlocal made
            made += 1
            pace.step()
            self.report(pace.part)

        self.report(pace.part)
        candidate, result = retrain(model, data, before, job.settings, checkpoints, step, laps)
        if job.kind is JobKind.PRETRAIN and job.labels is not None:
            remember(job.labels, job.tenant, data, job.replay, job.settings.seed)
        weights = self._save(candidate) if result.adopted else None
        laps.end(SAVE)
        return TrainingResult(
            adopted=result.adopted,
            why=_reason(result),
            weights=weights,
            accuracy_before=result.accuracy_before,
            accuracy_after=result.accuracy_after,
            accuracy_new_before=result.accuracy_new_before,
            accuracy_new_after=result.accuracy_new_after,
            new_classes=tuple(sorted(data.new_classes)),
            samples=samples,
            curve=result.curve,
            epochs_resumed=resumed,
            seconds=time.monotonic() - self.began_s,
            start_s=started_s - self.began_s,
            parts_s={part: round(seconds, 3) for part, seconds in laps.parts_s.items()},
            steps=made,
        )

    def _estimate(self) -> EstimateResult:
        job, data, model = self.job, self._data(), self._model()
        if not len(data.new) or not len(data.held_out):
            raise NoSamplesError(
                f"{job.tenant}: window {job.window} has no samples to estimate with; send labels "
                "of every class"
            )
        pace = Pace(job.pace_s, 1, self.began_s)
        _expect(model, 0)
        before = accuracy(model, data.held_out)
        expected = estimate(model, data, before, job.settings, job.past)
        pace.step()
        self.report(1.0)
        samples = len(data.new) + len(data.replay)
        classes = tuple(sorted(data.new_classes))
        seconds = time.monotonic() - self.began_s
        return EstimateResult(expected, classes, samples, len(data.replay), seconds)

    def _data(self, pixels: int | None = None) -> WindowData:
        """The samples of the job; `pixels`: the side of the pictures that clients send."""
        data = self._scenario(pixels) if self.job.kind is JobKind.PRETRAIN else self._window()
        every = (data.training, data.held_out)
        highest = max((int(each.labels.max()) for each in every if len(each)), default=0)
        if highest >= self.job.model.classes:
            raise InputError(
                f"{self.job.tenant}: a sample is of class {highest}, and the model has "
                f"{self.job.model.classes} classes; give it more, or send labels below that"
            )
        return data

    def _window(self) -> WindowData:
        job = self.job
        if job.labels is None:
            raise InputError(f"{job.tenant}: the job names no file of labels; give one")
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
        """The first scenario of a benchmark."""
        job, seed = self.job, self.job.settings.seed
        if job.benchmark is None:
            raise InputError(f"{job.tenant}: the job names no benchmark to pre-train on; give one")
        known = benchmark(job.benchmark)
        origin = Origin(seed=seed, encode=encoder(job.model.model, known.modality), pixels=pixels)
        return scenario_data(known, known.load(origin), 0, job.replay, seed)

    def _model(self) -> Model:
        spec = self.job.model
        model_class(spec.model)
        # one thread: an instance is emulated by one core, however many there are
        _limit_threads(1 if self.job.device == "cpu" else _BUILDING)
        pretrained = self.job.weights is None
        if self.ready is not None and not pretrained and self.ready.spec == built_model(spec):
            model = self.ready.model
        else:
            model = build(spec.model, spec.classes, spec.seed, spec.pixels, pretrained=pretrained)
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
        return path


def _expect(model: Model, steps: int) -> None:
    """Let the model prepare for a training of `steps` steps, if it has a method for that."""
    if hasattr(model, "expect_training"):
        model.expect_training(steps)


def _identity(job: TrainingJob) -> str:
    """A digest of everything that determines the result."""
    elsewhere = replace(
        job,
        folder=Path(),
        labels=None,
        past=(),
        environment={},
        device="",
        pace_s=None,
        limit_s=0.0,
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
    begin: Begin, report: Progress, ready: ReadyModel | None = None
) -> TrainingResult | EstimateResult | Failed:
    """Do the job. Returns the result or any error."""
    job = begin.job
    os.environ.update(job.environment)
    with suppress(OSError):  # so that `ps` shows what each process does
        Path("/proc/self/comm").write_text(f"{job.kind} {job.tenant}"[:15], encoding="utf-8")
    try:
        with register_use(os.environ, f"migrator {job.kind} {job.tenant}"):
            return Work(job, begin.began_s, _seldom(report), ready).run()
    except NoSamplesError as error:
        return Failed(str(error), empty=True)
    except InputError as error:
        return Failed(str(error))
    except (OSError, ValueError) as error:
        said = f"{job.folder} cannot be written or the job cannot be done"
        return Failed(f"{said} ({type(error).__name__}: {error}); see to its files and data")
    except Exception as error:  # of the GPU or of CUDA: a retry may succeed
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


def main() -> None:
    """Do the job that arrives at the socket with the number in the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    end = socket.socket(fileno=int(sys.argv[1]))
    channel = Channel[Begin](end, Begin)
    with suppress(OSError):  # not added up where this process has started again
        niceness = os.getpriority(os.PRIO_PROCESS, os.getppid()) + _POLITE
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    with exit_with_parent(end), suppress(BrokenPipeError):
        ready = _build_ahead(sys.argv[2]) if len(sys.argv) > 2 else None
        frame = channel.receive()
        if frame is None:
            return

        def report(part: float) -> None:
            channel.send(0, Advanced(part))

        channel.send(frame.number, answer(frame.message, report, ready))


def _build_ahead(spec: str) -> ReadyModel | None:
    """Build the model and import what its training needs, without using CUDA."""
    name, classes, seed, pixels = json.loads(spec)
    # asking torch for a GPU must not open CUDA before the instance is known
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    try:
        model_class(name)
        _limit_threads(_BUILDING)
        model = build(name, classes, seed, pixels, pretrained=False)
    except Exception as error:  # reported by the job that needs it
        _log.warning("%s could not be built ahead of its job: %s", name, one_line(error))
        return None
    finally:
        _limit_threads(1)
    if "torch" in sys.modules:
        # the first optimiser of a process loads a compiler, which takes as long as torch itself
        with suppress(ImportError):
            import_module("torch._dynamo")
    if _has_opened_gpu():
        _log.warning("%s opens the GPU when it is built; its trainings build it themselves", name)
        _start_again(sys.argv[1])
    return ReadyModel(spec, model)


def _start_again(end: str) -> NoReturn:
    """Replace the program of this process by a new one that builds nothing ahead. A job that has
    arrived at the socket stays there."""
    sys.stderr.flush()
    for each in list(Path("/proc/self/fd").iterdir()):
        if int(each.name) > 2 and each.name != end:
            with suppress(OSError):  # the folder itself has been closed
                os.set_inheritable(int(each.name), False)
    os.execv(sys.executable, [sys.executable, "-m", "migrator.live.retrainer", end])


def _has_opened_gpu(folder: Path = Path("/proc/self/fd")) -> bool:
    """Whether this process uses CUDA, which must not happen before its instance is known."""
    with suppress(OSError):
        for each in list(folder.iterdir()):
            with suppress(OSError):
                if str(each.readlink()).startswith("/dev/nvidia-uvm"):
                    return True
    return False


def _limit_threads(count: int) -> None:
    """Limit the threads of torch, if a model uses it."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


if __name__ == "__main__":
    main()
