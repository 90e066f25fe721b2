"""One tenant's requests that wait, its workers, and which requests go together on which worker.

The line is ordered by deadline. A worker that is free takes those that wait as long as the first
of them stays in time. Where more wait than it can take, it begins with the first that leaves room
for a full batch: small batches of the most urgent would cost more requests than they save.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrator.serve.assignment import WorkerLink
from migrator.serve.counts import Counts, Second

LAG_RISES, LAG_FALLS = 0.5, 1 / 32
"""How fast the expected lag follows a slower or a faster batch: it settles near the slow ones."""
LAG_HALVES_S = 1.0
OVERDUE_S = 1.0
"""So long after its deadline a request on a worker is given up: the worker may hang."""


@dataclass(frozen=True)
class Served:
    """How a tenant is served."""

    name: str
    slo_s: float
    batch: int
    queue: int = 512
    """The most rows of inputs that may wait."""
    thrifty: bool = False
    """To the slowest free worker that is in time (ELSA), not to the fastest."""


@dataclass(frozen=True)
class Routed:
    """An answer, as whoever asked gets it."""

    scores: NDArray[np.float32]
    version: int
    waited_s: float
    served_s: float
    late: bool


@dataclass(eq=False, slots=True)
class Waiting:
    """A request in the line or on a worker."""

    inputs: NDArray[Any]
    rows: int
    came_s: float
    deadline_s: float
    second: Second
    answer: asyncio.Future[Routed]
    lost: int = 0
    """Workers that were lost with it."""
    alone: bool = False
    """A batch with it failed: it goes by itself now, so that others do not fail with it."""
    request_id: str = ""

    @property
    def overdue_s(self) -> float:
        """The moment from which on not even a late answer is waited for."""
        return self.deadline_s + OVERDUE_S


@dataclass(eq=False, slots=True)
class Attached:
    """A worker that takes batches of the tenant."""

    worker: WorkerLink
    latency_s: tuple[float, ...]
    """Per batch size; place 0 is unused."""
    full: int
    """The largest batch with room in the objective to wait for the one before it."""
    most_lag_s: float
    """A lag beyond this is not believed: one that comes to an idle worker is always tried."""
    lag_s: float = 0.0
    measured_s: float = 0.0
    batch: list[Waiting] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    quiet: asyncio.Event | None = None
    """Set when its last batch is answered; None: it is not being drained."""
    timer: asyncio.TimerHandle | None = None
    """When its batch is looked through for who has waited too long."""

    def unwatch(self) -> None:
        """Its batch is answered, or lost."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def expects_s(self, rows: int, now_s: float) -> float:
        """Seconds a batch will take: what was promised, and the lag seen of late."""
        idle_s = now_s - self.measured_s
        # a lag that was not confirmed fades, or one hiccup could shut a worker out for good
        lag_s = self.lag_s if idle_s < LAG_HALVES_S else self.lag_s * 0.5 ** (idle_s / LAG_HALVES_S)
        return self.latency_s[rows] + lag_s

    def measure(self, rows: int, took_s: float, now_s: float) -> None:
        """Take account of a batch."""
        difference = max(0.0, took_s - self.latency_s[rows]) - self.lag_s
        lag_s = self.lag_s + difference * (LAG_RISES if difference > 0 else LAG_FALLS)
        self.lag_s = min(lag_s, self.most_lag_s)
        self.measured_s = now_s


class Line:
    """A tenant's line and its workers, in the order in which they are fed."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.counts = Counts()
        self.workers: list[Attached] = []
        self.rows = 0
        self.refusal: str | None = None
        """Why nothing new is taken; None: it is."""
        self.timer: asyncio.TimerHandle | None = None
        self.timer_s = 0.0
        self.taking: list[Attached] = []
        """The workers that are not being drained."""
        self._waiting: deque[Waiting] = deque()
        self.reckon()

    def __len__(self) -> int:
        return len(self._waiting)

    def add_worker(self, worker: WorkerLink, latency_s: Callable[[int], float]) -> None:
        """A worker from now on."""
        batch, slo_s = self.served.batch, self.served.slo_s
        table = (0.0, *(latency_s(rows) for rows in range(1, batch + 1)))
        full = next((rows for rows in range(batch, 1, -1) if 2 * table[rows] <= slo_s), 1)
        most_lag_s = max(0.0, slo_s - table[1]) / 2
        self.workers.append(Attached(worker, table, full, most_lag_s))
        self.workers.sort(key=lambda each: each.latency_s[1], reverse=self.served.thrifty)
        self.reckon()

    def remove_worker(self, worker: Attached) -> None:
        """It is routed to no more."""
        self.workers.remove(worker)
        self.reckon()

    def reckon(self) -> None:
        """What the workers can do together; to be called when they change."""
        self.taking = [each for each in self.workers if each.quiet is None]
        self._full_rows = sum(each.full for each in self.taking)
        full_s = [max(1e-6, each.latency_s[each.full]) for each in self.taking]
        self._full_s = min(full_s, default=0.0)
        self._soonest_s = min((each.latency_s[1] for each in self.taking), default=0.0)
        self._rate_rps = sum(
            each.full / took_s for each, took_s in zip(self.taking, full_s, strict=True)
        )

    def put(self, request: Waiting) -> None:
        """Into its place by deadline, which is nearly always the last."""
        if not self._waiting or self._waiting[-1].deadline_s <= request.deadline_s:
            self._waiting.append(request)
        else:
            insort(self._waiting, request, key=_deadline)
        self.rows += request.rows

    def withdraw(self, request: Waiting) -> None:
        """Nobody waits for it any more."""
        if request in self._waiting:
            self._waiting.remove(request)
            self.rows -= request.rows

    def patience_s(self) -> float | None:
        """The moment from which on the most urgent that waits could not be answered in time."""
        return self._waiting[0].deadline_s - self._soonest_s if self._waiting else None

    def hopeless(self, now_s: float) -> Iterator[Waiting]:
        """Take out those that no worker can answer in time, even alone and at once."""
        if not self._waiting:
            return
        soonest_s = min((each.expects_s(1, now_s) for each in self.taking), default=0.0)
        while self._waiting and self._waiting[0].deadline_s < now_s + soonest_s:
            request = self._waiting.popleft()
            self.rows -= request.rows
            yield request

    def surplus(self, now_s: float) -> Iterator[Waiting]:
        """Take out the most urgent while more wait than can be done before the last deadline.

        In a flood somebody must go. Where the oldest do, those that are served have time to
        spare; where the newest did, all that are served would be on the edge of being late.
        """
        while self.rows > self._full_rows and self.taking:
            left_s = self._waiting[-1].deadline_s - now_s - self._full_s
            if self.rows <= left_s * self._rate_rps:
                return
            request = self._waiting.popleft()
            self.rows -= request.rows
            yield request

    def batch_for(self, worker: Attached, now_s: float) -> list[Waiting]:
        """Take out what goes to a free worker together; empty: nothing it could do in time."""
        start = self._start(worker, now_s)
        if start is None:
            return []
        count = self._fitting(worker, start, now_s)
        self._waiting.rotate(-start)
        taken = [self._waiting.popleft() for _ in range(count)]
        self._waiting.rotate(start)
        self.rows -= sum(each.rows for each in taken)
        return taken

    def _start(self, worker: Attached, now_s: float) -> int | None:
        """The place of the first request of the batch."""
        full_s, behind, feasible = worker.expects_s(worker.full, now_s), self.rows, None
        for place, each in enumerate(self._waiting):
            left_s, alone_s = each.deadline_s - now_s, worker.expects_s(each.rows, now_s)
            if feasible is None and alone_s <= left_s:
                feasible = place
            if feasible is not None and behind < worker.full:
                return feasible
            if max(alone_s, full_s) <= left_s:
                return place
            behind -= each.rows
        return feasible

    def _fitting(self, worker: Attached, start: int, now_s: float) -> int:
        """How many from there on go together."""
        count, rows, left_s = 0, 0, 0.0
        for each in islice(self._waiting, start, None):
            if count == 0:
                left_s = each.deadline_s - now_s
            elif (
                each.alone
                or rows + each.rows > self.served.batch
                or worker.expects_s(rows + each.rows, now_s) > left_s
            ):
                break
            count, rows = count + 1, rows + each.rows
            if each.alone:
                break
        return count


def _deadline(request: Waiting) -> float:
    return request.deadline_s
