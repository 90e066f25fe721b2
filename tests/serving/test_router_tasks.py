"""The router's tasks and timers: one task per worker, and a timer that later batches share."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from support.stand_in_worker import StandInWorker, infer
from support.virtual_time import run_virtually

from migrator.core.errors import HttpError
from migrator.serving.queue import OVERDUE_S, QueueSettings
from migrator.serving.router import Router

IMAGE = np.zeros((1, 2), np.uint8)


def new_router(worker: StandInWorker) -> Router:
    router = Router({"t": QueueSettings("t", 1.0, 4)}, clock=asyncio.get_running_loop().time)
    router.attach("t", worker, worker.latency_s)
    return router


def test_one_task_runs_all_batches_of_a_worker_and_ends_when_it_is_drained() -> None:
    async def test() -> None:
        worker, own = StandInWorker(), asyncio.all_tasks()
        router, tasks = new_router(worker), set[asyncio.Task[object]]()
        for _ in range(5):
            await infer(router, "t", IMAGE)
            tasks |= asyncio.all_tasks() - own
        assert len(tasks) == 1
        await router.drain(worker)
        await asyncio.sleep(0)
        assert all(task.done() for task in tasks)

    run_virtually(test())


@pytest.mark.parametrize("first_s", [1.0, 60.0])
def test_a_later_batch_is_refused_when_it_is_overdue_whatever_the_batch_before_allowed(
    first_s: float,
) -> None:
    async def test() -> None:
        worker = StandInWorker()
        router = new_router(worker)
        await infer(router, "t", IMAGE, router.clock() + first_s)
        worker.held.clear()
        deadline_s = router.clock() + 2.0
        with pytest.raises(HttpError, match="cannot be answered before its deadline"):
            await infer(router, "t", IMAGE, deadline_s)
        assert router.clock() == pytest.approx(deadline_s + OVERDUE_S, abs=0.01)
        worker.die()
        await asyncio.sleep(0.1)

    run_virtually(test())
