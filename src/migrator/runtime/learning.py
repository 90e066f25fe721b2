"""What the tenants' models learn while they serve: first versions, estimates, retrainings, swaps.

The training itself happens in processes of their own (`trainings`); here is decided what they
learn from, and a new version takes over only once it is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from migrator.core.catalogue import Board
from migrator.core.errors import InputError, MigratorError
from migrator.core.instance import Instance, Kind, Task
from migrator.learn.estimation import Estimate
from migrator.learn.retraining import Settings
from migrator.runtime.tenant_run import FEWEST_LABELS, Phase, TenantRun
from migrator.runtime.training_job import JobKind, TrainingJob, TrainingResult
from migrator.runtime.trainings import Trainings
from migrator.runtime.versions import Version, Versions
from migrator.serve.assignment import ModelSpec

_log = logging.getLogger(__name__)

Told = Callable[[str, TrainingResult, Version | None], None]
Adopted = Callable[[str, Version], Awaitable[None]]


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

    async def first_versions(self) -> None:
        """Something to serve with: the last good version, given weights, or a pre-training."""
        found = await asyncio.gather(*map(self._first, self._tenants.values()))
        for tenant, version in zip(self._tenants.values(), found, strict=True):
            tenant.version = version
            if version is not None:
                tenant.since = int(version.about.get("window", 0))
                if version.accuracy is not None:
                    tenant.accuracy = version.accuracy

    async def estimate(self, name: str, window: int) -> None:
        """What a retraining on this window's labels would bring; kept for the next plan."""
        tenant = self._tenants[name]
        if (name, JobKind.ESTIMATE) in self._trainings.running:
            return  # the one before still runs: what it says will do
        try:
            said = await self._trainings.estimate(self._job(tenant, window, "estimate"))
        except MigratorError as error:
            _log.warning("%s: no estimate (%s); the usual gain is assumed", name, error)
            return
        tenant.estimate = said.estimate.accuracy
        self._estimates[name] = said.estimate

    async def train(self, name: str, instance: Instance, environment: Mapping[str, str]) -> str:
        """Retrain on the instance to the end; what came of it in words."""
        tenant = self._tenants[name]
        job = tenant.retraining
        if job is None or job.phase is Phase.DONE:
            return "there is nothing to retrain on"
        job.phase = Phase.RUNNING
        job.on = replace(instance, task=Task(name, Kind.RETRAINING))
        planned_s = job.seconds.at(self._where.board.sms_of(instance.gpcs))
        pace_s = planned_s if self._where.emulated else None
        began_s = time.monotonic()
        asked = self._job(tenant, job.window - 1, "retrain", environment, pace_s)

        def progress(part: float) -> None:
            job.progress = part

        try:
            result = await self._trainings.retrain(asked, progress)
        except MigratorError:
            job.phase, job.on = Phase.WAITING, None
            raise
        job.phase = Phase.DONE
        tenant.took(planned_s, time.monotonic() - began_s)
        await self._judged(tenant, job.window, result)
        return result.why

    async def _judged(self, tenant: TenantRun, window: int, result: TrainingResult) -> None:
        estimate = self._estimates.pop(tenant.name, None)
        if estimate is not None:
            served = result.accuracy_after if result.adopted else result.accuracy_before
            tenant.past.append(estimate.past(served))
        tenant.since = window
        version = None
        if result.adopted and result.weights is not None:
            about = {"window": window, "new_classes": list(result.new_classes)}
            versions = self.versions[tenant.name]
            version = await asyncio.to_thread(
                versions.add, result.weights, result.accuracy_after, about
            )
            tenant.version, tenant.accuracy = version, result.accuracy_after
            await self._adopted(tenant.name, version)
        self._told(tenant.name, result, version)

    async def _first(self, tenant: TenantRun) -> Version | None:
        versions = self.versions[tenant.name]
        found = await asyncio.to_thread(versions.newest_good)
        if found is not None:
            return found
        if tenant.live.weights is not None:
            return await asyncio.to_thread(
                versions.add, tenant.live.weights, None, {"from": tenant.live.weights.name}
            )
        if tenant.live.benchmark is None:
            return None
        result = await self._trainings.pretrain(self._job(tenant, 0, "pretrain"))
        if result.weights is None:
            raise InputError(f"{tenant.name}: pre-training gave no model ({result.why})")
        return await asyncio.to_thread(
            versions.add, result.weights, result.accuracy_after, {"pre-trained": True}
        )

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


def enough(labelled: int) -> bool:
    """Whether there is anything to estimate on."""
    return labelled >= FEWEST_LABELS
