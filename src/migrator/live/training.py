"""Starts, monitors and ends retrainings, estimates and pre-trainings.

Each runs in a process of its own on its own instance (`retrainer`), without the daemon's secrets.
If a process dies, the same job continues later. This module does not need torch.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from migrator.core.errors import InputError, MigratorError
from migrator.io.child_process import ChildLostError, ChildProcess, exit_status, spawn
from migrator.learn.estimation import AccuracyEstimate, Past
from migrator.learn.laps import EPOCHS
from migrator.learn.retraining import FIRST_STEPS, RetrainingSettings
from migrator.serve.workers.messages import ModelSpec

_A_DAY_S = 86_400.0

_log = logging.getLogger(__name__)

Progress = Callable[[float], None]
"""Called with the completed share, at most a few times per second."""


class TrainingFailedError(MigratorError):
    """The training cannot be done, and a retry would fail as well."""


class TrainingEmptyError(TrainingFailedError):
    """There are no samples to train on or to judge with until more labels arrive."""


class TrainingLostError(ChildLostError):
    """The process died, hung or was ended; a retry continues from its checkpoints."""


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
    weights: Path | None = None
    """Weights of the serving model; None: as built."""
    labels: Path | None = None
    """The file of the labels. A pre-training stores its replay samples there."""
    window: int = 0
    """The last window whose labels are learned."""
    since: int | None = None
    """The first window whose labels are learned; None: `window`."""
    settings: RetrainingSettings = field(default_factory=RetrainingSettings)
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
    accuracy_new_before: float
    accuracy_new_after: float
    """The same on new classes only."""
    new_classes: tuple[int, ...]
    samples: int
    """Training samples, including replayed ones."""
    curve: tuple[float, ...]
    """Accuracy after every epoch."""
    epochs_resumed: int
    """Epochs taken from the checkpoints of a lost process."""
    seconds: float
    """Seconds from the request to the answer, without those of lost processes."""
    start_s: float
    """Of these: the start of the process and the construction of the model on its instance.
    Plans count them as the overhead of a new instance."""
    parts_s: Mapping[str, float] = msgspec.field(default_factory=dict)
    """These seconds by part, as `learn.laps` names them."""
    steps: int = 0
    """Training steps, without those of lost processes."""

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
    """The expected result of a retraining."""

    estimate: AccuracyEstimate
    new_classes: tuple[int, ...]
    samples: int
    replayed: int
    """Samples of earlier windows among them."""
    seconds: float
    """Seconds from the start of the process to its answer."""


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
        """The exception for it."""
        kind = TrainingLostError if self.again else TrainingFailedError
        return (TrainingEmptyError if self.empty else kind)(f"{tenant}: {self.why}")


FromRetrainer = TrainingResult | EstimateResult | Advanced | Failed


class RetrainerProcess(ChildProcess):
    """One retrainer process: imports models, waits for its job, and exits after it."""

    lost_error = TrainingLostError

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        async def reap(_pid: int) -> str:
            return exit_status(popen.wait())

        super().__init__("the retrainer", popen.pid, FromRetrainer, reap=reap, on_exit=self._on_end)
        self.progress: Progress | None = None
        self.model: ModelSpec | None = None
        """The model that it builds while it waits."""
        self.exited = ""
        """How it ended, in words."""

    def _on_end(self, how: str) -> None:
        self.exited = how

    @classmethod
    async def start(cls, log: Path, model: ModelSpec | None = None) -> RetrainerProcess:
        """Start a process that writes to `log`; InputError if that fails.

        `model`: what it imports and builds before its job arrives.
        """
        built = () if model is None else (built_model(model),)
        try:
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    command = ["migrator.live.retrainer", str(theirs.fileno()), *built]
                    process = cls(spawn(command, log, [theirs.fileno()]))
            except BaseException:
                ours.close()
                raise
        except OSError as error:
            raise InputError(
                f"no process for a training can be started ({error.strerror or error}); end others "
                f"or make room for {log}"
            ) from error
        await process.connect(ours)
        process.model = model
        return process

    def on_notice(self, message: Any) -> None:
        """Pass progress on."""
        if self.progress is not None and isinstance(message, Advanced):
            self.progress(message.part)


@dataclass
class _Running:
    """A job and its process once there is one."""

    job: TrainingJob
    process: RetrainerProcess | None = None
    ended: str | None = None
    """Why it was ended by us."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, why: str) -> None:
        self.ended = self.ended or why
        if self.process is not None:
            self.process.kill(why)


class Trainings:
    """All retrainer processes of a daemon."""

    def __init__(self, log: Path) -> None:
        """`log`: the file that all processes append their output to."""
        self._log = log
        self._running: list[_Running] = []
        self._spare: list[RetrainerProcess] = []
        self._wanted: tuple[ModelSpec, ...] = ()
        self._filling = asyncio.Lock()
        self._fills: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def running(self) -> tuple[tuple[str, JobKind], ...]:
        """Tenants with the kind of their running job."""
        return tuple((each.job.tenant, each.job.kind) for each in self._running)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of all processes, including those that wait for a job."""
        busy = [each.process for each in self._running if each.process is not None]
        return tuple(each.pid for each in (*busy, *self._spare))

    async def prepare(self, models: Iterable[ModelSpec]) -> None:
        """Keep a process waiting for each of these models from now on, with the model built on the
        host, so that the next jobs begin at once."""
        self._wanted = tuple(models)
        await self._fill()

    async def train(self, job: TrainingJob, progress: Progress | None = None) -> TrainingResult:
        """Retrain or pre-train; TrainingFailedError, or TrainingLostError if the same job can
        continue."""
        result: TrainingResult = await self._do(job, progress)
        return result

    async def estimate(self, job: TrainingJob) -> EstimateResult:
        """Estimate the result of a retraining."""
        result: EstimateResult = await self._do(job)
        return result

    def cancel(self, tenant: str, kind: JobKind | None = None) -> None:
        """End the jobs of a tenant, or those of one kind; their callers get a TrainingLostError."""
        for each in self._running:
            if each.job.tenant == tenant and kind in (None, each.job.kind):
                each.end("it was ended on request")

    async def end_estimates(self, environment: Mapping[str, str]) -> None:
        """End estimates on the instance with this environment. Returns when they have exited."""
        on_it = [
            each
            for each in self._running
            if each.job.kind is JobKind.ESTIMATE and each.job.environment == environment
        ]
        for each in on_it:
            each.end("its instance is destroyed")
        await asyncio.gather(*(each.gone.wait() for each in on_it))

    async def close(self) -> None:
        """End every process and wait until all have exited."""
        self._closed = True
        for running in self._running:
            running.end("the daemon stops")
        async with self._filling:  # so that none is about to start
            spare, self._spare = self._spare, []
            await _end(spare, "the daemon stops")
        await asyncio.gather(*(running.gone.wait() for running in self._running))
        await asyncio.gather(*self._fills, return_exceptions=True)

    async def _do(self, job: TrainingJob, progress: Progress | None = None) -> Any:
        began_s = time.monotonic()
        async with self._process(job) as process:
            process.progress = progress
            try:
                frame = await process.request(Begin(job, began_s), limit_s=job.limit_s)
            except TrainingLostError as error:
                await process.wait()
                raise TrainingLostError(
                    f"{job.tenant}: the {job.kind} was lost ({process.exited or error}); start it "
                    f"again, it goes on from its last epoch; see {self._log}"
                ) from error
        if isinstance(frame.message, Failed):
            raise frame.message.error(job.tenant)
        return frame.message

    @asynccontextmanager
    async def _process(self, job: TrainingJob) -> AsyncIterator[RetrainerProcess]:
        """A process for the job; it has exited at the end in any case."""
        running = self._admit(job)
        try:
            running.process = process = await self._take(job.model)
            try:
                if running.ended is not None:
                    process.kill(running.ended)
                yield process
            finally:
                process.kill("its result is not needed")
                await asyncio.shield(process.wait())
        finally:
            self._running.remove(running)
            running.gone.set()
            self._refill()

    def _admit(self, job: TrainingJob) -> _Running:
        if self._closed:
            raise TrainingLostError(f"{job.tenant}: nothing is trained while the daemon stops")
        if any(each.job.folder == job.folder for each in self._running):
            raise InputError(
                f"{job.folder}: a training uses this folder already; wait for it, or name another"
            )
        running = _Running(job)
        self._running.append(running)
        return running

    async def _take(self, model: ModelSpec) -> RetrainerProcess:
        alive = [each for each in self._spare if each.alive]
        same = [each for each in alive if each.model == model]
        if not alive:
            return await RetrainerProcess.start(self._log)
        process = (same or alive)[0]
        self._spare.remove(process)
        return process

    async def _fill(self) -> None:
        """Start the processes that are missing, and end those whose model no tenant has."""
        async with self._filling:
            missing = Counter(self._wanted)
            kept: list[RetrainerProcess] = []
            others: list[RetrainerProcess] = []
            for each in (each for each in self._spare if each.alive):
                if each.model is not None and missing[each.model] > 0:
                    missing[each.model] -= 1
                    kept.append(each)
                else:
                    others.append(each)
            self._spare = kept
            await _end(others, "no tenant has its model")
            for model in missing.elements():
                if not self._closed:
                    process = await RetrainerProcess.start(self._log, model)
                    self._spare.append(process)

    def _refill(self) -> None:
        """Replace the processes that were used, once their jobs have ended."""
        if self._wanted and not self._closed:
            task = asyncio.create_task(self._fill())
            self._fills.add(task)
            task.add_done_callback(self._on_filled)

    def _on_filled(self, task: asyncio.Task[None]) -> None:
        self._fills.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.warning("no process waits for the next training: %s", error)


async def _end(processes: Sequence[RetrainerProcess], why: str) -> None:
    """Kill processes and wait until they have exited."""
    for each in processes:
        each.kill(why)
    await asyncio.gather(*(each.wait() for each in processes))


def built_model(model: ModelSpec) -> str:
    """What a waiting process needs to build the model, as an argument of its command."""
    return json.dumps([model.model, model.classes, model.seed, model.pixels])
