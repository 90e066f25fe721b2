"""A pool of processes for independent tasks, which notices when one of its processes dies."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TypeVar

from migrator.core.errors import MigratorError

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class TaskPool:
    """Applies a function to tasks in several processes; all of it must be picklable.

    MigratorError if a process dies, for example because the machine is out of memory.
    """

    def __init__(self, executor: ProcessPoolExecutor) -> None:
        self._executor = executor

    def map(
        self, function: Callable[[_Task], _Result], tasks: Iterable[_Task]
    ) -> Iterator[_Result]:
        """Yield the results in the order of the tasks."""
        waiting = deque([self._submit(function, each) for each in tasks])
        while waiting:
            yield _result(waiting.popleft())

    def map_unordered(
        self, function: Callable[[_Task], _Result], tasks: Iterable[_Task]
    ) -> Iterator[_Result]:
        """Yield the results as soon as they are there."""
        for done in as_completed([self._submit(function, each) for each in tasks]):
            yield _result(done)

    def _submit(self, function: Callable[[_Task], _Result], task: _Task) -> Future[_Result]:
        try:
            return self._executor.submit(function, task)
        except BrokenProcessPool as error:
            raise _lost() from error


@contextmanager
def open_pool(processes: int) -> Iterator[TaskPool]:
    """Open a pool of that many processes; at the end of the block running tasks are ended."""
    # Ctrl-C also reaches the processes; they ignore it and this process ends them
    ignore = (signal.SIGINT, signal.SIG_IGN)
    executor = ProcessPoolExecutor(processes, get_context("spawn"), signal.signal, ignore)
    try:
        yield TaskPool(executor)
    finally:
        running = list((executor._processes or {}).values())
        executor.shutdown(wait=False, cancel_futures=True)
        for each in running:
            each.terminate()
        for each in running:
            each.join()


def _result(done: Future[_Result]) -> _Result:
    try:
        return done.result()
    except BrokenProcessPool as error:
        raise _lost() from error


def _lost() -> MigratorError:
    return MigratorError(
        "a process of this run died, perhaps because the machine is out of memory; run it again "
        "with fewer processes"
    )
