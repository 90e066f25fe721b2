"""The process that retrains one model on one instance: `python -m migrator.live.retrainer [JOB]`.

`training` starts it and writes its job to the standard input. Until then it waits with torch
imported and without using CUDA. It prints JSON lines: progress, then the result or an error. It
exits when its parent has exited. If it is killed, the same job continues after its last epoch.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import IO, Any

from migrator.core.errors import InputError
from migrator.gpu.drivers.virtual_board import register_use
from migrator.io.atomic import write_atomically
from migrator.learn.benchmarks.benchmark import Origin, limit_samples
from migrator.learn.benchmarks.benchmark import window_data as scenario_data
from migrator.learn.checkpoint import Checkpoints
from migrator.learn.estimation import estimate
from migrator.learn.model import Model
from migrator.learn.registry import benchmark, build, require_torch
from migrator.learn.retraining import Retrained, accuracy, retrain
from migrator.learn.samples import NoSamplesError, WindowData
from migrator.live.training import (
    EstimateResult,
    JobKind,
    TrainingJob,
    TrainingResult,
    job_from,
    job_json,
    result_json,
)
from migrator.live.training_data import remember, window_data


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


RETRAINED, EPOCHS, IDENTITY = "retrained.safetensors", "epochs", "job.sha256"
"""In a job's folder: its result, its checkpoints, and the identity of the job."""
_ELSEWHERE = ("device", "pace_s", "past", "data", "labels", "folder")
"""Fields of a job that may differ when it continues from checkpoints."""

_BUILDING = max(1, min(8, (os.cpu_count() or 1) // 2))
"""Threads to build and read a model for a GPU: with one thread its first weights take seconds."""

_log = logging.getLogger(__name__)
Told = Callable[[float], None]
"""Called with the completed share after every step."""


@dataclass(frozen=True)
class Work:
    """One job."""

    kind: JobKind
    job: TrainingJob
    began_s: float
    """When its process was started, by the monotonic clock."""
    told: Told

    def done(self) -> TrainingResult | EstimateResult:
        """Do the job; InputError if it cannot be done."""
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
        material = limit_samples(known.load(origin), job.per_class, job.settings.seed)
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
            import_module("torch").set_num_threads(_BUILDING)  # no core emulates a GPU here
        model = build(spec.model, spec.classes, spec.seed, spec.pixels)
        if self.job.weights is not None:
            model.load(self.job.weights)
        model.to(self.job.device)
        return model

    def _checkpoints(self) -> Checkpoints:
        """The checkpoints of this job; those of another job are removed."""
        checkpoints = Checkpoints(self.job.folder / EPOCHS, _log.warning)
        note, mine = self.job.folder / IDENTITY, _identity(self.kind, self.job)
        if not note.exists() or note.read_text(encoding="utf-8") != mine:
            checkpoints.clear()
            (self.job.folder / RETRAINED).unlink(missing_ok=True)
            with write_atomically(note) as unfinished:
                unfinished.write_text(mine, encoding="utf-8")
        return checkpoints

    def _saved(self, model: Model) -> Path:
        path = self.job.folder / RETRAINED
        with write_atomically(path) as unfinished:
            model.save(unfinished)
        return path


def _identity(kind: JobKind, job: TrainingJob) -> str:
    told = {k: v for k, v in job_json(kind, job).items() if k not in _ELSEWHERE}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _reason(came: Retrained) -> str:
    after, before = f"{came.accuracy_after:.3f}", f"{came.accuracy_before:.3f}"
    if came.adopted:
        return f"accuracy {after} on held-out samples against {before} now: adopted"
    if came.stopped:
        return came.stopped
    return f"accuracy {after} on held-out samples against {before} now: refused"


_TELL_S = 0.2
"""Seconds between two progress reports."""
_LOOK_S = 0.5
"""Seconds between two checks of the parent process."""
_POLITE = 3
"""Niceness: serving has priority where it shares cores with trainings."""

Say = Callable[[Mapping[str, Any]], None]


def answer(job_file: Path, began_s: float, say: Say) -> None:
    """Do the job and report progress, the result or any error."""
    try:
        kind, job = job_from(json.loads(job_file.read_text(encoding="utf-8")))
        with suppress(OSError):  # so that `ps` shows what each process does
            Path("/proc/self/comm").write_text(f"{kind} {job.tenant}"[:15], encoding="utf-8")
        with register_use(os.environ, f"migrator {kind} {job.tenant}"):
            done = Work(kind, job, began_s, _seldom(say)).done()
            say({"result": result_json(done)})
    except NoSamplesError as error:
        say({"failed": str(error), "again": False, "empty": True})
    except InputError as error:
        say({"failed": str(error), "again": False})
    except (OSError, ValueError) as error:
        said = f"{job_file.name} cannot be done ({type(error).__name__}: {error})"
        say({"failed": f"{said}; see to its files and data", "again": False})
    except Exception as error:
        # an error of the GPU or of CUDA: a retry may succeed
        said = str(error).partition("\n")[0][:300]
        say({"failed": f"{type(error).__name__}: {said}; start it again", "again": True})


def _seldom(say: Say) -> Callable[[float], None]:
    """Report progress, at most a few times per second."""
    last_s = 0.0

    def told(part: float) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= _TELL_S or part >= 1:
            last_s = now_s
            say({"progress": round(part, 4)})

    return told


def _sayer(stream: IO[str]) -> Say:
    def say(message: Mapping[str, Any]) -> None:
        try:
            stream.write(json.dumps(message) + "\n")
            stream.flush()
        except BrokenPipeError:
            os._exit(1)  # the parent is gone

    return say


def _end_with(parent: int) -> None:
    """Exit once the parent process has exited, in the middle of a job too."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    Thread(target=look, name="parent", daemon=True).start()


def main() -> None:
    """Do JOB, or the job on the standard input. Output of libraries goes to the standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    _end_with(os.getppid())
    say = _sayer(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
    os.nice(_POLITE)
    try:
        _load_torch()
    except InputError as error:
        say({"failed": str(error), "again": False})
        return
    if len(sys.argv) > 1:
        answer(Path(sys.argv[1]), time.monotonic(), say)
        return
    told = _asked()
    os.environ.update(told["environment"])
    answer(Path(told["job"]), told["began_s"], say)


def _load_torch() -> None:
    """Import what a training needs, without using CUDA."""
    require_torch()
    torch: Any = import_module("torch")
    # one thread: an instance is emulated by one core, however many there are
    torch.set_num_threads(1)
    if torch.version.cuda is None:
        # the first optimiser of a process loads a compiler, which takes as long as torch itself;
        # where that could look for GPUs it waits until the instance is known
        torch.optim.AdamW([torch.zeros(1, requires_grad=True)])


def _asked() -> dict[str, Any]:
    """Read the job from the standard input; exits if there is none."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(1)
    asked: dict[str, Any] = json.loads(line)
    if asked["parent"] != os.getppid():
        sys.exit(1)  # the parent ended before this process had started
    return asked


if __name__ == "__main__":
    main()
