"""The simulator's router beside the live one: the same requests, the same workers, virtual time."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.stand_in_worker import StandInWorker
from support.virtual_time import run_virtually

from migrator.core.errors import HttpError
from migrator.core.problem import Instance, Kind, Task
from migrator.serving.queue import AttachedWorker, QueuedRequest, QueueSettings, TenantQueue
from migrator.serving.router import Router
from migrator.simulation.gpu import SimulatedWorker
from migrator.simulation.serving import (
    BATCH_COLUMNS,
    IN_TIME,
    UNKEPT,
    Conditions,
    WorkerColumns,
    serve,
)
from migrator.simulation.tenant import Spans, idle_spans

SLO_S, BATCH, SECONDS = 0.15, 4, 60.0
LATENCIES_S = {1: (0.040, 0.100), 2: (0.024, 0.054), 3: (0.018, 0.038)}
"""GPCs to the seconds of one request and of four."""

Table = tuple[float, ...]


def table(gpcs: int) -> Table:
    """Seconds per batch size; place 0 is unused."""
    one, four = LATENCIES_S[gpcs]
    return (one, *(one + (four - one) * (size - 1) / 3 for size in range(1, BATCH + 1)))


def capability_rps(latencies_s: Table) -> float:
    full = max(size for size in range(1, BATCH + 1) if size == 1 or 2 * latencies_s[size] <= SLO_S)
    return full / latencies_s[full]


class Virtual:
    """The live router's line, fed as the router feeds it."""

    def __init__(self, tables: list[Table]) -> None:
        self.line = TenantQueue(QueueSettings("tenant", SLO_S, BATCH))
        for latencies_s in tables:
            worker: Any = None  # nobody asks it: time is virtual
            self.line.add_worker(worker, latencies_s.__getitem__)
        self.second = self.line.counts.receive(0.0, 1)
        self.numbers: Iterator[int] = iter(range(10**9))
        self.events: list[tuple[float, int, AttachedWorker | None]] = []
        self.in_time = 0

    def run(self, arrivals: list[float]) -> int:
        """How many were answered in time."""
        self.events = [(arrival, next(self.numbers), None) for arrival in arrivals]
        heapq.heapify(self.events)
        while self.events:
            now_s, _, worker = heapq.heappop(self.events)
            if worker is None:
                self.line.put(self.request(now_s))
            else:
                self.in_time += sum(now_s <= request.deadline_s for request in worker.batch)
                worker.batch = []
            self.feed(now_s)
        return self.in_time

    def request(self, now_s: float) -> QueuedRequest:
        answer: Any = None
        return QueuedRequest(np.empty(0), 1, now_s, now_s + SLO_S, self.second, answer)

    def feed(self, now_s: float) -> None:
        list(self.line.pop_hopeless(now_s))
        for worker in self.line.taking:
            if not worker.batch and (batch := self.line.batch_for(worker, now_s)):
                worker.batch = batch
                ends_s = now_s + worker.latency_s[len(batch)]
                heapq.heappush(self.events, (ends_s, next(self.numbers), worker))
        list(self.line.pop_surplus(now_s))


def simulated(
    arrivals: list[float],
    tables: list[Table],
    lent: tuple[Table, NDArray[np.float64], NDArray[np.float64]] | None = None,
    sent: NDArray[np.float64] = UNKEPT,
) -> float:
    slowest_first = sorted(tables, key=lambda latencies_s: -latencies_s[1])
    own = len(tables)
    begin_s, end_s = (np.array([]), np.array([])) if lent is None else lent[1:]
    workers = WorkerColumns(
        np.array([*slowest_first, *(lent[:1] if lent else ()) * len(begin_s)]).reshape(
            -1, BATCH + 1
        ),
        np.concatenate([np.zeros(own), begin_s]),
        np.concatenate([np.full(own, np.inf), end_s]),
        np.full(own + len(begin_s), -np.inf),
        own,
        np.array([*range(own), *[own] * len(begin_s)]),
    )
    nothing, one = np.empty(0), np.ones(1)
    now = Conditions(
        0.0, SECONDS + 10, SLO_S, BATCH, False, 1.0, np.ones(99), np.zeros(1), one, nothing, nothing
    )
    counted, _ = serve(np.array(arrivals), np.zeros(len(arrivals)), False, workers, now, sent)
    return float(counted[IN_TIME])


@pytest.mark.parametrize("gpcs", [[2], [3], [1, 1], [2, 1], [2, 2]])
@pytest.mark.parametrize("load", [0.6, 0.9, 1.1, 1.5, 2.5])
def test_as_many_requests_are_in_time_in_both(gpcs: list[int], load: float) -> None:
    tables = [table(size) for size in gpcs]
    count = int(SECONDS * load * sum(map(capability_rps, tables)))
    arrivals = sorted((np.random.default_rng(count).random(count) * SECONDS).tolist())
    live = Virtual(tables).run(arrivals)
    assert simulated(arrivals, tables) == pytest.approx(live, rel=0.015)


def virtual_router(arrivals: list[list[float]], own: list[Table], owner: Table, lent: Table) -> int:
    """Requests of the first tenant that the live router answers in time, with a standby on the
    slices of the second tenant's worker."""

    async def in_time() -> int:
        loop = asyncio.get_running_loop()
        queues = {name: QueueSettings(name, SLO_S, BATCH) for name in "ab"}
        router = Router(queues, clock=loop.time)
        other, standby = (StandInWorker(str(e), e.__getitem__) for e in (owner, (*lent, 0.0)))
        for number, by_size in enumerate(own):
            router.attach(
                "a", StandInWorker(f"a{number}", by_size.__getitem__), by_size.__getitem__
            )
        router.attach("b", other, owner.__getitem__)
        router.attach("a", standby, lent.__getitem__, may_borrow=lambda: router.is_idle(other))

        async def send(name: str, at_s: float) -> None:
            await asyncio.sleep(at_s)
            with suppress(HttpError):
                await router.submit(name, np.zeros((1, 1), np.uint8)).answer

        named = zip("ab", arrivals, strict=True)
        await asyncio.gather(*(send(name, at) for name, times in named for at in times))
        total = router.counts["a"].total
        assert total.received == total.in_time + total.late + total.dropped
        return total.in_time

    return run_virtually(in_time())


QUICK: Table = (0.002,) * (BATCH + 1)


@pytest.mark.parametrize(
    ("own", "owner", "lent", "load"),
    [
        ([2], table(3), table(3), 0.3),
        ([2], table(3), table(3), 0.8),
        ([2], QUICK, table(3), 0.05),
        ([1], QUICK, table(3), 0.02),
        ([], table(3), table(3), 0.3),
    ],
)
def test_standbys_answer_as_many_on_idle_slices_in_both(
    own: list[int], owner: Table, lent: Table, load: float
) -> None:
    """The first tenant has more requests than its workers can answer."""
    tables, rng, arrivals = [table(gpcs) for gpcs in own], np.random.default_rng(3), []
    able_rps = sum(map(capability_rps, tables)) or capability_rps(lent)
    for rate_rps in (2 * able_rps, load * capability_rps(owner)):
        count = int(SECONDS * rate_rps)
        arrivals.append(sorted((rng.random(count) * SECONDS).tolist()))
    worker = SimulatedWorker(Instance(0, 3), Task("b", Kind.INFERENCE), 1, 0.0, 0.0)
    sent = np.full((len(arrivals[1]), BATCH_COLUMNS), -1.0)
    simulated(arrivals[1], [owner], sent=sent)
    sent = sent[sent[:, 0] >= 0]
    ran = [Spans(worker, sent[:, 1], sent[:, 2])]
    [idle] = idle_spans([worker], ran, 0.0, SECONDS + 10)
    served = simulated(arrivals[0], tables, (lent, idle.begin_s, idle.end_s))
    live = virtual_router(arrivals, tables, owner, lent)
    assert live > 1.15 * (simulated(arrivals[0], tables) if tables else 1)
    assert served == pytest.approx(live, rel=0.03)
