"""Workers for independent tasks: this process, several processes, or a Ray cluster.

All three return the same results in the same order. The pool of processes notices when one of its
processes dies. Ray is imported on use.
"""

from __future__ import annotations

import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from typing import Any, TypeVar

from migrator.core.errors import InputError, MigratorError

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


ANSWERS_WITHIN_S = 5.0
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}


class TaskWorkers:
    """Applies a function to many tasks; results are in the order of the tasks."""

    def __init__(
        self,
        run: Callable[..., Iterator[Any]] = map,
        run_unordered: Callable[..., Iterator[Any]] = map,
    ) -> None:
        """Both are called with a function and tasks; by default they run them in this process.

        `run_unordered` may yield the results in another order.
        """
        self._run, self._run_unordered = run, run_unordered

    def map(
        self, function: Callable[[_Task], _Result], tasks: Sequence[_Task]
    ) -> Iterator[_Result]:
        """Yield the result of every task; function, tasks and results must be picklable."""
        return self._run(function, tasks)

    def as_completed(
        self, function: Callable[[_Task], _Result], tasks: Sequence[_Task]
    ) -> Iterator[tuple[int, _Result]]:
        """Yield the place and the result of every task as soon as it ends."""
        return self._run_unordered(partial(_numbered, function), list(enumerate(tasks)))


def _numbered(function: Callable[[_Task], _Result], task: tuple[int, _Task]) -> tuple[int, _Result]:
    place, what = task
    return place, function(what)


@contextmanager
def open_workers(jobs: int | None = None, ray_address: str | None = None) -> Iterator[TaskWorkers]:
    """Open workers in `jobs` processes (None: one per core) or on a Ray cluster."""
    at_once = cores() if jobs is None else jobs
    if ray_address is not None:
        with connect_to_ray(ray_address, "--ray") as ray:
            yield TaskWorkers(partial(_run_on_ray, ray), partial(_run_on_ray_unordered, ray))
    elif at_once <= 1:
        yield TaskWorkers()
    else:
        with open_pool(at_once) as pool:
            yield TaskWorkers(pool.map, pool.map_unordered)


def _run_on_ray(ray: Any, function: Callable[..., Any], tasks: Sequence[Any]) -> Iterator[Any]:
    """Run tasks on machines that have this package; their MigratorErrors are raised again."""
    remote = ray.remote(num_cpus=1)(function)
    for waiting in [remote.remote(each) for each in tasks]:
        yield _ray_result(ray, waiting)


def _run_on_ray_unordered(ray: Any, function: partial[Any], tasks: Sequence[Any]) -> Iterator[Any]:
    """As `_run_on_ray`, in the order in which the tasks end."""
    remote = ray.remote(num_cpus=1)(_call)
    waiting = [remote.remote(function, each) for each in tasks]
    while waiting:
        (ended, *_), waiting = ray.wait(waiting, num_returns=1)
        yield _ray_result(ray, ended)


def _call(function: Callable[[_Task], _Result], task: _Task) -> _Result:
    return function(task)


def _ray_result(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, MigratorError):
            raise cause from error
        raise MigratorError(
            f"--ray: a task failed on the Ray cluster ({_first_line(cause or error)}); check "
            "that all machines run this version of migrator, or leave --ray out"
        ) from error


def import_ray(option: str = "--cluster") -> Any:
    """Import ray; InputError if it is not installed."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        return import_module("ray")
    except ModuleNotFoundError as error:
        raise InputError(
            f"{option} needs ray, which is not installed: pip install 'migrator[cluster]'"
        ) from error


RAY_TOKEN = (
    "where Ray asks for a token: `ray get-auth-token --generate` once, the same token on every "
    "machine, and `export RAY_AUTH_MODE=token` before `ray start` and before this"
)
"""How Ray's authentication is set up."""


@contextmanager
def connect_to_ray(address: str, option: str, **settings: Any) -> Iterator[Any]:
    """Connect to the Ray cluster at the address, and disconnect on exit."""
    ray = import_ray(option)
    listens = False
    try:
        listens = _is_listening(address)
        ray.init(address=address, logging_level="ERROR", log_to_driver=False, **settings)
    except (OSError, ValueError) as error:
        if not listens:
            raise InputError(
                f"{option}: no Ray cluster answers at {address!r} ({type(error).__name__}); start "
                f"one with `ray start --head` and give its address ({RAY_TOKEN})"
            ) from error
        raise InputError(
            f"{option}: {address!r} is in use, but not by a Ray cluster that can be joined "
            f"({type(error).__name__}); run this on a machine that is part of it ({RAY_TOKEN})"
        ) from error
    except (RuntimeError, ray.exceptions.RayError) as error:
        # for example if Ray or Python have other versions there
        raise InputError(
            f"{option}: the Ray cluster at {address!r} cannot be joined ({_first_line(error)}); "
            f"have the same Ray and Python on every machine ({RAY_TOKEN})"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (
        f"{type(error).__name__}: {lines[0].rstrip('.:')[:200]}" if lines else type(error).__name__
    )


def _is_listening(address: str) -> bool:
    """Check that HOST:PORT, or Ray's address for `auto`, accepts connections; OSError if not.

    Return False if the address has no port and was not checked. Ray would retry for minutes, also
    at an address left by a crashed cluster.
    """
    if address == "auto":
        services = import_module("ray._private.services")
        address = services.get_ray_address_from_environment(address, None)
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), ANSWERS_WITHIN_S).close()
        return True
    return False
