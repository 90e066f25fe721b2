"""Starts, monitors and ends retrainings, estimates and pre-trainings.

Each runs in a process of its own on its own instance (`retrainer`), without the daemon's secrets.
Jobs and results are JSON. If a process dies, the same job continues later. This module does not
need torch.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError, MigratorError
from migrator.io.atomic import write_atomically
from migrator.io.child_process import child_environment
from migrator.learn.estimation import AccuracyEstimate, Past
from migrator.learn.retraining import RetrainingSettings
from migrator.serve.workers.messages import ModelSpec

_PATHS = ("weights", "labels", "folder", "data")


class TrainingFailedError(MigratorError):
    """The training cannot be done, and a retry would fail as well."""


class TrainingEmptyError(TrainingFailedError):
    """There are no samples to train on or to judge with until more labels arrive."""


class TrainingLostError(MigratorError):
    """The process died, hung or was ended; a retry continues from its checkpoints."""


class JobKind(StrEnum):
    """The kinds of jobs of a retrainer process."""

    RETRAIN = "retrain"
    ESTIMATE = "estimate"
    PRETRAIN = "pretrain"


@dataclass(frozen=True)
class TrainingJob:
    """One retraining, estimate or pre-training of a tenant's model, on one instance."""

    tenant: str
    model: ModelSpec
    folder: Path
    """The tenant's own folder for checkpoints and the retrained weights."""
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
    """Environment variables of the instance, from its driver."""
    device: str = "cpu"
    pace_s: float | None = None
    """On an emulated instance: minimum duration in seconds, including the start of the process."""
    limit_s: float | None = None
    """Seconds after which it is ended."""
    benchmark: str | None = None
    """For a pre-training: the benchmark whose first scenario is learned."""
    data: Path | None = None
    """For a pre-training: the folder of the benchmark's files."""
    per_class: int | None = None
    """For a pre-training: maximum number of samples per class; None for all."""


@dataclass(frozen=True)
class TrainingResult:
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
    """Seconds from the start of the process to its answer, without those of lost processes."""


@dataclass(frozen=True)
class EstimateResult:
    """The expected result of a retraining."""

    estimate: AccuracyEstimate
    new_classes: tuple[int, ...]
    samples: int
    replayed: int
    """Samples of earlier windows among them."""
    seconds: float
    """Seconds from the start of the process to its answer."""


def job_json(kind: JobKind, job: TrainingJob) -> dict[str, Any]:
    """The job as JSON, without its environment, which is passed to the process instead."""
    told = asdict(job) | {each: _text(getattr(job, each)) for each in _PATHS}
    del told["environment"], told["limit_s"]
    return {"kind": kind, **told}


def job_from(told: Mapping[str, Any]) -> tuple[JobKind, TrainingJob]:
    """Parse a job from JSON; InputError if it is invalid."""
    try:
        values = dict(told)
        kind = JobKind(values.pop("kind"))
        paths = {each: Path(values[each]) for each in _PATHS if values.get(each) is not None}
        made = {
            "model": ModelSpec(**values["model"]),
            "settings": RetrainingSettings(**values["settings"]),
            "past": tuple(Past(**each) for each in values["past"]),
        }
        return kind, TrainingJob(**{**values, **paths, **made})
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"the job is not one of a retrainer ({error}); let `migrator serve` start it"
        ) from error


def training_result(told: Mapping[str, Any]) -> TrainingResult:
    """Parse a result from JSON."""
    weights = None if told["weights"] is None else Path(told["weights"])
    tuples = {each: tuple(told[each]) for each in ("new_classes", "curve")}
    return TrainingResult(**{**told, **tuples, "weights": weights})


def estimate_result(told: Mapping[str, Any]) -> EstimateResult:
    """Parse a result from JSON."""
    said = {**told["estimate"], "curve": tuple(told["estimate"]["curve"])}
    return EstimateResult(
        AccuracyEstimate(**said),
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


_LONGEST_LINE = 2**20
_LAST_BYTES = 4096

Progress = Callable[[float], None]
"""Called with the completed share, at most a few times per second."""


class RetrainerProcess:
    """One retrainer process: imports torch, waits for its job, and exits after it."""

    def __init__(self, process: Process, log: int) -> None:
        self._process = process
        self._log: int | None = log
        self.pid = process.pid
        self.ended: str | None = None
        """Why it was ended by us."""

    @classmethod
    async def started(cls, environment: Mapping[str, str]) -> RetrainerProcess:
        """Start a process with this environment; InputError if that fails."""
        log: int | None = None
        try:
            log = _unnamed()
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "migrator.live.retrainer",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=dict(environment),
                limit=_LONGEST_LINE,
                start_new_session=True,  # Ctrl-C on the terminal is for the daemon only
            )
        except BaseException as error:
            if log is not None:
                os.close(log)
            if isinstance(error, OSError):
                raise InputError(
                    f"no process for a training can be started ({error.strerror or error}); "
                    "end others or make room"
                ) from error
            raise
        return cls(process, log)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.returncode is None

    async def give(self, job_file: Path, environment: Mapping[str, str], began_s: float) -> None:
        """Send the job. If the process has died, `outcome` notices it."""
        assert self._process.stdin is not None
        told = {
            "job": str(job_file),
            "environment": dict(environment),
            "began_s": began_s,
            "parent": os.getpid(),
        }
        with suppress(ConnectionError):
            self._process.stdin.write(json.dumps(told).encode() + b"\n")
            await self._process.stdin.drain()

    async def outcome(self, progress: Progress, limit_s: float | None) -> dict[str, Any]:
        """The final message of the process; empty if it exits without one or exceeds the limit."""
        try:
            async with asyncio.timeout(limit_s):
                return await self._followed(progress)
        except TimeoutError:
            self.end(f"it took longer than {limit_s:g} s")
            return {}

    def end(self, why: str) -> None:
        """Kill it if it still runs."""
        if self.alive:
            self.ended = self.ended or why
            with suppress(ProcessLookupError):
                self._process.kill()

    async def gone(self) -> str:
        """Wait until it has exited. Returns the reason as text."""
        code = await self._process.wait()
        # an unread pipe would be closed only by garbage collection
        assert self._process.stdin is not None
        self._process.stdin.close()
        said, log = "", self._log
        if log is not None:
            self._log, said = None, _last_line(log)
            os.close(log)
        return self.ended or f"its process ended (exit code {code}){said}"

    async def _followed(self, progress: Progress) -> dict[str, Any]:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            try:
                said: dict[str, Any] = json.loads(line)
            except ValueError:
                return {}  # cut off within a line
            if "progress" not in said:
                return said
            progress(said["progress"])
        return {}


def _unnamed() -> int:
    """Create an unlinked file for its error output, which is deleted when it is closed."""
    log, path = tempfile.mkstemp(prefix="retrainer")
    Path(path).unlink()
    return log


def _last_line(log: int) -> str:
    end = os.fstat(log).st_size
    written = os.pread(log, _LAST_BYTES, max(0, end - _LAST_BYTES))
    lines = written.decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""


@dataclass
class _Running:
    """A job, its tenant, and its process once there is one."""

    tenant: str
    kind: JobKind
    folder: Path
    environment: Mapping[str, str]
    """Environment of its instance; empty: on the host."""
    process: RetrainerProcess | None = None
    ended: str | None = None
    """Why it was ended by us."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, why: str) -> None:
        self.ended = self.ended or why
        if self.process is not None:
            self.process.end(why)


def _unwatched(_part: float) -> None:
    """Ignore progress."""


class Trainings:
    """All retrainer processes of a daemon."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """`environment`: passed to the processes without secrets."""
        self._environment = environment
        self._running: list[_Running] = []
        self._spare: list[RetrainerProcess] = []
        self._closed = False

    @property
    def running(self) -> tuple[tuple[str, JobKind], ...]:
        """Tenants with the kind of their running job."""
        return tuple((each.tenant, each.kind) for each in self._running)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of all processes, including those that wait for a job."""
        busy = [each.process for each in self._running if each.process is not None]
        return tuple(each.pid for each in (*busy, *self._spare))

    async def prepare(self, count: int) -> None:
        """Keep `count` processes waiting with torch imported, so that the next jobs begin at
        once."""
        dead = [each for each in self._spare if not each.alive]
        self._spare = [each for each in self._spare if each.alive]
        await asyncio.gather(*(each.gone() for each in dead))
        while len(self._spare) < count and not self._closed:
            self._spare.append(await self._started())

    async def retrain(self, job: TrainingJob, progress: Progress = _unwatched) -> TrainingResult:
        """Retrain on labels; TrainingFailedError, or TrainingLostError if the same job can
        continue."""
        return training_result(await self._done(JobKind.RETRAIN, job, progress))

    async def pretrain(self, job: TrainingJob, progress: Progress = _unwatched) -> TrainingResult:
        """Learn the first scenario of the job's benchmark."""
        return training_result(await self._done(JobKind.PRETRAIN, job, progress))

    async def estimate(self, job: TrainingJob) -> EstimateResult:
        """Estimate the result of a retraining."""
        return estimate_result(await self._done(JobKind.ESTIMATE, job, _unwatched))

    def cancel(self, tenant: str) -> None:
        """End the jobs of a tenant; their callers get a TrainingLostError."""
        for each in self._running:
            if each.tenant == tenant:
                each.end("it was ended on request")

    async def end_estimates(self, environment: Mapping[str, str]) -> None:
        """End estimates on the instance with this environment. Returns when they have exited."""
        on_it = [
            each
            for each in self._running
            if each.kind is JobKind.ESTIMATE and each.environment == environment
        ]
        for each in on_it:
            each.end("its instance is destroyed")
        await asyncio.gather(*(each.gone.wait() for each in on_it))

    async def close(self) -> None:
        """End every process and wait until all have exited."""
        self._closed = True
        spare, self._spare = self._spare, []
        for each in spare:
            each.end("the daemon stops")
        for running in self._running:
            running.end("the daemon stops")
        waiting = [running.gone.wait() for running in self._running]
        await asyncio.gather(*waiting, *(each.gone() for each in spare))

    async def _done(self, kind: JobKind, job: TrainingJob, progress: Progress) -> Mapping[str, Any]:
        began_s = time.monotonic()
        async with self._process(kind, job) as process:
            await process.give(_written(kind, job), job.environment, began_s)
            said = await process.outcome(progress, job.limit_s)
            if "result" in said:
                result: Mapping[str, Any] = said["result"]
                return result
            if "failed" in said:
                raise _failure(said)(f"{job.tenant}: {said['failed']}")
            raise TrainingLostError(
                f"{job.tenant}: the {kind} was lost, {await process.gone()}; start it again, it "
                "goes on from its last epoch"
            )

    @asynccontextmanager
    async def _process(self, kind: JobKind, job: TrainingJob) -> AsyncIterator[RetrainerProcess]:
        """A process for the job; it has exited at the end in any case."""
        running = self._admitted(kind, job)
        try:
            running.process = process = await self._taken()
            try:
                if running.ended is not None:
                    process.end(running.ended)
                yield process
            finally:
                process.end("its result is not needed")
                await asyncio.shield(process.gone())
        finally:
            self._running.remove(running)
            running.gone.set()

    def _admitted(self, kind: JobKind, job: TrainingJob) -> _Running:
        if self._closed:
            raise TrainingLostError(f"{job.tenant}: nothing is trained while the daemon stops")
        if any(each.folder == job.folder for each in self._running):
            raise InputError(
                f"{job.folder}: a training uses this folder already; wait for it, or name another"
            )
        running = _Running(job.tenant, kind, job.folder, job.environment)
        self._running.append(running)
        return running

    async def _taken(self) -> RetrainerProcess:
        while self._spare:
            process = self._spare.pop(0)
            if process.alive:
                return process
            await process.gone()
        return await self._started()

    async def _started(self) -> RetrainerProcess:
        return await RetrainerProcess.started(child_environment(self._environment))


def _failure(said: Mapping[str, Any]) -> type[MigratorError]:
    if said["again"]:
        return TrainingLostError
    return TrainingEmptyError if said.get("empty") else TrainingFailedError


def _written(kind: JobKind, job: TrainingJob) -> Path:
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        path = job.folder / f"{kind}.json"
        with write_atomically(path) as unfinished:
            unfinished.write_text(json.dumps(job_json(kind, job)), encoding="utf-8")
    except (OSError, InputError) as error:
        raise TrainingFailedError(
            f"{job.tenant}: {job.folder} cannot be written ({error}); make room or rights there"
        ) from error
    return path
