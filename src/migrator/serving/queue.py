"""One tenant's queue, workers and counters, and which requests form a batch for which worker.

The queue is ordered by deadline. A free worker takes requests as long as the first of them stays
in time. Where more wait than it can take, it begins with the first that leaves time for a full
batch: small batches of the most urgent would lose more requests than they save.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from migrator.serving.workers.messages import WorkerLink

if TYPE_CHECKING:
    from migrator.serving.spans import QueuedSpans

LAG_RISES, LAG_FALLS = 0.5, 1 / 32
"""Weight of a slower and of a faster batch in the expected lag, which follows the slow ones."""
LAG_HALVES_S = 1.0
OVERDUE_S = 1.0
"""Seconds after its deadline at which a request on a worker is dropped: the worker may hang."""

KEPT_S = 900
_BOUNDS_MS = (1, 2.5, 5, 10, 25, 50, 100, 200, 300, 500, 1000, 2500, 5000, 10_000)
LATENCY_BOUNDS_S = tuple(bound / 1000 for bound in _BOUNDS_MS)
"""Upper bounds of the latency histogram."""


@dataclass(slots=True)
class Counted:
    """Requests by outcome."""

    received: int = 0
    in_time: int = 0
    late: int = 0
    """Answered after the deadline."""
    dropped: int = 0
    """Refused, or its client left."""
    failed: int = 0
    judged: int = 0
    """Answers in time whose label has come."""
    correct: int = 0
    """Judged answers that are correct."""

    @property
    def open(self) -> int:
        return self.received - self.in_time - self.late - self.dropped - self.failed

    def add(self, other: Counted) -> None:
        for count in fields(Counted):
            setattr(self, count.name, getattr(self, count.name) + getattr(other, count.name))


@dataclass(slots=True)
class Second(Counted):
    """The requests that arrived in one second of the router's clock."""

    second: int = 0
    window: Counted = field(default_factory=Counted)


class Counts:
    """Outcomes of a tenant's requests: in total, by window, and by second of their arrival.

    A request counts once per row of its inputs, as that is the work it causes.
    """

    def __init__(self) -> None:
        self.total = Counted()
        self.window = Counted()
        """Requests that arrived in the current window."""
        self.latencies = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.latency_sum_s = 0.0
        self.served_sum_s = 0.0
        """Part of the latencies that workers took, over all rows."""
        self.batches = 0
        self.last_answer_s = 0.0
        """Time of day of the last batch; 0 before the first."""
        self._seconds: deque[Second] = deque(maxlen=KEPT_S)

    def receive(self, now_s: float, rows: int) -> Second:
        """Count an arrival; its outcome is counted on the second that is returned."""
        second, last = int(now_s), self._seconds[-1] if self._seconds else None
        if last is None or last.second < second or last.window is not self.window:
            last = Second(second=second, window=self.window)
            self._seconds.append(last)
        for counted in (last, self.window, self.total):
            counted.received += rows
        return last

    def begin_window(self) -> None:
        """Count arrivals from now on in another window. That of the last one still changes while
        its requests are answered."""
        self.window = Counted()

    def answer(self, second: Second, rows: int, latency_s: float, *, late: bool) -> None:
        for counted in (second, second.window, self.total):
            if late:
                counted.late += rows
            else:
                counted.in_time += rows
        self.latencies[bisect_left(LATENCY_BOUNDS_S, latency_s)] += rows
        self.latency_sum_s += latency_s * rows

    def judge(self, second: Second, *, correct: bool) -> None:
        for counted in (second, second.window, self.total):
            counted.judged += 1
            counted.correct += correct

    def serve(self, rows: int, served_s: float) -> None:
        self.batches += 1
        self.served_sum_s += served_s * rows
        self.last_answer_s = time.time()

    def drop(self, second: Second, rows: int) -> None:
        for counted in (second, second.window, self.total):
            counted.dropped += rows

    def fail(self, second: Second, rows: int) -> None:
        for counted in (second, second.window, self.total):
            counted.failed += rows

    def seconds(self, first: int, last: int) -> list[Second]:
        """Copies of every second from `first` to before `last`, also of those without requests."""
        copies = {number: Second(second=number) for number in range(first, last)}
        for second in self._seconds:
            if second.second in copies:  # twice where a window began within it
                copies[second.second].add(second)
                copies[second.second].window = second.window
        return list(copies.values())


@dataclass(frozen=True)
class QueueSettings:
    """How a tenant's requests are queued and batched."""

    name: str
    slo_s: float
    batch: int
    limit: int = 512
    """Rows of inputs that may wait."""
    slowest_first: bool = False
    """Use the slowest free worker that is in time (ELSA), not the fastest."""


class Routed(NamedTuple):
    """The answer to one request."""

    scores: NDArray[Any]
    """Records of the outputs where a model names them."""
    version: int
    waited_s: float
    served_s: float
    late: bool


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """A request in the queue or on a worker."""

    inputs: NDArray[Any]
    rows: int
    came_s: float
    deadline_s: float
    second: Second
    answer: asyncio.Future[Routed]
    request_id: str = ""
    spans: QueuedSpans | None = None
    """None: it is not traced."""
    lost: int = 0
    """The number of workers that were lost while they had it."""
    alone: bool = False
    """A batch with it failed: it is sent by itself now, so that others do not fail with it."""

    @property
    def overdue_s(self) -> float:
        """The time after which not even a late answer is awaited."""
        return self.deadline_s + OVERDUE_S


@dataclass(eq=False, slots=True)
class AttachedWorker:
    """A worker that takes batches of the tenant."""

    worker: WorkerLink
    latency_s: tuple[float, ...]
    """Per batch size; index 0 is unused."""
    full: int
    """The largest batch that leaves time in the objective to wait for another one before it."""
    max_lag_s: float
    """Limit of the lag, so that an idle worker is always tried."""
    may_borrow: Callable[[], bool] | None = None
    """Whether the worker of another tenant on its slices is idle; None: the slices are its own."""
    place: str = ""
    """Where it runs, for the record of its batches."""
    lag_s: float = 0.0
    measured_s: float = 0.0
    batch: list[QueuedRequest] = field(default_factory=list)
    started_s: float = 0.0
    """When the batch was taken from the queue."""
    waiting: int = 0
    """Rows that still waited then."""
    sent_s: float = 0.0
    """When the batch was sent to the worker."""
    evaluates: bool = False
    """Whether it answers inputs that are no requests."""
    task: asyncio.Task[None] | None = None
    """Runs its last batch; None before the first, and after it was detached."""
    drained: asyncio.Event | None = None
    """Set when its last batch is answered; None: it is not being drained."""
    timer: asyncio.TimerHandle | None = None
    """Runs until the first request of its batch is overdue."""

    @property
    def busy(self) -> bool:
        return bool(self.batch) or self.evaluates

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def expected_s(self, rows: int, now_s: float) -> float:
        """Seconds that a batch will take: as profiled, and the lag measured recently."""
        idle_s = now_s - self.measured_s
        # an old lag decays, or one slow batch could exclude a worker for ever
        lag_s = self.lag_s if idle_s < LAG_HALVES_S else self.lag_s * 0.5 ** (idle_s / LAG_HALVES_S)
        return self.latency_s[rows] + lag_s

    def measure(self, rows: int, took_s: float, now_s: float) -> None:
        difference = max(0.0, took_s - self.latency_s[rows]) - self.lag_s
        lag_s = self.lag_s + difference * (LAG_RISES if difference > 0 else LAG_FALLS)
        self.lag_s = min(lag_s, self.max_lag_s)
        self.measured_s = now_s


class TenantQueue:
    """A tenant's queue and its workers, in the order in which they get batches."""

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.counts = Counts()
        self.workers: list[AttachedWorker] = []
        self.rows = 0
        self.refusal: str | None = None
        """Why new requests are refused; None: they are not."""
        self.timer: asyncio.TimerHandle | None = None
        self.timer_s = 0.0
        self.taking: list[AttachedWorker] = []
        """The workers that are not being drained, without those that borrow their slices."""
        self.borrowing: list[AttachedWorker] = []
        """Workers on slices of other tenants: they get full batches while those need no slices."""
        self._waiting: deque[QueuedRequest] = deque()
        self.update_capacity()

    def __len__(self) -> int:
        return len(self._waiting)

    def add_worker(
        self,
        worker: WorkerLink,
        latency_s: Callable[[int], float],
        may_borrow: Callable[[], bool] | None = None,
        place: str = "",
    ) -> AttachedWorker:
        batch, slo_s = self.settings.batch, self.settings.slo_s
        table = (0.0, *(latency_s(rows) for rows in range(1, batch + 1)))
        full = next((rows for rows in range(batch, 1, -1) if 2 * table[rows] <= slo_s), 1)
        max_lag_s = max(0.0, slo_s - table[1]) / 2
        attached = AttachedWorker(worker, table, full, max_lag_s, may_borrow, place)
        self.workers.append(attached)
        self.workers.sort(
            key=lambda worker: worker.latency_s[1], reverse=self.settings.slowest_first
        )
        self.update_capacity()
        return attached

    def remove_worker(self, worker: AttachedWorker) -> None:
        self.workers.remove(worker)
        self.update_capacity()

    def update_capacity(self) -> None:
        """To be called when the workers or their state change."""
        active = [worker for worker in self.workers if worker.drained is None]
        self.taking = [worker for worker in active if worker.may_borrow is None]
        self.borrowing = [worker for worker in active if worker.may_borrow is not None]
        # a full batch for a worker that borrows is no surplus
        borrowed = min((worker.full for worker in self.borrowing), default=0)
        self._full_rows = max(borrowed, sum(worker.full for worker in self.taking))
        full_s = [max(1e-6, worker.latency_s[worker.full]) for worker in self.taking]
        self._full_s = min(full_s, default=0.0)
        self._soonest_s = min((worker.latency_s[1] for worker in self.taking), default=0.0)
        # what the fastest worker takes for one row at most, whatever its lag is
        self._slowest_s = min(
            (worker.latency_s[1] + worker.max_lag_s for worker in self.taking), default=0.0
        )
        self._rate_rps = sum(
            worker.full / took_s for worker, took_s in zip(self.taking, full_s, strict=True)
        )

    def put(self, request: QueuedRequest) -> None:
        """Insert by deadline, which is nearly always at the end."""
        if not self._waiting or self._waiting[-1].deadline_s <= request.deadline_s:
            self._waiting.append(request)
        else:
            insort(self._waiting, request, key=attrgetter("deadline_s"))
        self.rows += request.rows

    def withdraw(self, request: QueuedRequest) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
            self.rows -= request.rows

    def latest_start_s(self) -> float | None:
        """The time after which the most urgent request cannot be answered in time."""
        return self._waiting[0].deadline_s - self._soonest_s if self._waiting else None

    def pop_hopeless(self, now_s: float) -> list[QueuedRequest]:
        """Remove requests that no worker can answer in time, even alone and at once."""
        if not self._waiting or self._waiting[0].deadline_s >= now_s + self._slowest_s:
            return []
        soonest_s, popped = (
            min((worker.expected_s(1, now_s) for worker in self.taking), default=0.0),
            [],
        )
        while self._waiting and self._waiting[0].deadline_s < now_s + soonest_s:
            popped.append(self._pop_first())
        return popped

    def pop_surplus(self, now_s: float) -> Iterator[QueuedRequest]:
        """Remove the most urgent while more wait than can be served before the last deadline.

        In an overload some requests must be dropped. If these are the oldest, the served ones
        have time to spare; if they were the newest, every served one would be nearly late.
        """
        while self.rows > self._full_rows and self.taking:
            left_s = self._waiting[-1].deadline_s - now_s - self._full_s
            if self.rows <= left_s * self._rate_rps:
                return
            yield self._pop_first()

    def _pop_first(self) -> QueuedRequest:
        request = self._waiting.popleft()
        self.rows -= request.rows
        return request

    def batch_for(self, worker: AttachedWorker, now_s: float) -> list[QueuedRequest]:
        """Remove a batch for a free worker; empty where it could answer none in time."""
        if len(self._waiting) == 1:
            only = self._waiting[0]
            in_time = worker.expected_s(only.rows, now_s) <= only.deadline_s - now_s
            return [self._pop_first()] if in_time else []
        start = self._start(worker, now_s)
        if start is None:
            return []
        count = self._fitting(worker, start, now_s)
        self._waiting.rotate(-start)
        taken = [self._pop_first() for _ in range(count)]
        self._waiting.rotate(start)
        return taken

    def _start(self, worker: AttachedWorker, now_s: float) -> int | None:
        full_s, behind, feasible = worker.expected_s(worker.full, now_s), self.rows, None
        for index, request in enumerate(self._waiting):
            left_s, alone_s = request.deadline_s - now_s, worker.expected_s(request.rows, now_s)
            if feasible is None and alone_s <= left_s:
                feasible = index
            if feasible is not None and behind < worker.full:
                return feasible
            if max(alone_s, full_s) <= left_s:
                return index
            behind -= request.rows
        return feasible

    def _fitting(self, worker: AttachedWorker, start: int, now_s: float) -> int:
        count, rows, left_s = 0, 0, 0.0
        for request in islice(self._waiting, start, None):
            if count == 0:
                left_s = request.deadline_s - now_s
            elif (
                request.alone
                or rows + request.rows > self.settings.batch
                or worker.expected_s(rows + request.rows, now_s) > left_s
            ):
                break
            count, rows = count + 1, rows + request.rows
            if request.alone:
                break
        return count
