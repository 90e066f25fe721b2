"""Standbys that are discarded, used, lost or updated while they start: none is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from migrator.control import events as ev
from migrator.core.problem import Holding, Instance
from migrator.live.actuation import Actuation
from migrator.live.context import Context
from migrator.live.rollout import Rollout
from migrator.serving.workers.messages import Assignment
from migrator.serving.workers.pool import ServingWorker

PLACE, OTHER = Instance(0, 1), Instance(1, 1)
TENANT = "photos"


class Worker(ServingWorker):
    """A worker without a process; it starts and swaps when the test says so."""

    numbers = count(1)

    def __init__(self, assignment: Assignment, running: set[str]) -> None:
        self.assignment, self.parts_s, self.held_mib = assignment, {"total": 1.0}, 0.0
        self._name, self._running = f"w{next(self.numbers)}", running
        self._swapping, self.may_swap = asyncio.Lock(), asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_swap.set()
        self.may_end.set()
        running.add(self._name)

    @property
    def name(self) -> str:
        return self._name

    async def _swap(self, weights: Path, version: int) -> float:
        await self.may_swap.wait()
        self.assignment = replace(self.assignment, weights=weights, version=version)
        return 0.0

    async def release(self) -> None:
        await self.may_end.wait()
        self._running.discard(self._name)


class Pool:
    """Workers that start when `may_start` is set."""

    lost: Callable[[ServingWorker, str], None]

    def __init__(self) -> None:
        self.may_start, self.running = asyncio.Event(), set[str]()
        self.forkserver = SimpleNamespace(changed=None)

    async def take(self, assignment: Assignment) -> Worker:
        try:
            await self.may_start.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)  # until the process is gone
            raise
        return Worker(assignment, self.running)


class Bench(Actuation):
    """The actuation of one GPU with such workers; keeps the events."""

    def __init__(self) -> None:
        self.pool, self.version, self.events = Pool(), 1, list[ev.Event]()
        context: Any = SimpleNamespace(
            gpu_thread=self, workers=self.pool, router=self, serving_workers={}, standby_workers={}
        )
        context.report_memory = lambda *_: None
        context.lends, self.busy = False, set[str]()
        self.attached: dict[str, Callable[[], bool] | None] = {}
        context.workers_of = lambda _: list(context.serving_workers.values())
        context.standbys_of = lambda _: list(context.standby_workers.values())
        context.tenants, context.serving = {TENANT: self}, SimpleNamespace(shared=None)
        nothing: Any = SimpleNamespace(
            decisions=SimpleNamespace(swapped=lambda _: None),
            event=lambda *_, **__: None,
            instructed=lambda _: None,
        )
        super().__init__(cast(Context, context), nothing, nothing, nothing)
        self.rollout = Rollout(cast(Context, context), nothing)

    name = TENANT

    def on_event(self, event: ev.Event) -> None:
        self.events.append(event)

    def assignment(
        self, tenant: str, instance: Holding, environment: Mapping[str, str]
    ) -> Assignment:
        del instance
        number = self.version if isinstance(self.version, int) else self.version.number
        return Assignment(tenant, "m", Path("/w"), number, "cpu", environment, 1)

    def adopt(self, number: int) -> asyncio.Task[None]:
        self.version = cast(Any, SimpleNamespace(tenant=TENANT, weights=Path("/w"), number=number))
        return asyncio.create_task(self.rollout._swap_all(cast(Any, self.version)))

    def _latency_s(self, tenant: str, instance: Holding) -> Callable[[int], float]:
        del tenant, instance
        return lambda _: 0.1

    def _measure_overhead(self, *_: Any) -> None: ...

    async def worker_environment(self, _: Holding) -> Mapping[str, str]:
        return {}

    def attach(
        self,
        _: str,
        worker: ServingWorker,
        __: Any,
        *,
        may_borrow: Callable[[], bool] | None = None,
        place: str,
    ) -> None:
        assert place == "1g@0"
        self.attached[worker.name] = may_borrow

    def detach(self, worker: ServingWorker) -> None:
        self.attached.pop(worker.name, None)

    async def drain(self, worker: ServingWorker) -> None:
        self.detach(worker)

    def is_idle(self, worker: ServingWorker) -> bool:
        return worker.name not in self.busy

    def paused(self, _: ServingWorker) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def settled(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0.02)
            for _ in range(20):  # a stalled machine may be late for every timer
                await asyncio.sleep(0)

    @property
    def workers(self) -> set[str]:
        """Workers that serve or wait."""
        return {worker.name for worker in (*self._serving.values(), *self._standbys.values())}


@pytest.fixture
def bench() -> Bench:
    return Bench()


PREPARE, DISCARD = ev.Prepare(PLACE, TENANT), ev.Discard(PLACE, TENANT)
WARM, STOP = ev.Warm(PLACE, TENANT), ev.StopWorker(PLACE)


@pytest.mark.parametrize(
    ("instructions", "left"),
    [
        ((PREPARE, DISCARD, PREPARE, DISCARD), 0),
        ((PREPARE, DISCARD, PREPARE, WARM), 1),
        ((PREPARE, WARM, STOP), 0),
        ((PREPARE, WARM, STOP, PREPARE), 1),
        ((PREPARE, WARM, STOP, PREPARE, DISCARD), 0),
        ((PREPARE, WARM), 1),
    ],
)
async def test_no_worker_is_left_or_forgotten(
    bench: Bench, instructions: tuple[ev.Instruction, ...], left: int
) -> None:
    for instruction in instructions:
        bench.do([instruction])
        await asyncio.sleep(0.002)
    await bench.settled()
    bench.pool.may_start.set()
    await bench.settled()
    assert len(bench.pool.running) == left
    assert bench.workers == bench.pool.running
    assert not bench._preparing


@pytest.mark.parametrize("instruction", [ev.Warm(OTHER, TENANT), ev.Prepare(OTHER, TENANT)])
async def test_a_process_starts_only_when_a_discarded_standby_has_freed_its_memory(
    bench: Bench, instruction: ev.Instruction
) -> None:
    bench.pool.may_start.set()
    bench.do([PREPARE])
    await bench.settled()
    standby = cast(Worker, bench._standbys[PLACE, TENANT])
    standby.may_end.clear()
    bench.do([DISCARD, instruction])
    await bench.settled()
    assert bench.pool.running == {standby.name}, "the other one has not started"
    standby.may_end.set()
    await bench.settled()
    assert bench.pool.running == bench.workers
    assert standby.name not in bench.workers


async def test_the_loss_of_a_standby_is_reported(bench: Bench) -> None:
    bench.pool.may_start.set()
    bench.do([PREPARE])
    await bench.settled()
    bench.pool.lost(bench._standbys[PLACE, TENANT], "was killed")
    assert bench.events[-1] == ev.Prepared(PLACE, TENANT, "was killed")
    bench.do([ev.Keep(PLACE, TENANT)])  # its worker was lost meanwhile
    assert isinstance(bench.events[-1], ev.Prepared)
    assert bench.events[-1].why


@pytest.mark.parametrize("last", [1, 3])
async def test_a_standby_that_takes_over_serves_the_version_that_is_current(
    bench: Bench, last: int
) -> None:
    """Another one is adopted, or the first one serves again, while it loads the second."""
    bench.pool.may_start.set()
    bench.do([PREPARE, ev.Warm(OTHER, TENANT)])
    await bench.settled()
    standby = cast(Worker, bench._standbys[PLACE, TENANT])
    standby.may_swap.clear()
    await bench.adopt(2)
    bench.do([WARM])
    await bench.settled()
    rolled = bench.adopt(last)
    await bench.settled()
    standby.may_swap.set()
    await rolled
    await bench.settled()
    assert {worker.assignment.version for worker in bench._serving.values()} == {last}


async def test_a_standby_serves_while_no_other_worker_uses_its_slices(bench: Bench) -> None:
    bench._context.lends = True
    bench.pool.may_start.set()
    bench.version = cast(Any, SimpleNamespace(tenant=TENANT, weights=Path("/w"), number=1))
    bench.do([PREPARE])
    await bench.settled()
    standby = bench._standbys[PLACE, TENANT]
    may_borrow = bench.attached[standby.name]
    assert may_borrow is not None
    assert not may_borrow()  # a retraining may run there
    serving, third = (Worker(standby.assignment, bench.pool.running) for _ in range(2))
    bench._serving[PLACE], bench._standbys[PLACE, "texts"] = serving, third
    assert may_borrow()
    for worker in (serving, third):
        bench.busy = {worker.name}
        assert not may_borrow()
    bench.busy = set()
    await bench.adopt(2)
    standby.assignment = replace(standby.assignment, version=1)  # it is not updated yet
    assert not may_borrow()
    standby.assignment = replace(standby.assignment, version=2)
    assert may_borrow()
    del bench._standbys[PLACE, "texts"], bench._serving[PLACE]
    bench.do([WARM])
    await bench.settled()
    assert bench.attached[standby.name] is None  # the slices are its own
    bench.do([ev.Keep(PLACE, TENANT)])
    assert bench.attached[standby.name] is not None
    bench.do([DISCARD])
    await bench.settled()
    assert standby.name not in bench.attached
    assert standby.name not in bench.pool.running
