"""What the tenants' models learn while they serve: first versions, estimates, retrainings, swaps.

The training itself happens in processes of their own (`trainings`); here is decided what they
learn from, and a new version takes over only once it is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from migrator.core.catalogue import Board
from migrator.core.errors import InputError, MigratorError
from migrator.core.instance import Instance, Kind, Task
from migrator.core.share import Holding, sms_of
from migrator.learn.estimation import Estimate
from migrator.learn.retraining import Settings
from migrator.live.tenant_run import FEWEST_LABELS, Phase, TenantRun
from migrator.live.training_job import (
    JobKind,
    TrainingEmptyError,
    TrainingJob,
    TrainingLostError,
    TrainingResult,
)
from migrator.live.trainings import Trainings
from migrator.live.versions import Version, Versions
from migrator.serve.assignment import ModelSpec

PRETRAIN_TRIES = 3
"""A pre-training whose process is lost goes on from its checkpoints, so often."""
LEAST_LIMIT_S, SLOWEST = 120.0, 10.0
"""A training that takes longer, and so many times what was planned, hangs and is ended."""
ESTIMATE_LIMIT_S = 300.0
TAKE_OVER_LIMIT_S = 120.0
"""A swap, or a shared store, that takes longer must not hold up the next retraining."""

_log = logging.getLogger(__name__)

Told = Callable[[str, TrainingResult, Version | None], None]
Adopted = Callable[[str, Version], Awaitable[None]]
WholeGpu = Callable[[], AbstractAsyncContextManager[Mapping[str, str] | None]]
"""The GPU for oneself for a while: its environment, None where trainings run on the host."""


@dataclass(frozen=True)
class Where:
    """What trainings need to know of the machine."""

    folder: Path
    labels: Path
    board: Board
    device: str
    emulated: bool
    """Trainings take as long as the profile says, not as long as this machine needs."""


class Learning:
    """The models of all tenants, version by version."""

    def __init__(
        self,
        where: Where,
        tenants: Mapping[str, TenantRun],
        specs: Mapping[str, ModelSpec],
        trainings: Trainings,
        adopted: Adopted,
        told: Told,
    ) -> None:
        self._where, self._tenants, self._specs = where, tenants, specs
        self._trainings, self._adopted, self._told = trainings, adopted, told
        self.versions = {name: Versions(where.folder / "models", name) for name in tenants}
        self._estimates: dict[str, Estimate] = {}
        self._changing = {name: asyncio.Lock() for name in tenants}
        """One model takes over at a time."""
        self._taking: set[asyncio.Task[None]] = set()

    async def first_versions(self, whole: WholeGpu) -> None:
        """Something to serve with: the last good version, given weights, or a pre-training.

        `whole`: the GPU to pre-train on, asked for only where somebody needs it.
        """
        tenants = list(self._tenants.values())
        found = list(await asyncio.gather(*map(self._known, tenants)))
        new = [at for at, each in enumerate(found) if each is None and tenants[at].live.benchmark]
        if new:
            async with whole() as environment:
                made = [self._pretrained(tenants[at], environment) for at in new]
                for at, first in zip(new, await asyncio.gather(*made), strict=True):
                    found[at] = first
        for tenant, version in zip(self._tenants.values(), found, strict=True):
            if version is not None:
                tenant.goes_on_from(version)

    async def first_version(self, tenant: TenantRun) -> None:
        """The same for one that comes while others are served: a pre-training is on the host."""
        self.versions_of(tenant.name)
        found = await self._known(tenant)
        if found is None and tenant.live.benchmark:
            found = await self._pretrained(tenant, None)
        if found is not None:
            tenant.goes_on_from(found)

    def versions_of(self, name: str) -> Versions:
        """Of a tenant that is here, or about to come."""
        self._changing.setdefault(name, asyncio.Lock())
        return self.versions.setdefault(name, Versions(self._where.folder / "models", name))

    async def roll_back(self, name: str) -> Version | None:
        """The last good version before the one that serves takes over; None: there is none.

        A retraining that runs began from what is withdrawn: its model will not be adopted.
        """
        tenant, versions = self._tenants[name], self.versions[name]
        async with self._changing[name]:
            serving = tenant.version
            if serving is None or not versions.earlier(serving.number):
                return None
            before = await asyncio.to_thread(versions.roll_back, serving.number)
            tenant.goes_on_from(before)
            tenant.estimate = None
            await self._adopted(name, before)
        return before

    async def estimate(
        self,
        name: str,
        window: int,
        environment: Mapping[str, str] | None = None,
        most_samples: int | None = None,
    ) -> None:
        """What a retraining on this window's labels would bring; kept for the next plan.

        `environment`: of the instance to try it on; None: on the host. `most_samples`: that the
        retraining may train on; None: all.
        """
        tenant = self._tenants[name]
        if (name, JobKind.ESTIMATE) in self._trainings.running:
            return  # the one before still runs: what it says will do
        try:
            job = self._job(tenant, window, "estimate", environment)
            job = replace(job, limit_s=ESTIMATE_LIMIT_S, most_samples=most_samples)
            said = await self._trainings.estimate(job)
        except MigratorError as error:
            _log.warning(
                "%s: no estimate (%s); the one before, or the usual gain, is assumed", name, error
            )
            return
        tenant.estimate, tenant.replayed = said.estimate.accuracy, said.replayed
        tenant.estimated_for = window + 1
        self._estimates[name] = said.estimate

    async def end_estimates(self, environment: Mapping[str, str]) -> None:
        """End those on the instance with this environment, which is to be destroyed."""
        await self._trainings.end_estimates(environment)

    async def train(self, name: str, instance: Holding, environment: Mapping[str, str]) -> str:
        """Retrain on the instance to the end; what came of it in words."""
        tenant = self._tenants[name]
        job = tenant.retraining
        if job is None or job.phase is Phase.DONE:
            return "there is nothing to retrain on"
        job.phase, job.since = Phase.RUNNING, min(tenant.since, job.window - 1)
        began_s = time.monotonic()
        began_from = tenant.version

        def progress(part: float) -> None:
            job.progress = part

        try:
            if isinstance(instance, Instance):
                instance = replace(instance, task=Task(name, Kind.RETRAINING))
            job.on = instance
            planned_s = job.seconds.at(sms_of(self._where.board, instance))
            pace_s = planned_s if self._where.emulated else None
            asked = replace(
                self._job(tenant, job.window - 1, "retrain", environment, pace_s),
                limit_s=max(LEAST_LIMIT_S, SLOWEST * planned_s * job.slower),
                most_samples=job.most_samples,
            )
            result = await self._trainings.retrain(asked, progress)
            tenant.took(planned_s, time.monotonic() - began_s)
            async with self._changing[name]:
                why = await self._judged(tenant, job.window, result, began_from)
            job.phase = Phase.DONE
            return why
        except TrainingEmptyError as error:
            tenant.end_without_samples(job)
            return f"not retrained: {error}"
        except Exception as error:
            raise _as_ours(name, error) from error
        finally:
            if job.phase is Phase.RUNNING:
                # a model that could not be kept was not learned either: it may be tried again
                job.phase, job.on = Phase.WAITING, None

    async def _judged(
        self,
        tenant: TenantRun,
        window: int,
        result: TrainingResult,
        began_from: Version | None,
    ) -> str:
        """It takes over or not; why."""
        if began_from is not None and tenant.version != began_from:
            why = f"it began from version {began_from.number}, which was rolled back meanwhile"
            self._told(tenant.name, replace(result, adopted=False, why=why), None)
            return why
        estimate = self._estimates.pop(tenant.name, None)
        if estimate is not None:
            served = result.accuracy_after if result.adopted else result.accuracy_before
            tenant.past.append(estimate.past(served))
        version = None
        if result.adopted and result.weights is not None:
            about = {
                "window": window,
                "new_classes": list(result.new_classes),
                "slower": round(tenant.slower, 3),
            }
            versions = self.versions[tenant.name]
            version = await asyncio.to_thread(
                versions.add, result.weights, result.accuracy_after, about
            )
            tenant.version, tenant.accuracy = version, result.accuracy_after
        tenant.since = window
        # the instance is free meanwhile: large weights take seconds to reach every worker
        taking = asyncio.create_task(self._takes_over(tenant, result, version))
        self._taking.add(taking)
        taking.add_done_callback(self._taking.discard)
        return result.why

    async def _takes_over(
        self, tenant: TenantRun, result: TrainingResult, version: Version | None
    ) -> None:
        async with self._changing[tenant.name]:
            if version is not None and tenant.version == version:
                try:
                    await asyncio.wait_for(self._adopted(tenant.name, version), TAKE_OVER_LIMIT_S)
                except TimeoutError:
                    words = "%s: version %d did not reach every worker and store within %g s"
                    _log.error(words, tenant.name, version.number, TAKE_OVER_LIMIT_S)
            self._told(tenant.name, result, version)

    async def _known(self, tenant: TenantRun) -> Version | None:
        versions = self.versions[tenant.name]
        found = await asyncio.to_thread(versions.newest_good)
        if found is not None:
            return found
        if tenant.live.weights is not None:
            return await asyncio.to_thread(
                versions.add, tenant.live.weights, None, {"from": tenant.live.weights.name}
            )
        return None

    async def _pretrained(
        self, tenant: TenantRun, environment: Mapping[str, str] | None
    ) -> Version:
        versions = self.versions[tenant.name]
        result = await self._first_trained(self._job(tenant, 0, "pretrain", environment))
        if result.weights is None:
            raise InputError(f"{tenant.name}: pre-training gave no model ({result.why})")
        if environment is not None:
            # on a GPU it tells how long retrainings really take, data and judging counted in
            whole_s = tenant.live.training_s(result.samples).at(self._where.board.sms)
            tenant.took(whole_s, result.seconds)
        about = {"pre-trained": True, "slower": round(tenant.slower, 3)}
        return await asyncio.to_thread(versions.add, result.weights, result.accuracy_after, about)

    async def _first_trained(self, job: TrainingJob) -> TrainingResult:
        for _ in range(PRETRAIN_TRIES - 1):
            try:
                return await self._trainings.pretrain(job)
            except TrainingLostError as error:
                _log.warning("%s", error)
        return await self._trainings.pretrain(job)

    def _job(
        self,
        tenant: TenantRun,
        window: int,
        folder: str,
        environment: Mapping[str, str] | None = None,
        pace_s: float | None = None,
    ) -> TrainingJob:
        live = tenant.live
        return TrainingJob(
            tenant=tenant.name,
            model=self._specs[tenant.name],
            folder=self._where.folder / "trainings" / tenant.name / folder,
            weights=tenant.version.weights if tenant.version else None,
            labels=self._where.labels,
            window=window,
            since=min(tenant.since, window),
            settings=Settings(epochs=live.epochs, seed=live.seed),
            replay=live.replay,
            held_out=live.held_out,
            past=tuple(tenant.past),
            environment=environment or {},
            device=self._where.device if environment else "cpu",
            pace_s=pace_s,
            benchmark=live.benchmark,
        )


def _as_ours(tenant: str, error: Exception) -> MigratorError:
    """Whatever went wrong, whoever waits for the training must hear that it ended."""
    if isinstance(error, MigratorError):
        return error
    _log.error("%s: a training failed in a way nobody thought of", tenant, exc_info=error)
    return TrainingLostError(f"{tenant}: {type(error).__name__}: {error}; see the daemon's log")


def enough(labelled: int) -> bool:
    """Whether there is anything to estimate on."""
    return labelled >= FEWEST_LABELS
