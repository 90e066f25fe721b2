"""The executor's hands: every instruction done for real, and what became of it told as an event.

One task per instruction, so that nothing waits for anything but its own instance; the GPU itself
is changed one thing at a time (`gpu_lane`).
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
from migrator.core.errors import MigratorError
from migrator.core.share import Holding, bare
from migrator.live.gpu_lane import GpuLane
from migrator.serve.assignment import Assignment
from migrator.serve.links import ServingWorker, Workers
from migrator.serve.router import Router

_log = logging.getLogger(__name__)


class Duties(Protocol):
    """What the hands must know of tenants to act for them."""

    def assignment(
        self, tenant: str, instance: Holding, environment: Mapping[str, str]
    ) -> Assignment:
        """What a worker takes there now: the newest version of the tenant's model."""
        ...

    def latency_s(self, tenant: str, instance: Holding) -> Callable[[int], float]:
        """Seconds of a batch of so many there."""
        ...

    def train(
        self, tenant: str, instance: Holding, environment: Mapping[str, str]
    ) -> Awaitable[str]:
        """Retrain there to the end; why it was adopted or refused. MigratorError: it failed."""
        ...

    def end_estimates(self, environment: Mapping[str, str]) -> Awaitable[None]:
        """End estimates on the instance with this environment; done when they have released it."""
        ...


@dataclass(frozen=True)
class Overhead:
    """What a new instance took until it served, in its parts."""

    tenant: str
    parts_s: Mapping[str, float]


class Hands:
    """Carries out what the executor says; tells what became of it."""

    def __init__(
        self,
        lane: GpuLane,
        workers: Workers,
        router: Router,
        duties: Duties,
        tell: Callable[[Event], None],
    ) -> None:
        self._lane, self._workers, self._router = lane, workers, router
        self._duties, self._tell = duties, tell
        self.serving: dict[Holding, ServingWorker] = {}
        self.overheads: dict[Holding, Overhead] = {}
        """Of the instances that serve now."""
        self._create_s: dict[Holding, float] = {}
        self._warming: dict[Holding, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        workers.lost = self._lost

    def do(self, instruction: Instruction) -> None:
        """Begin it; the answer comes as an event."""
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
                pass  # whoever asks the policy hears of it

    def workers_of(self, tenant: str) -> list[ServingWorker]:
        """Those that serve a tenant now."""
        return [each for each in self.serving.values() if each.assignment.tenant == tenant]

    async def close(self) -> None:
        """Give up whatever is under way."""
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
        parts = {"create_s": created_s, **worker.taken.parts_s, "warm_s": seconds}
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
        """A model that was adopted while the worker got warm is taken before it serves."""
        now = self._duties.assignment(tenant, instance, environment)
        if now.version == worker.assignment.version or now.weights is None:
            return
        try:
            await worker.swap(now.weights, now.version)
        except BaseException:
            await worker.release()  # nobody else knows that it holds the instance
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
    """In words; whatever it was, whoever waits for the instruction's end must hear of it."""
    if isinstance(error, MigratorError):
        return str(error)
    _log.error("an instruction failed in a way nobody thought of", exc_info=error)
    return f"{type(error).__name__}: {error}"
