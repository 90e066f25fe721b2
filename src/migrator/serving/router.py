"""From the API to the workers: each tenant's requests wait in one queue and are sent in batches.

A free worker takes what is there and does not wait for a fuller batch. What cannot be answered
before its deadline is refused as soon as that is known, so that an overload costs only the surplus.
A worker can wait on slices where another tenant's worker serves. It gets full batches for which its
tenant has no free worker, while the other one is idle.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from migrator.core.batch import Batch, BatchKind
from migrator.core.errors import HttpError, InputError, MigratorError
from migrator.core.tensors import to_records
from migrator.serving.logs import LineLimiter
from migrator.serving.queue import (
    AttachedWorker,
    Counts,
    QueuedRequest,
    QueueSettings,
    Routed,
    TenantQueue,
)
from migrator.serving.workers.messages import Answered, WorkerLink, WorkerLostError

if TYPE_CHECKING:
    from migrator.serving.spans import BatchSpans, Tracing

DRAINED_RETRY_S = 30
"""After how many seconds a client of a drained tenant should try again."""

MIN_DELAY_S = 0.001
"""The shortest time until a queue is checked again for hopeless requests."""

_IDLE_CHECK_S = 0.01
"""Seconds between two looks for an idle worker."""

_log = logging.getLogger(__name__)


class Router:
    """Queues, workers and counters of all tenants; for one event loop, never blocks it."""

    def __init__(
        self, tenants: Mapping[str, QueueSettings], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self.record: Callable[[Batch], None] | None = None
        """Gets every batch that was answered."""
        self.tracing: Tracing | None = None
        """None: requests and batches are not traced."""
        self._closed = False
        self._log_lines = LineLimiter(clock=clock)
        self._queues: dict[str, TenantQueue] = {}
        self._attached: dict[str, tuple[TenantQueue, AttachedWorker]] = {}
        """All workers by name."""
        self.counts: dict[str, Counts] = {}
        for tenant in tenants.values():
            self.add(tenant)

    def add(self, settings: QueueSettings) -> None:
        queue = self._queues.setdefault(settings.name, TenantQueue(settings))
        queue.settings = settings
        self.counts[settings.name] = queue.counts
        queue.refusal = None

    def settings(self, tenant: str) -> QueueSettings:
        return self._queues[tenant].settings

    def waiting(self, tenant: str) -> int:
        """Rows of inputs that wait for a worker."""
        return self._queues[tenant].rows

    def workers(self, tenant: str) -> dict[str, str]:
        """Its workers by name: idle, busy or draining."""
        return {
            worker.worker.name: _state(worker)
            for worker in self._queues[tenant].workers
            if worker.may_borrow is None
        }

    def ready(self, tenant: str) -> bool:
        return bool(self._queues[tenant].taking)

    def refuse(self, tenant: str, reason: str | None) -> None:
        self._queues[tenant].refusal = reason

    def refuses(self, tenant: str) -> bool:
        return self._queues[tenant].refusal is not None

    def submit(
        self,
        tenant: str,
        inputs: NDArray[Any],
        deadline_s: float | None = None,
        request_id: str = "",
    ) -> QueuedRequest:
        """Queue a request; its `answer` is to be awaited, and withdrawn if that is cancelled.

        `deadline_s` is a time of the router's clock; without one the objective counts from now.
        """
        queue = self._queues[tenant]
        request = self._admit(queue, inputs, deadline_s, request_id)
        if self.tracing is not None:
            request.spans = self.tracing.queued(request.answer)
        queue.put(request)
        self._feed(queue, request.came_s)
        if queue.rows:
            self._set_timer(queue)
        return request

    def withdraw(self, tenant: str, request: QueuedRequest) -> None:
        """Remove a request whose client has left from the queue, and count it as dropped."""
        queue = self._queues[tenant]
        queue.withdraw(request)
        if request.answer.cancelled():
            queue.counts.drop(request.second, request.rows)

    def attach(
        self,
        tenant: str,
        worker: WorkerLink,
        latency_s: Callable[[int], float],
        *,
        may_borrow: Callable[[], bool] | None = None,
        place: str = "",
    ) -> None:
        """Send batches to it from now on; `latency_s`: rows of a batch to the seconds it takes.

        `may_borrow`: the slices are another tenant's, and it gets batches only while this is true.
        To be attached without it as soon as the slices are its own. `place`: for the record of its
        batches.
        """
        queue, attached = self._queues[tenant], self._attached.get(worker.name)
        if attached is None:
            self._attached[worker.name] = (
                queue,
                queue.add_worker(worker, latency_s, may_borrow, place),
            )
        elif (
            attached[1].may_borrow is not None
            and attached[1].drained is None
            and may_borrow is None
        ):
            attached[1].may_borrow, attached[1].lag_s = None, 0.0
            queue.update_capacity()
        else:
            raise InputError(f"worker {worker.name} is attached already; detach it first")
        self._feed(queue)
        self._lend()

    def is_idle(self, worker: WorkerLink) -> bool:
        attached = self._attached.get(worker.name)
        return attached is not None and attached[1].drained is None and not attached[1].busy

    async def drain(self, worker: WorkerLink) -> None:
        """Send it nothing new; returns when its batch is answered, and detaches it."""
        place = self._attached.get(worker.name)
        if place is None:
            return
        queue, attached = place
        attached.drained = attached.drained or asyncio.Event()
        queue.update_capacity()
        if attached.busy:
            await attached.drained.wait()
        self.detach(worker)

    @asynccontextmanager
    async def paused(self, worker: WorkerLink) -> AsyncIterator[None]:
        """Send it nothing meanwhile, from when its batch is answered on.

        Nothing changes where no other worker takes the tenant's requests.
        """
        place = self._attached.get(worker.name)
        if place is None or place[1] not in place[0].taking or len(place[0].taking) < 2:
            yield
            return
        queue, attached = place
        attached.drained = asyncio.Event()
        queue.update_capacity()
        try:
            if attached.busy:
                await attached.drained.wait()
            yield
        finally:
            if attached in queue.workers:  # else it was drained or lost meanwhile
                attached.drained = None
                queue.update_capacity()
                self._feed(queue)
                self._lend()

    async def infer_when_idle(
        self, tenant: str, inputs: NDArray[Any], patience_s: float
    ) -> Answered | None:
        """Answer inputs on a worker of the tenant, as no request: they are not counted.

        It waits for an idle worker, after `patience_s` for the end of a batch. A request that
        arrives meanwhile waits for this batch at most. None without a worker. Raises what the
        worker raises.
        """
        queue, until_s = self._queues[tenant], self.clock() + patience_s
        while (attached := _idle(queue)) is None and self.clock() < until_s:
            await asyncio.sleep(_IDLE_CHECK_S)
        if attached is None:
            attached = next((worker for worker in queue.taking if not worker.evaluates), None)
        if attached is None:
            return None
        attached.evaluates = True  # it gets no request
        try:
            while attached.batch:
                await asyncio.sleep(_IDLE_CHECK_S)
            if attached not in queue.workers:
                return None
            sent_s = self.clock()
            answered = await attached.worker.infer(inputs)
            if self.record is not None:
                self.record(
                    Batch(
                        *(tenant, attached.place, BatchKind.EVALUATION, len(inputs), queue.rows),
                        *(sent_s, sent_s, sent_s, answered.began_s or sent_s),
                        *(answered.ended_s or self.clock(), self.clock(), 0),
                    )
                )
            return answered
        finally:
            attached.evaluates = False
            self._free(queue, attached)

    async def judge(
        self, tenant: str, outputs: NDArray[Any], labels: NDArray[Any]
    ) -> tuple[bool, ...] | None:
        """Let a worker of the tenant decide which outputs are correct, after its present batch.

        None without a worker. Raises what the worker raises.
        """
        taking = self._queues[tenant].taking
        if not taking:
            return None
        attached = next((worker for worker in taking if not worker.busy), taking[0])
        return await attached.worker.judge(to_records({"outputs": outputs, "label": labels}))

    def detach(self, worker: WorkerLink) -> None:
        """Stop using a worker; its batch goes back into the queue where the deadline allows."""
        place = self._attached.get(worker.name)
        if place is None:
            return
        queue, attached = place
        if attached.task is not None:
            attached.task.cancel()
        self._remove(queue, attached)

    def close(self) -> None:
        self._closed = True
        for queue in self._queues.values():
            for attached in list(queue.workers):
                self.detach(attached.worker)
            for request in queue.pop_hopeless(math.inf):
                _refuse(queue, request)
            if queue.timer is not None:
                queue.timer.cancel()

    def _remove(self, queue: TenantQueue, attached: AttachedWorker) -> None:
        """Does nothing the second time: its batch and the pool both report the loss of a worker."""
        if attached in queue.workers:
            attached.task = None
            attached.stop_timer()
            queue.remove_worker(attached)
            del self._attached[attached.worker.name]
            self._put_back(queue, attached)
            self._feed(queue)
            self._set_timer(queue)
            self._lend()

    def _admit(
        self, queue: TenantQueue, inputs: NDArray[Any], deadline_s: float | None, request_id: str
    ) -> QueuedRequest:
        now_s, rows, settings = self.clock(), len(inputs), queue.settings
        if self._closed:
            raise HttpError(
                503, f"{settings.name}: the server is stopping; try again in some seconds"
            )
        if queue.refusal is not None:
            reason = f"{settings.name}: {queue.refusal}"
            raise HttpError(503, reason, retry_after_s=DRAINED_RETRY_S)
        second = queue.counts.receive(now_s, rows)
        if queue.rows + rows > settings.limit:
            queue.counts.drop(second, rows)
            raise HttpError(
                429, f"{settings.name}: {queue.rows} requests wait already; send fewer, or later"
            )
        deadline_s = now_s + settings.slo_s if deadline_s is None else deadline_s
        answer: asyncio.Future[Routed] = asyncio.get_running_loop().create_future()
        return QueuedRequest(inputs, rows, now_s, deadline_s, second, answer, request_id)

    def _feed(self, queue: TenantQueue, now_s: float | None = None) -> None:
        if not queue.rows:
            return
        now_s = self.clock() if now_s is None else now_s
        for request in queue.pop_hopeless(now_s):
            _refuse(queue, request)
        for attached in queue.taking:
            if not queue.rows:
                return
            if not attached.busy:
                self._send(queue, attached, now_s)
        if queue.rows:
            self._borrow(queue, now_s)
            for request in queue.pop_surplus(now_s):
                _refuse(queue, request)

    def _borrow(self, queue: TenantQueue, now_s: float) -> None:
        """Send full batches to workers on idle slices of other tenants.

        Smaller ones would slow the others down for little: a worker of its own is free soon.
        """
        for attached in queue.borrowing:
            if queue.rows < attached.full:
                continue
            if not attached.busy and attached.may_borrow is not None and attached.may_borrow():
                self._send(queue, attached, now_s)

    def _lend(self) -> None:
        """Slices may be idle: feed tenants that borrow them, the most urgent first."""
        queues = [queue for queue in self._queues.values() if queue.borrowing and queue.rows]
        for queue in sorted(queues, key=lambda queue: queue.latest_start_s() or 0.0):
            self._feed(queue)

    def _send(self, queue: TenantQueue, attached: AttachedWorker, now_s: float) -> None:
        batch = queue.batch_for(attached, now_s)
        if not batch:
            return
        attached.batch, attached.started_s, attached.waiting = batch, now_s, queue.rows
        attached.task = asyncio.get_running_loop().create_task(self._run(queue, attached))

    def _set_timer(self, queue: TenantQueue) -> None:
        """Set the timer at which the first request becomes hopeless: no worker may become free."""
        until_s = queue.latest_start_s()
        if until_s is None or (queue.timer is not None and queue.timer_s <= until_s):
            return
        if queue.timer is not None:
            queue.timer.cancel()
        queue.timer_s = until_s
        delay_s = max(MIN_DELAY_S, until_s - self.clock())
        queue.timer = asyncio.get_running_loop().call_later(delay_s, self._check_queue, queue)

    def _check_queue(self, queue: TenantQueue) -> None:
        queue.timer = None
        self._feed(queue)
        self._set_timer(queue)

    async def _run(self, queue: TenantQueue, attached: AttachedWorker) -> None:
        batch, answered = attached.batch, None
        self._set_overdue_timer(queue, attached, batch[0].overdue_s)  # ordered by deadline
        spans = self._begin_spans(queue, attached)
        try:
            single = len(batch) == 1
            inputs = batch[0].inputs if single else np.concatenate([x.inputs for x in batch])
            ids = batch[0].request_id if single else _request_ids(batch)
            attached.sent_s = self.clock()
            context = None if spans is None else spans.context
            answered = await attached.worker.infer(inputs, ids, context)
            if len(answered.scores) != len(inputs):
                raise InputError(
                    f"the model gave {len(answered.scores)} rows of scores for {len(inputs)} "
                    "inputs; correct it"
                )
        except WorkerLostError:
            self._remove(queue, attached)
            return
        except asyncio.CancelledError:
            self._remove(queue, attached)  # by the pool that ends the worker, or with the loop
            raise
        except Exception as error:
            self._retry(queue, attached, error)
        else:
            self._resolve(queue, attached, answered)
        finally:
            if spans is not None:
                spans.end(answered)
        attached.batch = []
        self._free(queue, attached)

    def _begin_spans(self, queue: TenantQueue, attached: AttachedWorker) -> BatchSpans | None:
        if self.tracing is None:
            return None
        requests = [request.spans for request in attached.batch if request.spans is not None]
        attributes: dict[str, str | int] = {
            "migrator.tenant": queue.settings.name,
            "migrator.worker": attached.worker.name,
            "migrator.instance": attached.place,
            "migrator.rows": sum(request.rows for request in attached.batch),
        }
        return self.tracing.batch(requests, attributes)

    def _free(self, queue: TenantQueue, attached: AttachedWorker) -> None:
        """Give a worker that has finished a batch the next one, or end its drain."""
        if attached.drained is not None:
            attached.drained.set()
        self._feed(queue)
        if queue.rows:
            self._set_timer(queue)  # requests that failed together wait again
        if not attached.busy:
            self._lend()

    def _set_overdue_timer(
        self, queue: TenantQueue, attached: AttachedWorker, until_s: float
    ) -> None:
        """Check the worker's batch at that time, in place of an earlier one."""
        attached.stop_timer()
        delay_s = max(MIN_DELAY_S, until_s - self.clock())
        loop = asyncio.get_running_loop()
        attached.timer = loop.call_later(delay_s, self._check_overdue, queue, attached)

    def _check_overdue(self, queue: TenantQueue, attached: AttachedWorker) -> None:
        attached.timer = None
        now_s = self.clock()
        for request in attached.batch:
            if request.overdue_s <= now_s and not request.answer.done():
                _refuse(queue, request)
        overdue_s = [request.overdue_s for request in attached.batch if not request.answer.done()]
        if overdue_s:
            self._set_overdue_timer(queue, attached, min(overdue_s))

    def _resolve(self, queue: TenantQueue, attached: AttachedWorker, answered: Answered) -> None:
        now_s, started_s, row = self.clock(), attached.started_s, 0
        took_s, in_time = now_s - started_s, 0
        for request in attached.batch:
            only = request.rows == len(answered.scores)
            scores = answered.scores if only else answered.scores[row : row + request.rows]
            row += request.rows
            if request.answer.done():
                continue
            late = now_s > request.deadline_s
            in_time += request.rows * (not late)
            queue.counts.answer(request.second, request.rows, now_s - request.came_s, late=late)
            waited_s = started_s - request.came_s
            request.answer.set_result(Routed(scores, answered.version, waited_s, took_s, late))
        queue.counts.serve(row, took_s)
        attached.measure(row, took_s, now_s)
        if self.record is not None:
            kind = BatchKind.OWN if attached.may_borrow is None else BatchKind.LENT
            came_s = min(request.came_s for request in attached.batch)
            self.record(
                Batch(
                    *(queue.settings.name, attached.place, kind, row, attached.waiting),
                    *(came_s, started_s, attached.sent_s),
                    *(answered.began_s or attached.sent_s, answered.ended_s or now_s, now_s),
                    in_time,
                )
            )

    def _retry(self, queue: TenantQueue, attached: AttachedWorker, error: Exception) -> None:
        """Retry each request of a batch by itself, as one of them may have caused the failure."""
        reason = str(error) if isinstance(error, MigratorError) else type(error).__name__
        tenant, worker = queue.settings.name, attached.worker.name
        ids = _request_ids(attached.batch)
        self._log_lines.log(
            _log,
            logging.WARNING,
            tenant,
            f"{tenant}: a batch failed on {worker}: {reason}; it held {ids}",
            tenant=tenant,
            worker=worker,
            request_ids=ids,
        )
        single = len(attached.batch) == 1
        for request in attached.batch:
            if request.answer.done():
                continue
            if single:
                _fail(queue, request, 400 if isinstance(error, InputError) else 500, reason)
            else:
                request.alone = True
                queue.put(request)

    def _put_back(self, queue: TenantQueue, attached: AttachedWorker) -> None:
        """Requeue what a lost worker had, once."""
        batch, attached.batch = attached.batch, []
        for request in batch:
            request.lost += 1
            if request.answer.done():
                continue
            if request.lost > 1:
                _fail(queue, request, 500, "two workers were lost with it")
            else:
                queue.put(request)
        if attached.drained is not None:
            attached.drained.set()


def _idle(queue: TenantQueue) -> AttachedWorker | None:
    """An idle worker of a tenant that has no requests: the last, as requests prefer the first."""
    idle = [worker for worker in queue.taking if not worker.busy]
    return idle[-1] if idle and not queue.rows else None


def _fail(queue: TenantQueue, request: QueuedRequest, status: int, reason: str) -> None:
    queue.counts.fail(request.second, request.rows)
    name = queue.settings.name
    request.answer.set_exception(
        HttpError(status, f"{name}: not answered: {reason}; check the inputs and try again")
    )


def _refuse(queue: TenantQueue, request: QueuedRequest) -> None:
    if request.answer.done():
        return  # its client has just left, which `withdraw` counts
    queue.counts.drop(request.second, request.rows)
    name = queue.settings.name
    if not queue.taking:
        late = HttpError(503, f"{name}: no instance was ready in time; try again in some seconds")
    else:
        late = HttpError(
            504,
            f"{name}: cannot be answered before its deadline; send fewer requests, or allow more "
            "time",
        )
    request.answer.set_exception(late)


def _state(attached: AttachedWorker) -> str:
    if attached.drained is not None:
        return "draining"
    return "busy" if attached.busy else "idle"


def _request_ids(batch: list[QueuedRequest]) -> str:
    return " ".join([request.request_id for request in batch])
