"""The simulator's router beside the live one: the same requests, the same workers, virtual time."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.stand_in_worker import StandInWorker
from support.virtual_time import run_virtually

from migrator.core.errors import HttpError
from migrator.core.problem import Instance, Kind, Task
from migrator.serve.queue import AttachedWorker, QueuedRequest, QueueSettings, TenantQueue
from migrator.serve.router import Router
from migrator.simulate.gpu import Worker
from migrator.simulate.serving import IN_TIME, UNKEPT, Conditions, Workers, serve
from migrator.simulate.tenant import Span, idle_spans

SLO_S, BATCH, SECONDS = 0.15, 4, 60.0
LATENCIES_S = {1: (0.040, 0.100), 2: (0.024, 0.054), 3: (0.018, 0.038)}
"""GPCs to the seconds of one request and of four."""

Table = tuple[float, ...]


def table(gpcs: int) -> Table:
    """Seconds per batch size; place 0 is unused."""
    one, four = LATENCIES_S[gpcs]
    return (one, *(one + (four - one) * (size - 1) / 3 for size in range(1, BATCH + 1)))


def capability_rps(each: Table) -> float:
    full = max(size for size in range(1, BATCH + 1) if size == 1 or 2 * each[size] <= SLO_S)
    return full / each[full]


class Virtual:
    """The live router's line, fed as the router feeds it."""

    def __init__(self, tables: list[Table]) -> None:
        self.line = TenantQueue(QueueSettings("tenant", SLO_S, BATCH))
        for each in tables:
            worker: Any = None  # nobody asks it: time is virtual
            self.line.add_worker(worker, each.__getitem__)
        self.second = self.line.counts.receive(0.0, 1)
        self.numbers: Iterator[int] = iter(range(10**9))
        self.events: list[tuple[float, int, AttachedWorker | None]] = []
        self.in_time = 0

    def run(self, arrivals: list[float]) -> int:
        """How many were answered in time."""
        self.events = [(each, next(self.numbers), None) for each in arrivals]
        heapq.heapify(self.events)
        while self.events:
            now_s, _, worker = heapq.heappop(self.events)
            if worker is None:
                self.line.put(self.request(now_s))
            else:
                self.in_time += sum(now_s <= each.deadline_s for each in worker.batch)
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
    lent: Sequence[tuple[Table, float, float]] = (),
    sent: NDArray[np.float64] = UNKEPT,
) -> float:
    slowest_first = sorted(tables, key=lambda each: -each[1])
    own, count = len(tables), len(tables) + len(lent)
    workers = Workers(
        np.array([*slowest_first, *(each for each, _, _ in lent)]),
        np.array([0.0] * own + [begin_s for _, begin_s, _ in lent]),
        np.array([np.inf] * own + [end_s for _, _, end_s in lent]),
        np.full(count, -np.inf),
        np.arange(count) >= own,
    )
    nothing, one = np.empty(0), np.ones(1)
    end_s = SECONDS + 10
    now = Conditions(
        0.0, end_s, SLO_S, BATCH, False, 1.0, np.ones(99), np.zeros(1), one, nothing, nothing
    )
    counted, _ = serve(np.array(arrivals), np.zeros(len(arrivals)), False, workers, now, sent)
    return float(counted[IN_TIME])


@pytest.mark.parametrize("gpcs", [[2], [3], [1, 1], [2, 1], [2, 2]])
@pytest.mark.parametrize("load", [0.6, 0.9, 1.1, 1.5, 2.5])
def test_as_many_requests_are_in_time_in_both(gpcs: list[int], load: float) -> None:
    tables = [table(each) for each in gpcs]
    count = int(SECONDS * load * sum(map(capability_rps, tables)))
    arrivals = sorted((np.random.default_rng(count).random(count) * SECONDS).tolist())
    live = Virtual(tables).run(arrivals)
    assert simulated(arrivals, tables) == pytest.approx(live, rel=0.015)


def virtual_router(arrivals: list[list[float]], own: Table, lent: Table) -> int:
    """Requests of the first tenant that the live router answers in time, with a standby on the
    slices of the second tenant's worker."""

    async def in_time() -> int:
        loop = asyncio.get_running_loop()
        router = Router({name: QueueSettings(name, SLO_S, BATCH) for name in "ab"}, clock=loop.time)
        workers = [
            StandInWorker(name, each.__getitem__)
            for name, each in zip("abs", (own, lent, lent), strict=True)
        ]
        router.attach("a", workers[0], own.__getitem__)
        router.attach("b", workers[1], lent.__getitem__)
        router.attach(
            "a", workers[2], lent.__getitem__, may_borrow=lambda: router.is_idle(workers[1])
        )

        async def send(name: str, at_s: float) -> None:
            await asyncio.sleep(at_s)
            with suppress(HttpError):
                await router.submit(name, np.zeros((1, 1), np.uint8)).answer

        sent = [send(name, at) for name, times in zip("ab", arrivals, strict=True) for at in times]
        await asyncio.gather(*sent)
        return router.counts["a"].total.in_time

    return run_virtually(in_time())


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_standbys_answer_as_many_on_idle_slices_in_both(load: float) -> None:
    """The first tenant has twice the requests that its worker can answer."""
    own, lent = table(2), table(3)
    rng, arrivals = np.random.default_rng(3), list[list[float]]()
    for rate_rps in (2 * capability_rps(own), load * capability_rps(lent)):
        count = int(SECONDS * rate_rps)
        arrivals.append(sorted((rng.random(count) * SECONDS).tolist()))
    worker = Worker(Instance(0, 3), Task("b", Kind.INFERENCE), 1, 0.0, 0.0)
    sent = np.full((len(arrivals[1]), 3), -1.0)
    simulated(arrivals[1], [lent], sent=sent)
    ran = [Span(worker, begin_s, end_s) for _, begin_s, end_s in sent[sent[:, 0] >= 0]]
    spans = list(idle_spans([worker], ran, 0.0, SECONDS + 10))
    found = simulated(arrivals[0], [own], [(lent, each.begin_s, each.end_s) for each in spans])
    live = virtual_router(arrivals, own, lent)
    assert live > 1.15 * simulated(arrivals[0], [own])
    assert found == pytest.approx(live, rel=0.02)
