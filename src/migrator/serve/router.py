"""From the API to the workers: each tenant's requests wait in one line and go out in batches.

Nothing waits for a fuller batch: a free worker takes what is there. What cannot be answered before
its deadline is refused when that is known, so that a flood costs only those that are too many.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError, MigratorError
from migrator.serve.assignment import Answered, WorkerLink, WorkerLostError
from migrator.serve.counts import Counts
from migrator.serve.line import Attached, Line, Routed, Served, Waiting
from migrator.serve.logs import Sparing, and_more
from migrator.serve.refusals import (
    DrainedError,
    FailedError,
    LateError,
    MalformedError,
    NotFoundError,
    NoWorkerError,
    OverloadedError,
    RefusedError,
)

__all__ = ["Routed", "Router", "Served"]

LOGGER = logging.getLogger(__name__)
SOONEST_S = 0.001
"""The shortest time until the line is looked through again for what came too late."""


class Router:
    """Lines, workers and counters of all tenants; for one event loop, never blocks it."""

    def __init__(
        self, tenants: Mapping[str, Served], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self._closed = False
        self._sparing = Sparing(clock=clock)
        self._lines = {name: Line(served) for name, served in tenants.items()}
        self.counts: dict[str, Counts] = {name: line.counts for name, line in self._lines.items()}

    def add(self, served: Served) -> None:
        """A line for another tenant; one that was here before goes on in its old line."""
        known = self._lines.get(served.name)
        if known is None:
            self._lines[served.name] = line = Line(served)
            self.counts[served.name] = line.counts
        else:
            known.refusal = None

    def served(self, tenant: str) -> Served:
        """How the tenant is served."""
        return self._line(tenant).served

    def waiting(self, tenant: str) -> int:
        """Rows of inputs that wait for a worker."""
        return self._line(tenant).rows

    def workers(self, tenant: str) -> dict[str, str]:
        """Its workers by name: idle, busy or draining."""
        return {each.worker.name: _state(each) for each in self._line(tenant).workers}

    def ready(self, tenant: str) -> bool:
        """Whether some worker takes its requests."""
        return any(each.quiet is None for each in self._line(tenant).workers)

    def refuse(self, tenant: str, reason: str | None) -> None:
        """Take nothing new of the tenant and say why; None: take it again. What waits goes on."""
        self._line(tenant).refusal = reason

    def refuses(self, tenant: str) -> bool:
        """Whether nothing new is taken."""
        return self._line(tenant).refusal is not None

    async def infer(
        self,
        tenant: str,
        inputs: NDArray[Any],
        deadline_s: float | None = None,
        request_id: str = "",
    ) -> Routed:
        """The answer of one worker; `deadline_s` is a moment of the router's clock.

        Without a deadline the tenant's objective counts from now. Refusals: refusals.py.
        """
        line = self._line(tenant)
        request = self._received(line, inputs, deadline_s)
        request.request_id = request_id
        line.put(request)
        self._feed(line)
        self._watch(line)
        try:
            return await request.answer
        except asyncio.CancelledError:
            line.withdraw(request)
            if request.answer.cancelled():
                line.counts.drop(request.second, request.rows)
            raise

    def attach(self, tenant: str, worker: WorkerLink, latency_s: Callable[[int], float]) -> None:
        """Route to it from now on; `latency_s` is what a batch of so many rows takes on it."""
        if any(
            worker.name == each.worker.name
            for line in self._lines.values()
            for each in line.workers
        ):
            raise InputError(f"worker {worker.name} is routed to already; detach it first")
        line = self._line(tenant)
        line.add_worker(worker, latency_s)
        self._feed(line)

    async def drain(self, worker: WorkerLink) -> None:
        """Nothing new to it; returns when its batch is answered. It is then routed to no more."""
        line, attached = self._find(worker)
        if line is None or attached is None:
            return
        attached.quiet = attached.quiet or asyncio.Event()
        line.reckon()
        if attached.batch:
            await attached.quiet.wait()
        self.detach(worker)

    def detach(self, worker: WorkerLink) -> None:
        """It is gone; its batch goes back into the line where the deadline allows."""
        line, attached = self._find(worker)
        if line is None or attached is None:
            return
        if attached.task is not None and attached.batch:
            attached.task.cancel()
        self._leave(line, attached)

    def close(self) -> None:
        """Route to nobody any more; what waits is refused."""
        self._closed = True
        for line in self._lines.values():
            for attached in list(line.workers):
                self.detach(attached.worker)
            for request in line.hopeless(math.inf):
                self._refuse(line, request)
            if line.timer is not None:
                line.timer.cancel()

    def _leave(self, line: Line, attached: Attached) -> None:
        """Once only: the loss of a worker is told by its batch and by whoever started it."""
        if attached in line.workers:
            attached.task = None
            line.remove_worker(attached)
            self._put_back(line, attached)
            self._feed(line)
            self._watch(line)

    def _line(self, tenant: str) -> Line:
        if tenant not in self._lines:
            raise NotFoundError(
                f"model: there is no {tenant}; ask for one of {', '.join(self._lines)}"
            )
        return self._lines[tenant]

    def _find(self, worker: WorkerLink) -> tuple[Line | None, Attached | None]:
        for line in self._lines.values():
            for attached in line.workers:
                if attached.worker.name == worker.name:
                    return line, attached
        return None, None

    def _received(self, line: Line, inputs: NDArray[Any], deadline_s: float | None) -> Waiting:
        """A request that may wait; counted, and refused here where waiting has no sense."""
        now_s, rows, served = self.clock(), len(inputs), line.served
        if not 1 <= rows <= served.batch:
            raise MalformedError(
                f"inputs: {rows} rows where {served.name} takes 1 to {served.batch} at a time; "
                "split them into several requests"
            )
        if self._closed:
            raise NoWorkerError(f"{served.name}: the server ends; try again in some seconds")
        if line.refusal is not None:
            raise DrainedError(f"{served.name}: {line.refusal}")
        second = line.counts.receive(now_s, rows)
        if line.rows + rows > served.queue:
            line.counts.drop(second, rows)
            raise OverloadedError(
                f"{served.name}: {line.rows} requests wait already; send fewer, or later"
            )
        deadline_s = now_s + served.slo_s if deadline_s is None else deadline_s
        answer = asyncio.get_running_loop().create_future()
        return Waiting(inputs, rows, now_s, deadline_s, second, answer)

    def _feed(self, line: Line) -> None:
        """Batches to every worker that is free, the fastest first (a thrifty line: the last)."""
        if not len(line):
            return
        now_s = self.clock()
        for request in line.hopeless(now_s):
            self._refuse(line, request)
        for attached in line.taking:
            if not len(line):
                return
            if not attached.batch and (batch := line.batch_for(attached, now_s)):
                attached.batch = batch
                attached.task = asyncio.get_running_loop().create_task(
                    self._run(line, attached, now_s)
                )
        for request in line.surplus(now_s):
            self._refuse(line, request)

    def _watch(self, line: Line) -> None:
        """Wake up when the first that waits would be too late: perhaps no worker gets free."""
        until_s = line.patience_s()
        if until_s is None or (line.timer is not None and line.timer_s <= until_s):
            return
        if line.timer is not None:
            line.timer.cancel()
        line.timer_s = until_s
        delay_s = max(SOONEST_S, until_s - self.clock())
        line.timer = asyncio.get_running_loop().call_later(delay_s, self._look, line)

    def _look(self, line: Line) -> None:
        line.timer = None
        self._feed(line)
        self._watch(line)

    async def _run(self, line: Line, attached: Attached, started_s: float) -> None:
        """One batch on one worker."""
        batch = attached.batch
        self._watch_batch(line, attached, batch)
        try:
            answered = await attached.worker.infer(_stacked(batch), _ids(batch))
            _require_rows(answered, sum(each.rows for each in batch))
        except WorkerLostError:
            self._leave(line, attached)
            return
        except asyncio.CancelledError:
            self._leave(line, attached)  # not by us: by whoever ends the worker, or the loop
            raise
        except Exception as error:
            self._failed(line, attached, error)
        else:
            self._answered(line, attached, answered, started_s)
        finally:
            attached.unwatch()
        attached.batch = []
        if attached.quiet is not None:
            attached.quiet.set()
        self._feed(line)

    def _watch_batch(self, line: Line, attached: Attached, batch: list[Waiting]) -> None:
        """A worker that hangs keeps nobody waiting: who is overdue is refused."""
        now_s = self.clock()
        for each in batch:
            if each.overdue_s <= now_s and not each.answer.done():
                self._refuse(line, each)
        left = [each.overdue_s for each in batch if not each.answer.done()]
        if left:
            delay_s = max(SOONEST_S, min(left) - now_s)
            loop = asyncio.get_running_loop()
            attached.timer = loop.call_later(delay_s, self._watch_batch, line, attached, batch)

    def _answered(
        self, line: Line, attached: Attached, answered: Answered, started_s: float
    ) -> None:
        now_s, row = self.clock(), 0
        took_s = now_s - started_s
        for each in attached.batch:
            scores = answered.scores[row : row + each.rows]
            row += each.rows
            if each.answer.done():
                continue
            late = now_s > each.deadline_s
            line.counts.answer(each.second, each.rows, now_s - each.came_s, late=late)
            waited_s = started_s - each.came_s
            each.answer.set_result(Routed(scores, answered.version, waited_s, took_s, late))
        attached.measure(row, took_s, now_s)

    def _failed(self, line: Line, attached: Attached, error: Exception) -> None:
        """The model failed: of several, each tries again by itself, as one may have caused it."""
        reason = str(error) if isinstance(error, MigratorError) else type(error).__name__
        self._tell_failed(line, attached, reason)
        single = len(attached.batch) == 1
        kind = MalformedError if isinstance(error, InputError) else FailedError
        for each in attached.batch:
            if each.answer.done():
                continue
            if single:
                self._fail(line, each, kind(_not_answered(line, reason)))
            else:
                each.alone = True
                line.put(each)

    def _tell_failed(self, line: Line, attached: Attached, reason: str) -> None:
        tenant, worker, ids = line.served.name, attached.worker.name, _ids(attached.batch)
        left_out = self._sparing.admit(tenant)
        if left_out is not None:
            LOGGER.warning(
                "%s: a batch failed on %s: %s; it held %s%s",
                tenant,
                worker,
                reason,
                ids,
                and_more(left_out),
                extra={"tenant": tenant, "worker": worker, "request_ids": ids},
            )

    def _put_back(self, line: Line, attached: Attached) -> None:
        """What a lost worker held waits again, once."""
        batch, attached.batch = attached.batch, []
        for each in batch:
            each.lost += 1
            if each.answer.done():
                continue
            if each.lost > 1:
                lost = _not_answered(line, "two workers were lost with it")
                self._fail(line, each, FailedError(lost))
            else:
                line.put(each)
        if attached.quiet is not None:
            attached.quiet.set()

    def _fail(self, line: Line, request: Waiting, refusal: RefusedError) -> None:
        line.counts.fail(request.second, request.rows)
        request.answer.set_exception(refusal)

    def _refuse(self, line: Line, request: Waiting) -> None:
        if request.answer.done():
            return  # its client has just left; whoever asked for it counts that in a moment
        line.counts.drop(request.second, request.rows)
        request.answer.set_exception(_too_late(line))


def _too_late(line: Line) -> RefusedError:
    name = line.served.name
    if not line.taking:
        return NoWorkerError(f"{name}: no instance was ready in time; try again in some seconds")
    return LateError(
        f"{name}: cannot be answered before its deadline; send fewer, or allow more time"
    )


def _not_answered(line: Line, reason: str) -> str:
    return f"{line.served.name}: not answered: {reason}; check the inputs and try again"


def _state(attached: Attached) -> str:
    if attached.quiet is not None:
        return "draining"
    return "busy" if attached.batch else "idle"


def _stacked(batch: list[Waiting]) -> NDArray[Any]:
    if len(batch) == 1:
        return batch[0].inputs
    return np.concatenate([each.inputs for each in batch])


def _ids(batch: list[Waiting]) -> str:
    """Whose requests go together, for the worker's log."""
    return " ".join([each.request_id for each in batch])


def _require_rows(answered: Answered, rows: int) -> None:
    if len(answered.scores) != rows:
        raise InputError(
            f"the model gave {len(answered.scores)} rows of scores for {rows} inputs; correct it"
        )
