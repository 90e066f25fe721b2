"""Worker processes for tests: started, always ended, waited for with a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop
from numpy.typing import NDArray

from migrator.io.processes import is_running
from migrator.serving.workers.messages import Assignment, ModelSpec
from migrator.serving.workers.pool import Workers
from support import PYTHONPATH
from support.waiting import LIMIT_S

OBEDIENT = "support.served_models:Obedient"


def run_on_uvloop(doing: Coroutine[Any, Any, None]) -> None:
    """Run a test in a loop of its own, as the daemon runs on, with a limit."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(doing, LIMIT_S))


def in_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Decorator of an asynchronous test, on the loop that the daemon runs on."""
    return wraps(test)(lambda **fixtures: run_on_uvloop(test(**fixtures)))


@dataclass(frozen=True)
class SharedWorkers:
    """Workers of one tenant, `a`, for several tests, which run in one event loop."""

    runner: asyncio.Runner
    workers: Workers

    def run(self, test: Callable[..., Coroutine[Any, Any, None]], fixtures: dict[str, Any]) -> None:
        async def whole() -> None:
            await self.workers.prepare("a", 0)
            await test(self.workers, **fixtures)

        self.runner.run(asyncio.wait_for(whole(), LIMIT_S))


@contextmanager
def shared_workers(folder: Path, *, hang_s: float = 20.0) -> Iterator[SharedWorkers]:
    """Started once; at the end all of their processes are gone."""
    with (
        pytest.MonkeyPatch.context() as patch,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        patch.setenv("PYTHONPATH", PYTHONPATH)
        patch.setenv("MIGRATOR_ADMIN_TOKEN", "hush")
        workers = Workers(folder, {"a": ModelSpec(OBEDIENT, 3)}, hang_s=hang_s)
        runner.run(workers.start())
        try:
            yield SharedWorkers(runner, workers)
            forkserver = workers.forkserver.pid or 0
            processes = {forkserver, *children(forkserver)}
        finally:
            runner.run(workers.close())
        assert not any(map(is_running, processes))


@asynccontextmanager
async def started(
    folder: Path, model: str = OBEDIENT, *, hang_s: float = 20.0, seed: int = 0
) -> AsyncIterator[Workers]:
    """The workers of one tenant, `a`."""
    workers = Workers(folder, {"a": ModelSpec(model, 3, seed=seed)}, hang_s=hang_s)
    try:
        await workers.start()
        yield workers
    finally:
        await workers.close()


def assignment(model: str = OBEDIENT, **changed: Any) -> Assignment:
    """Something to take."""
    plain: dict[str, Any] = {
        "tenant": "a",
        "model": model,
        "weights": None,
        "version": 1,
        "device": "cpu",
        "environment": {},
        "batch": 4,
    }
    return Assignment(**(plain | changed))


def pictures(first: int = 0, batch: int = 2) -> NDArray[np.uint8]:
    """A batch whose first pixel tells the model what to do."""
    made = np.zeros((batch, 3, 4, 4), np.uint8)
    made.flat[0] = first
    return made


def children(pid: int) -> set[int]:
    """The living processes that it forked."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return {int(pid) for pid in listed.split() if is_running(int(pid))}
