"""Starts, monitors and ends retrainings, estimates and pre-trainings.

Each runs in a process of its own on its own instance (`retrainer`), forked from the forkserver: it
has the tenant's model at once, and none of the daemon's secrets. If a process dies, the same job
continues later. This module does not need torch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from migrator.core.errors import InputError, MigratorError
from migrator.io.child_process import ChildProcess
from migrator.io.spawn import ChildLostError
from migrator.learn.estimation import AccuracyEstimate, Past
from migrator.learn.retraining import EPOCHS, FIRST_STEPS, RetrainingSettings
from migrator.serving.workers.forkserver import BUILD_S, Forkserver, Reaper
from migrator.serving.workers.messages import Fork, ModelSpec, WorkerLostError
from migrator.serving.workers.pool import GRACE_S

PREPARE = ("migrator.live.retrainer:import_ahead",)
"""What the forkserver calls before it forks trainings."""
_RUNS = "migrator.live.retrainer:run"
_A_DAY_S = 86_400.0

Progress = Callable[[float], None]
"""Called with the completed share, at most a few times per second."""


class TrainingFailedError(MigratorError):
    """The training cannot be done, and a retry would fail as well."""


class TrainingEmptyError(TrainingFailedError):
    """There are no samples to train on or to judge with until more labels arrive."""


class TrainingLostError(ChildLostError):
    """The process died, hung or was ended; a retry continues from its checkpoints."""


class TrainingFaultError(TrainingLostError):
    """The job failed on its instance, as when the memory of the GPU is full."""


class JobKind(StrEnum):
    """The kinds of jobs of a retrainer process."""

    RETRAIN = "retrain"
    ESTIMATE = "estimate"
    PRETRAIN = "pretrain"


@dataclass(frozen=True)
class TrainingJob:
    """One retraining, estimate or pre-training of a tenant's model, on one instance."""

    kind: JobKind
    tenant: str
    model: ModelSpec
    folder: Path
    """The job's own folder for checkpoints and the retrained weights."""
    labels: Path
    """The file of the labels. A pre-training stores its replay samples there."""
    weights: Path | None = None
    """Weights of the serving model; None: those that the model was built with."""
    window: int = 0
    """The last window whose labels are learned."""
    since: int | None = None
    """The first window whose labels are learned; None: `window`."""
    settings: RetrainingSettings = field(default_factory=RetrainingSettings)
    configurations: tuple[RetrainingSettings, ...] = ()
    """For an estimate: the configurations to estimate; empty: that of `settings`."""
    replay: int = 200
    """Samples of every class of earlier windows that are replayed."""
    most_samples: int | None = None
    """Maximum number of training samples, balanced over classes, newest first; None for all."""
    held_out: float = 0.2
    """The share of all samples that is used for judging and never for training."""
    past: tuple[Past, ...] = ()
    """For an estimate: results of earlier retrainings."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the instance, from its driver; empty: on the host."""
    device: str = "cpu"
    pace_s: float | None = None
    """On an emulated instance: minimum duration of the training in seconds, without the start of
    the process."""
    emulated_mib: tuple[float, float] = (0.0, 0.0)
    """On an emulated instance: memory that it takes at least, and where that is left."""
    limit_s: float = _A_DAY_S
    """Seconds after which it is ended."""
    benchmark: str | None = None
    """For a pre-training: the benchmark whose first scenario is learned."""


class TrainingResult(Struct, tag=True, frozen=True):
    """The result of a retraining or pre-training. Accuracies are on held-out samples."""

    adopted: bool
    why: str
    """Why the model is adopted or refused."""
    weights: Path | None
    """Weights of the retrained model; None if refused."""
    accuracy_before: float
    accuracy_after: float
    """Accuracy of the retrained model, adopted or not."""
    new_classes: tuple[int, ...]
    samples: int
    """Training samples, including replayed ones."""
    trained: int
    """Of these, those that it trained on: the part of its configuration."""
    curve: tuple[float, ...]
    """Accuracy after every epoch."""
    epochs_resumed: int
    """Epochs taken from the checkpoints of a lost process."""
    seconds: float
    """Seconds from the request to the answer, without those of lost processes."""
    start_s: float
    """Of these: the start of the process and of the model on its instance. Plans count them as the
    overhead of a new instance."""
    parts_s: Mapping[str, float] = msgspec.field(default_factory=dict)
    """These seconds by part, as `learn.retraining` names them."""
    steps: int = 0
    """Training steps, without those of lost processes."""
    held_mib: float = 0.0
    """GPU memory that its process held at most; 0 without a GPU."""
    estimate: AccuracyEstimate | None = None
    """Of a pre-training: what was estimated, which corrects later estimates."""

    @property
    def training_s(self) -> float:
        """Seconds of the training itself: reading samples, learning and judging."""
        return self.seconds - self.start_s

    @property
    def fixed_s(self) -> float:
        """Seconds of the training that do not grow with its samples: reading, the surplus of the
        first steps, evaluating, saving. 0 where it had too few steps to tell."""
        others = self.steps - FIRST_STEPS
        if others < FIRST_STEPS or EPOCHS not in self.parts_s:
            return 0.0
        return max(0.0, self.training_s - self.parts_s[EPOCHS] * self.steps / others)


class EstimateResult(Struct, tag=True, frozen=True):
    """The expected results of a retraining."""

    estimates: tuple[AccuracyEstimate, ...]
    """Of every configuration, in the order of the job."""
    replayed: int
    """Samples of earlier windows."""
    held_mib: float = 0.0
    """GPU memory that its process held at most; 0 without a GPU."""


class Begin(Struct, tag=True, frozen=True):
    """The only request to a retrainer."""

    job: TrainingJob
    began_s: float
    """When it was requested, by the monotonic clock."""


class Advanced(Struct, tag=True, frozen=True):
    """The completed share of a job; answers nothing."""

    part: float


class Failed(Struct, tag=True, frozen=True):
    """The job cannot be done."""

    why: str
    again: bool = False
    """Whether a retry may succeed."""
    empty: bool = False
    """Whether samples are missing."""

    def error(self, tenant: str) -> MigratorError:
        kind = TrainingFaultError if self.again else TrainingFailedError
        why = self.why.removeprefix(f"{tenant}: ")
        return (TrainingEmptyError if self.empty else kind)(f"{tenant}: {why}")


FromRetrainer = TrainingResult | EstimateResult | Advanced | Failed


class _RetrainerProcess(ChildProcess):
    """The connection to the process of one job."""

    lost_error, grace_s = TrainingLostError, GRACE_S

    def __init__(self, pid: int, reap: Reaper, progress: Progress | None) -> None:
        super().__init__("the retrainer", pid, FromRetrainer, reap=reap, on_exit=self._on_end)
        self._progress = progress
        self.exited = ""
        """How it ended, in words."""

    def _on_end(self, how: str) -> None:
        self.exited = how

    def on_notice(self, message: Any) -> None:
        if self._progress is not None and isinstance(message, Advanced):
            self._progress(message.part)


class _Running:
    """A job, the task that carries it out, and its process once that is forked."""

    task: asyncio.Task[Any]

    def __init__(self, job: TrainingJob) -> None:
        self.job = job
        self.process: _RetrainerProcess | None = None
        self.ended = ""
        """Why it was ended by us."""

    def end(self, why: str) -> None:
        if not self.ended:
            self.ended = why
            self.task.cancel()


class Trainings:
    """All trainings of a daemon."""

    def __init__(self, log: Path, forkserver: Forkserver) -> None:
        """`log`: the file that all processes append their output to.

        `forkserver`: has built the tenants' models and was started with `PREPARE`.
        """
        self._log, self._forkserver = log, forkserver
        self._running: list[_Running] = []
        self._closed = False

    @property
    def running(self) -> tuple[tuple[str, JobKind], ...]:
        """Tenants with the kind of their running job."""
        return tuple((running.job.tenant, running.job.kind) for running in self._running)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(
            running.process.pid for running in self._running if running.process is not None
        )

    async def train(self, job: TrainingJob, progress: Progress | None = None) -> TrainingResult:
        """Retrain or pre-train; TrainingFailedError, or TrainingLostError if the same job can
        continue."""
        result: TrainingResult = await self._do(job, progress)
        return result

    async def estimate(self, job: TrainingJob) -> EstimateResult:
        result: EstimateResult = await self._do(job)
        return result

    def cancel(self, tenant: str, kind: JobKind | None = None) -> None:
        """End the jobs of a tenant, or those of one kind; their callers get a TrainingLostError."""
        for running in self._running:
            if running.job.tenant == tenant and kind in (None, running.job.kind):
                running.end("it was ended on request")

    async def end_estimates(self, environment: Mapping[str, str]) -> None:
        """End estimates on the instance with this environment. Returns when they have exited."""
        await _end(
            [
                running
                for running in self._running
                if running.job.kind is JobKind.ESTIMATE and running.job.environment == environment
            ],
            "its instance is destroyed",
        )

    async def close(self) -> None:
        """End every process and wait until all have exited."""
        self._closed = True
        await _end(self._running, "the daemon stops")

    async def _do(self, job: TrainingJob, progress: Progress | None = None) -> Any:
        self._require_possible(job)
        running = _Running(job)
        running.task = asyncio.create_task(self._carry_out(running, progress))
        running.task.add_done_callback(lambda _: self._running.remove(running))
        self._running.append(running)
        try:
            await asyncio.wait([running.task])
        finally:  # also where the caller is cancelled
            running.end("its result is not needed")
            await asyncio.wait([running.task])
        if running.task.cancelled():
            raise _lost(job, running.ended)
        return running.task.result()

    async def _carry_out(self, running: _Running, progress: Progress | None) -> Any:
        """Do a job in a process of its own, which has exited at the end in any case."""
        job, began_s = running.job, time.monotonic()
        try:
            process = running.process = await self._forkserver.fork(
                Fork(job.tenant, f"{job.kind} {job.tenant}", _RUNS, self._log.absolute()),
                lambda pid, reap: _RetrainerProcess(pid, reap, progress),
                limit_s=BUILD_S,  # at the start of a daemon the models are still being built
            )
        except WorkerLostError as error:
            raise TrainingLostError(f"{job.tenant}: {error}; start it again") from error
        try:
            frame = await process.request(Begin(job, began_s), limit_s=job.limit_s)
        except TrainingLostError as error:
            await process.wait()
            raise _lost(job, f"{process.exited or error}; see {self._log}") from error
        finally:
            process.kill(running.ended or "its result is here")
            await asyncio.shield(process.wait())
        if isinstance(frame.message, Failed):
            raise frame.message.error(job.tenant)
        return frame.message

    def _require_possible(self, job: TrainingJob) -> None:
        if self._closed:
            raise TrainingLostError(f"{job.tenant}: nothing is trained while the daemon stops")
        home = self._log.parent
        if not home.is_dir():  # the retrainer would create it, and it could not be moved back
            raise TrainingLostError(
                f"{job.tenant}: {home} was moved or deleted; put it back, or restart the daemon"
            )
        if any(running.job.folder == job.folder for running in self._running):
            raise InputError(
                f"{job.folder}: a training uses this folder already; wait for it, or name another"
            )


def _lost(job: TrainingJob, why: str) -> TrainingLostError:
    return TrainingLostError(
        f"{job.tenant}: the {job.kind} was lost ({why}); start it again, it goes on from its last "
        "epoch"
    )


async def _end(ended: Sequence[_Running], why: str) -> None:
    """End these and wait until their processes have exited."""
    tasks = {running.task for running in ended}
    for running in ended:
        running.end(why)
    if tasks:
        await asyncio.wait(tasks)
