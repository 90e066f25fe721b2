"""Workers for independent tasks: this process, several processes, or a Ray cluster.

All three return the same results in the same order. Unlike `object_process` and `child_process`,
which talk to one process about its own state, any worker may run any task; so the processes are
those of `concurrent.futures`, which also notices when one of them dies. Ray is imported on use.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from threading import Thread
from typing import Any, TypeVar

from migrator.core.errors import MigratorError
from migrator.io.ray_cluster import connect_to_ray
from migrator.io.spawn import exit_at_hangup, one_line

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _open_processes(number: int) -> Iterator[ProcessPoolExecutor]:
    """Open that many processes; at the end of the block running tasks are ended."""
    # when this process closes its end, or is killed, every process exits
    ours, theirs = socket.socketpair()
    with theirs:
        executor = ProcessPoolExecutor(number, get_context("spawn"), _begin, (theirs,))
        try:
            yield executor
        finally:
            ours.close()
            executor.shutdown(cancel_futures=True)


def _begin(end: socket.socket) -> None:
    """Called in each process; `end` stays open in it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    Thread(target=exit_at_hangup, args=(end.detach(),), daemon=True).start()


def _run_in_processes(
    executor: ProcessPoolExecutor,
    in_order: bool,
    function: Callable[..., Any],
    tasks: Sequence[Any],
) -> Iterator[Any]:
    try:
        # results are not kept once they are given
        waiting = [executor.submit(function, task) for task in reversed(tasks)]
        if in_order:
            while waiting:
                yield waiting.pop().result()
        else:
            pending = as_completed(waiting)
            del waiting
            for done in pending:
                yield done.result()
    except BrokenProcessPool as error:
        raise MigratorError(
            "a process of this run died, perhaps because the machine is out of memory; run it "
            "again with fewer processes"
        ) from error


class TaskWorkers:
    """Applies a function to many tasks.

    MigratorError if a process dies, for example because the machine is out of memory.
    """

    def __init__(self, run: Callable[..., Iterator[Any]] = lambda _, *what: map(*what)) -> None:
        """`run` is called with whether results are in the order of the tasks, a function and tasks.

        By default they run in this process.
        """
        self._run = run

    def map(
        self, function: Callable[[_Task], _Result], tasks: Sequence[_Task]
    ) -> Iterator[_Result]:
        """Yield the result of every task; function, tasks and results must be picklable."""
        return self._run(True, function, tasks)

    def as_completed(
        self, function: Callable[[_Task], _Result], tasks: Sequence[_Task]
    ) -> Iterator[tuple[int, _Result]]:
        """Yield the place and the result of every task as soon as it ends."""
        return self._run(False, partial(_numbered, function), list(enumerate(tasks)))


def _numbered(function: Callable[[_Task], _Result], task: tuple[int, _Task]) -> tuple[int, _Result]:
    place, what = task
    return place, function(what)


@contextmanager
def open_workers(jobs: int | None = None, ray_address: str | None = None) -> Iterator[TaskWorkers]:
    """Open workers in `jobs` processes (None: one per core) or on a Ray cluster."""
    at_once = cores() if jobs is None else jobs
    if ray_address is not None:
        with connect_to_ray(ray_address, "--ray") as ray:
            yield TaskWorkers(partial(_run_on_ray, ray))
    elif at_once <= 1:
        yield TaskWorkers()
    else:
        with _open_processes(at_once) as executor:
            yield TaskWorkers(partial(_run_in_processes, executor))


def _run_on_ray(
    ray: Any, in_order: bool, function: Callable[..., Any], tasks: Sequence[Any]
) -> Iterator[Any]:
    """Run tasks on machines that have this package; their MigratorErrors are raised again."""
    remote = ray.remote(num_cpus=1)(_call)  # which takes no partial function
    waiting = [remote.remote(function, task) for task in tasks]
    try:
        while waiting:
            (ended, *_), left = ray.wait(waiting[:1] if in_order else waiting, num_returns=1)
            waiting = waiting[1:] if in_order else left
            yield ray.get(ended)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, MigratorError):
            raise cause from error
        raise MigratorError(
            f"--ray: a task failed on the Ray cluster ({one_line(cause or error)}); check "
            "that all machines run this version of migrator, or leave --ray out"
        ) from error


def _call(function: Callable[[_Task], _Result], task: _Task) -> _Result:
    return function(task)
