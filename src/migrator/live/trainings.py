"""Retrainings, estimations and pre-trainings as the daemon sees them: started, followed, ended.

Each is a process of its own on its own instance (`retrainer`), without the daemon's secrets. It
is never interrupted unless asked to, or past its limit; if it dies, the same job goes on later.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError, MigratorError
from migrator.learn.atomic import written_whole
from migrator.live.retrainer_process import Progress, RetrainerProcess
from migrator.live.training_job import (
    EstimateResult,
    JobKind,
    TrainingEmptyError,
    TrainingFailedError,
    TrainingJob,
    TrainingLostError,
    TrainingResult,
    estimate_result,
    job_json,
    training_result,
)
from migrator.serve.scrubbed import scrubbed


@dataclass
class _Running:
    """What is done for whom, and by which process once it is there."""

    tenant: str
    kind: JobKind
    folder: Path
    environment: Mapping[str, str]
    """Of its instance; empty: on the host."""
    process: RetrainerProcess | None = None
    ended: str | None = None
    """Why we ended it."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, why: str) -> None:
        self.ended = self.ended or why
        if self.process is not None:
            self.process.end(why)


def _unwatched(_part: float) -> None:
    """Progress where nobody looks."""


class Trainings:
    """All retrainer processes of a daemon."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """`environment`: what processes get of it is scrubbed."""
        self._environment = environment
        self._running: list[_Running] = []
        self._spare: list[RetrainerProcess] = []
        self._closed = False

    @property
    def running(self) -> tuple[tuple[str, JobKind], ...]:
        """Tenants and what is done for them now."""
        return tuple((each.tenant, each.kind) for each in self._running)

    @property
    def pids(self) -> tuple[int, ...]:
        """Of all processes, those that wait for a job too."""
        busy = [each.process for each in self._running if each.process is not None]
        return tuple(each.pid for each in (*busy, *self._spare))

    async def prepare(self, count: int) -> None:
        """Have so many processes waiting, torch imported: the next jobs begin at once."""
        dead = [each for each in self._spare if not each.alive]
        self._spare = [each for each in self._spare if each.alive]
        await asyncio.gather(*(each.gone() for each in dead))
        while len(self._spare) < count and not self._closed:
            self._spare.append(await self._started())

    async def retrain(self, job: TrainingJob, progress: Progress = _unwatched) -> TrainingResult:
        """Retrain on labels; TrainingFailedError, TrainingLostError (the same job goes on)."""
        return training_result(await self._done(JobKind.RETRAIN, job, progress))

    async def pretrain(self, job: TrainingJob, progress: Progress = _unwatched) -> TrainingResult:
        """Learn the first scenario of the job's benchmark."""
        return training_result(await self._done(JobKind.PRETRAIN, job, progress))

    async def estimate(self, job: TrainingJob) -> EstimateResult:
        """What a retraining would bring."""
        return estimate_result(await self._done(JobKind.ESTIMATE, job, _unwatched))

    def cancel(self, tenant: str) -> None:
        """End what is done for a tenant; whoever waits for it gets a TrainingLostError."""
        for each in self._running:
            if each.tenant == tenant:
                each.end("it was ended on request")

    async def end_estimates(self, environment: Mapping[str, str]) -> None:
        """End estimates on the instance with this environment; returns when they are gone."""
        on_it = [
            each
            for each in self._running
            if each.kind is JobKind.ESTIMATE and each.environment == environment
        ]
        for each in on_it:
            each.end("its instance is destroyed")
        await asyncio.gather(*(each.gone.wait() for each in on_it))

    async def close(self) -> None:
        """End every process and wait until all are gone."""
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
            said = await process.last_word(progress, job.limit_s)
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
        """One for the job, and gone at the end whatever happens."""
        running = self._admitted(kind, job)
        try:
            running.process = process = await self._taken()
            try:
                if running.ended is not None:
                    process.end(running.ended)
                yield process
            finally:
                process.end("nobody waits for it any more")
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
        return await RetrainerProcess.started(scrubbed(self._environment))


def _failure(said: Mapping[str, Any]) -> type[MigratorError]:
    if said["again"]:
        return TrainingLostError
    return TrainingEmptyError if said.get("empty") else TrainingFailedError


def _written(kind: JobKind, job: TrainingJob) -> Path:
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        path = job.folder / f"{kind}.json"
        with written_whole(path) as unfinished:
            unfinished.write_text(json.dumps(job_json(kind, job)), encoding="utf-8")
    except (OSError, InputError) as error:
        raise TrainingFailedError(
            f"{job.tenant}: {job.folder} cannot be written ({error}); make room or rights there"
        ) from error
    return path
