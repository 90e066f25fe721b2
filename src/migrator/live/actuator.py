"""Carries out the executor's instructions on the GPU and reports their outcomes as events.

Every instruction runs in a task of its own, so that it waits only for its own instance. Changes of
the GPU itself run one at a time (`gpu_thread`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from migrator.control.events import (
    Create,
    Created,
    CreateFailed,
    Destroy,
    Destroyed,
    DestroyFailed,
    Drain,
    Drained,
    Event,
    Instruction,
    Ready,
    Replan,
    Stopped,
    StopWorker,
    Train,
    TrainingEnded,
    Warm,
    WorkerLost,
)
from migrator.control.tenant_state import TenantState
from migrator.core.catalogue import Board
from migrator.core.errors import MigratorError
from migrator.core.share import Holding, Share, bare, sms_of
from migrator.live.gpu_thread import GpuThread
from migrator.live.learning import Learning
from migrator.serve.router.router import Router
from migrator.serve.workers.messages import Assignment, ModelSpec
from migrator.serve.workers.pool import ServingWorker, Workers

_log = logging.getLogger(__name__)


class TenantWork(Protocol):
    """What the actuator needs to know about tenants."""

    def assignment(
        self, tenant: str, instance: Holding, environment: Mapping[str, str]
    ) -> Assignment:
        """The assignment of a worker on the instance: the newest version of the tenant's model."""
        ...

    def latency_s(self, tenant: str, instance: Holding) -> Callable[[int], float]:
        """A function from the batch size to the seconds of a batch on the instance."""
        ...

    def train(
        self, tenant: str, instance: Holding, environment: Mapping[str, str]
    ) -> Awaitable[str]:
        """Retrain on the instance to the end. Returns why the model was adopted or refused;
        MigratorError if it failed."""
        ...

    def end_estimates(self, environment: Mapping[str, str]) -> Awaitable[None]:
        """End estimates on the instance with this environment. Returns when they have released
        it."""
        ...


@dataclass(frozen=True)
class Overhead:
    """The parts of the time until a new instance served."""

    tenant: str
    parts_s: Mapping[str, float]


class Actuator:
    """Carries out the executor's instructions and reports their outcomes."""

    def __init__(
        self,
        lane: GpuThread,
        workers: Workers,
        router: Router,
        duties: TenantWork,
        tell: Callable[[Event], None],
    ) -> None:
        self._lane, self._workers, self._router = lane, workers, router
        self._duties, self._tell = duties, tell
        self.serving: dict[Holding, ServingWorker] = {}
        self.overheads: dict[Holding, Overhead] = {}
        """Overheads of the serving instances."""
        self._create_s: dict[Holding, float] = {}
        self._warming: dict[Holding, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        workers.lost = self._lost

    def do(self, instruction: Instruction) -> None:
        """Begin to carry out an instruction; the outcome arrives as an event."""
        match instruction:
            case Create(instance):
                self._begin(self._create(instance))
            case Destroy(instance):
                self._begin(self._destroy(instance))
            case Warm(instance, tenant):
                task = self._begin(self._warm(instance, tenant))
                self._warming[bare(instance)] = task
            case Drain(instance, _):
                self._begin(self._drain(instance))
            case StopWorker(instance):
                self._begin(self._stop(instance))
            case Train(instance, tenant):
                self._begin(self._train(instance, tenant))
            case Replan(_):
                pass  # the planning loop handles it

    def workers_of(self, tenant: str) -> list[ServingWorker]:
        """The workers that serve a tenant."""
        return [each for each in self.serving.values() if each.assignment.tenant == tenant]

    async def close(self) -> None:
        """Cancel everything that is running."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error(
                "an instruction failed in a way nobody thought of", exc_info=task.exception()
            )

    async def _create(self, instance: Holding) -> None:
        began = time.monotonic()
        try:
            await self._lane.create(instance)
        except Exception as error:
            self._tell(CreateFailed(instance, _why(error)))
            return
        self._create_s[bare(instance)] = time.monotonic() - began
        self._tell(Created(instance))

    async def _destroy(self, instance: Holding) -> None:
        try:
            environment = self._lane.known_environment(instance)
            if environment is not None:
                await self._duties.end_estimates(environment)
            await self._lane.destroy(instance)
        except Exception as error:
            self._tell(DestroyFailed(instance, _why(error)))
            return
        self._tell(Destroyed(instance))

    async def _warm(self, instance: Holding, tenant: str) -> None:
        place, began = bare(instance), time.monotonic()
        try:
            environment = await self._lane.environment(instance)
            assignment = self._duties.assignment(tenant, instance, environment)
            worker = await self._workers.take(assignment)
            await self._newest(worker, tenant, instance, environment)
        except Exception as error:
            self._tell(WorkerLost(instance, _why(error)))
            return
        finally:
            self._warming.pop(place, None)
        seconds = time.monotonic() - began
        created_s = self._create_s.pop(place, 0.0)
        parts = {"create_s": created_s, **worker.parts_s, "warm_s": seconds}
        self.serving[place] = worker
        self.overheads[place] = Overhead(tenant, parts)
        self._router.attach(tenant, worker, self._duties.latency_s(tenant, instance))
        self._tell(Ready(instance, seconds))

    async def _newest(
        self,
        worker: ServingWorker,
        tenant: str,
        instance: Holding,
        environment: Mapping[str, str],
    ) -> None:
        """Load a model that was adopted while the worker was warming, before it serves."""
        now = self._duties.assignment(tenant, instance, environment)
        if now.version == worker.assignment.version or now.weights is None:
            return
        try:
            await worker.swap(now.weights, now.version)
        except BaseException:
            await worker.release()  # no other code knows that it holds the instance
            raise

    async def _drain(self, instance: Holding) -> None:
        worker = self.serving.get(bare(instance))
        if worker is not None:
            await self._router.drain(worker)
        self._tell(Drained(instance))

    async def _stop(self, instance: Holding) -> None:
        place = bare(instance)
        warming = self._warming.pop(place, None)
        if warming is not None:
            warming.cancel()
            await asyncio.gather(warming, return_exceptions=True)
        worker = self.serving.pop(place, None)
        self.overheads.pop(place, None)
        if worker is not None:
            self._router.detach(worker)
            await worker.release()
        self._tell(Stopped(instance))

    async def _train(self, instance: Holding, tenant: str) -> None:
        try:
            environment = await self._lane.environment(instance)
            why = await self._duties.train(tenant, instance, environment)
        except Exception as error:
            self._tell(TrainingEnded(instance, tenant, False, _why(error)))
            return
        self._tell(TrainingEnded(instance, tenant, True, why))

    def _lost(self, worker: ServingWorker, how: str) -> None:
        for place, each in list(self.serving.items()):
            if each is worker:
                del self.serving[place]
                self.overheads.pop(place, None)
                self._router.detach(worker)
                self._tell(WorkerLost(place, how))


def _why(error: Exception) -> str:
    """The error as text. Every error must be reported, because the executor waits for an
    outcome."""
    if isinstance(error, MigratorError):
        return str(error)
    _log.error("an instruction failed in a way nobody thought of", exc_info=error)
    return f"{type(error).__name__}: {error}"


_PATIENCE = 20.0
"""A batch that takes this many times its latency, and at least 5 s, counts as hung."""


class TenantStateWork:
    """`TenantWork` based on the state of the tenants."""

    def __init__(
        self,
        tenants: Mapping[str, TenantState],
        specs: Mapping[str, ModelSpec],
        learning: Learning,
        board: Board,
        device: str,
        *,
        emulated: bool,
    ) -> None:
        self._tenants, self._specs, self._learning = tenants, specs, learning
        self._board, self._device, self._emulated = board, device, emulated

    def assignment(
        self, tenant: str, instance: Holding, environment: Mapping[str, str]
    ) -> Assignment:
        """The assignment of a worker on the instance: the newest version of the tenant's model."""
        run, latency_s = self._tenants[tenant], self.latency_s(tenant, instance)
        batch = run.live.service.batch
        version = run.version
        times = {each: 1e3 * latency_s(each) for each in range(1, batch + 1)}
        return Assignment(
            tenant=tenant,
            model=self._specs[tenant].model,
            weights=version.weights if version else None,
            version=version.number if version else 0,
            device=self._device,
            environment=environment,
            batch=batch,
            latency_ms=times if self._emulated else None,
            limit_s=max(5.0, _PATIENCE * latency_s(batch)),
        )

    def latency_s(self, tenant: str, instance: Holding) -> Callable[[int], float]:
        """A function from the batch size to the seconds of a batch on the instance."""
        service, sms = self._tenants[tenant].live.service, sms_of(self._board, instance)
        # a share that takes turns with others has the SMs for a part of the time
        duty = instance.duty if isinstance(instance, Share) else 1.0
        return lambda batch: service.latency_s(batch, sms) / duty

    def train(
        self, tenant: str, instance: Holding, environment: Mapping[str, str]
    ) -> Awaitable[str]:
        """Retrain on the instance to the end."""
        return self._learning.train(tenant, instance, environment)

    def end_estimates(self, environment: Mapping[str, str]) -> Awaitable[None]:
        """End estimates on the instance."""
        return self._learning.end_estimates(environment)
