"""All worker processes of a daemon: prepared ahead, taking instances, serving, released.

The forkserver forks them; see `forkserver`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from numpy.typing import NDArray

from migrator.core.errors import InputError, MigratorError
from migrator.io.child_process import ChildProcess, Fault, FaultKind, decode_array, encode_array
from migrator.serving.workers.forkserver import Forkserver, Reaper
from migrator.serving.workers.messages import (
    Answered,
    Assignment,
    Fork,
    FromWorker,
    Infer,
    Judge,
    ModelFaultError,
    ModelInterface,
    ModelSpec,
    Swap,
    WorkerLostError,
)

GRACE_S = 2.0
"""A process that uses a GPU has so long to finish what it gave to the GPU before it is killed."""
_RETRY_S = 0.5
"""Before a prepared worker that died is replaced: the next may die of the same cause."""
_FREE_S = 2.0
"""After the last batch: a process on a GPU takes a while to free its memory."""

_log = logging.getLogger(__name__)


class WorkerProcess(ChildProcess):
    """The connection to one worker."""

    lost_error, grace_s = WorkerLostError, GRACE_S

    def __init__(
        self, name: str, pid: int, reap: Reaper, on_exit: Callable[[WorkerProcess, str], None]
    ) -> None:
        """`on_exit` is called once with the reason."""

        def report(how: str) -> None:
            on_exit(self, how)

        super().__init__(f"worker {name}", pid, FromWorker, reap=reap, on_exit=report)

    def fault_error(self, fault: Fault) -> Exception:
        if fault.kind is FaultKind.MODEL:
            return ModelFaultError(f"the model failed ({fault.reason}); correct its class or input")
        return super().fault_error(fault)


class ServingWorker:
    """A worker that has taken an instance."""

    def __init__(
        self,
        process: WorkerProcess,
        assignment: Assignment,
        parts_s: Mapping[str, float],
        hang_s: float,
        held_mib: float = 0.0,
    ) -> None:
        """`parts_s`: how long it took to become ready, and `held_mib`: the GPU memory that it holds
        then, as in `messages.WorkerReady`."""
        self._process, self._hang_s, self.parts_s = process, hang_s, parts_s
        self.held_mib = held_mib
        self.assignment = assignment
        """It names the version that serves now."""
        self._swapping = asyncio.Lock()

    @property
    def name(self) -> str:
        return self._process.name.removeprefix("worker ")

    @property
    def pid(self) -> int:
        return self._process.pid

    async def infer(
        self,
        inputs: NDArray[Any],
        request_ids: str = "",
        trace_context: Mapping[str, str] | None = None,
    ) -> Answered:
        """One batch; WorkerLostError, ModelFaultError where the model raises, InputError."""
        shape, dtype, payload = encode_array(inputs)
        frame = await self._process.request(
            Infer(shape, dtype, request_ids, dict(trace_context) if trace_context else None),
            payload,
            limit_s=self.assignment.limit_s or self._hang_s,
        )
        answer = frame.message
        # a copy: scores are small, the buffer they came in is not
        scores = decode_array(answer.shape, answer.dtype, frame.payload).copy()
        return Answered(scores, answer.version, answer.began_s, answer.ended_s)

    async def judge(self, answers: NDArray[Any]) -> tuple[bool, ...]:
        shape, dtype, payload = encode_array(answers)
        frame = await self._process.request(
            Judge(shape, dtype), payload, limit_s=self.assignment.limit_s or self._hang_s
        )
        correct: tuple[bool, ...] = frame.message.correct
        return correct

    async def swap(self, weights: Path, version: int) -> float:
        """Serve these weights from the next batch on; the seconds. InputError: unusable."""
        async with self._swapping:
            return await self._swap(weights, version)

    async def update(self, weights: Path, version: int) -> None:
        """The same, unless it serves that version already."""
        async with self._swapping:
            if self.assignment.version != version:
                await self._swap(weights, version)

    async def _swap(self, weights: Path, version: int) -> float:
        path = weights.absolute()
        frame = await self._process.request(Swap(path, version), limit_s=self._hang_s)
        self.assignment = replace(self.assignment, weights=path, version=version)
        seconds: float = frame.message.seconds
        return seconds

    async def release(self) -> None:
        """Let it finish its batch and exit; returns when the process is gone."""
        await self._process.end((self.assignment.limit_s or self._hang_s) + _FREE_S)


@dataclass(eq=False)
class _TenantWorkers:
    model: ModelSpec
    wanted: int = 0
    waiting: list[WorkerProcess] = field(default_factory=list)
    filling: asyncio.Lock = field(default_factory=asyncio.Lock)


class Workers:
    """All worker processes of a daemon."""

    def __init__(
        self,
        folder: Path,
        models: Mapping[str, ModelSpec],
        *,
        hang_s: float = 30.0,
        ahead: tuple[str, ...] = (),
        prepare: tuple[str, ...] = (),
    ) -> None:
        """`models`: by tenant; `folder`: for their log, made readable for this user only.

        `ahead`: models of tenants that may be added later, imported at the start. `prepare`:
        functions that the forkserver calls, as in `messages.Build`.
        """
        self._folder, self._hang_s = folder, hang_s
        self._tenants = {name: _TenantWorkers(model) for name, model in models.items()}
        self.log = folder / "workers.log"
        self.forkserver = Forkserver(
            self.log, models, answer_s=hang_s, ahead=ahead, prepare=prepare
        )
        self.lost: Callable[[ServingWorker, str], None] | None = None
        """Called when a worker that had taken an instance dies."""
        self._names = count(1)
        self._serving: dict[WorkerProcess, ServingWorker] = {}
        self._processes: set[WorkerProcess] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._starting: asyncio.Task[None] | None = None

    @property
    def interfaces(self) -> Mapping[str, ModelInterface]:
        return self.forkserver.interfaces

    def begin(self) -> asyncio.Task[None]:
        """Begin to start the forkserver; `start` waits for it."""
        if self._starting is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)
            self._starting = asyncio.create_task(self.forkserver.start())
        return self._starting

    async def start(self) -> None:
        await self.begin()

    async def close(self) -> None:
        self._closing = True
        tasks = [*self._tasks, *([self._starting] if self._starting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(process.end(self._hang_s) for process in list(self._processes)))
        await self.forkserver.close()

    async def add(self, tenant: str, model: ModelSpec) -> None:
        """Add a tenant; InputError where its model cannot be built or is another one now."""
        if tenant not in self._tenants:
            await self.forkserver.add(tenant, model)
            self._tenants[tenant] = _TenantWorkers(model)
        elif self._tenants[tenant].model != model:
            raise InputError(f"tenant {tenant}: it is served with another model; remove it first")

    async def remove(self, tenant: str) -> None:
        if tenant in self._tenants:
            await self.prepare(tenant, 0)
            del self._tenants[tenant]
            await self.forkserver.forget(tenant)

    async def prepare(self, tenant: str, count: int) -> None:
        """Keep `count` workers waiting for that tenant from now on; returns when they are there."""
        self._pool_of(tenant).wanted = count
        await self._fill(tenant)

    def prepared(self, tenant: str) -> int:
        return len(self._pool_of(tenant).waiting)

    async def take(self, assignment: Assignment) -> ServingWorker:
        """A warm worker on that instance; InputError for weights that do not fit."""
        tenant, pool = assignment.tenant, self._pool_of(assignment.tenant)
        if assignment.model != pool.model.model:
            raise InputError(
                f"tenant {tenant}: its workers have {pool.model.model}, not {assignment.model}; "
                "restart the daemon with the other model"
            )
        waiting = pool.waiting
        process = next((process for process in waiting if process.alive), None)
        if process is not None:
            waiting.remove(process)
        else:
            process = await self._fork(tenant)
        try:
            return await self._take(process, assignment)
        except BaseException as error:
            process.kill(f"{process.name} could not take its instance ({error})")
            await process.wait()  # the instance is free again
            raise
        finally:
            self._refill(tenant)

    async def _take(self, process: WorkerProcess, assignment: Assignment) -> ServingWorker:
        if assignment.weights is not None:
            assignment = replace(assignment, weights=assignment.weights.absolute())
        frame = await process.request(assignment, limit_s=self._hang_s)
        if not process.alive:
            raise WorkerLostError(f"{process.name} exited right after becoming ready")
        ready = frame.message
        worker = ServingWorker(process, assignment, ready.parts_s, self._hang_s, ready.held_mib)
        self._serving[process] = worker
        return worker

    def _pool_of(self, tenant: str) -> _TenantWorkers:
        if tenant not in self._tenants:
            names = ", ".join(sorted(self._tenants))
            raise InputError(f"tenant {tenant} has no model here; name one of {names}")
        return self._tenants[tenant]

    async def _fork(self, tenant: str) -> WorkerProcess:
        name = f"w{next(self._names)}"
        process = await self.forkserver.fork(
            Fork(tenant, name), lambda pid, reap: WorkerProcess(name, pid, reap, self._report_exit)
        )
        self._processes.add(process)
        if self._closing:  # `close` has not seen this one
            process.kill("the daemon is stopping")
        return process

    async def _fill(self, tenant: str) -> None:
        pool = self._tenants[tenant]
        async with pool.filling:
            while len(pool.waiting) < pool.wanted:
                pool.waiting.append(await self._fork(tenant))
            surplus = pool.waiting[pool.wanted :]
            del pool.waiting[pool.wanted :]
            await asyncio.gather(*(process.end(self._hang_s) for process in surplus))

    def _report_exit(self, process: WorkerProcess, reason: str) -> None:
        self._processes.discard(process)
        worker = self._serving.pop(process, None)
        if process.released:
            return
        if worker is not None and self.lost is not None:
            self.lost(worker, reason)
        for tenant, pool in self._tenants.items():
            if process in pool.waiting:
                pool.waiting.remove(process)
                _log.warning("a prepared worker of %s is lost: %s", tenant, reason)
                self._refill(tenant, _RETRY_S)

    def _refill(self, tenant: str, wait_s: float = 0.0) -> None:
        if not self._closing:
            task = asyncio.create_task(self._fill_later(tenant, wait_s))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _fill_later(self, tenant: str, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        if tenant not in self._tenants:  # removed meanwhile
            return
        try:
            await self._fill(tenant)
        except MigratorError as error:
            _log.warning("no worker of %s could be prepared: %s", tenant, error)
            self._refill(tenant, _RETRY_S)
