"""Workers for independent tasks: this process, several processes, or a Ray cluster.

All three return the same results in the same order.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

from migrator.core.errors import InputError, MigratorError
from migrator.simulate.compare import cores

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

ANSWERS_WITHIN_S = 5.0


class TaskWorkers(Protocol):
    """Applies a function to many tasks; results are in the order of the tasks."""

    def map(
        self, function: Callable[[_Task], _Result], tasks: Sequence[_Task]
    ) -> Iterator[_Result]:
        """Yield the result of every task; function, tasks and results must be picklable."""
        ...


class InProcess:
    """Runs tasks one after the other in this process."""

    def map(
        self, function: Callable[[_Task], _Result], tasks: Sequence[_Task]
    ) -> Iterator[_Result]:
        """Yield the result of every task, in order."""
        return map(function, tasks)


class Processes:
    """Runs tasks in several processes of this machine."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def map(
        self, function: Callable[[_Task], _Result], tasks: Sequence[_Task]
    ) -> Iterator[_Result]:
        """Yield the result of every task, in order."""
        results: Iterator[_Result] = self._pool.imap(function, tasks)
        return results


class RayWorkers:
    """Runs tasks on a Ray cluster whose machines all have this package installed."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def map(
        self, function: Callable[[_Task], _Result], tasks: Sequence[_Task]
    ) -> Iterator[_Result]:
        """Yield the result of every task, in order."""
        remote = self._ray.remote(num_cpus=1)(function)
        for waiting in [remote.remote(each) for each in tasks]:
            yield self._result(waiting)

    def _result(self, waiting: Any) -> Any:
        """Return the result of a task. Raise its MigratorError again; wrap other errors in one."""
        try:
            return self._ray.get(waiting)
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, MigratorError):
                raise cause from error
            raise MigratorError(
                f"--ray: a task failed on the Ray cluster ({_first_line(cause or error)}); check "
                "that all machines run this version of migrator, or leave --ray out"
            ) from error


@contextmanager
def open_workers(jobs: int | None = None, ray_address: str | None = None) -> Iterator[TaskWorkers]:
    """Open workers in `jobs` processes (None: one per core) or on a Ray cluster."""
    if ray_address is not None:
        with _ray(ray_address) as workers:
            yield workers
        return
    at_once = cores() if jobs is None else jobs
    if at_once <= 1:
        yield InProcess()
        return
    # Ctrl-C also reaches the workers; they ignore it and this process terminates them
    with get_context("spawn").Pool(at_once, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield Processes(pool)


@contextmanager
def _ray(address: str) -> Iterator[RayWorkers]:
    try:
        ray: Any = import_module("ray")
    except ModuleNotFoundError as error:
        raise InputError(
            "--ray needs ray, which is not installed: pip install 'migrator[cluster]', or leave "
            "--ray out"
        ) from error
    try:
        is_listening(address)
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (OSError, ValueError, RuntimeError) as error:
        if "Version mismatch" in str(error):
            raise InputError(
                f"--ray: the Ray cluster at {address!r} has another version of Ray or Python than "
                "is installed here; install the same, or leave --ray out"
            ) from error
        raise InputError(
            f"--ray: no Ray cluster answers at {address!r} ({type(error).__name__}); start one "
            "with `ray start --head` and give its address, or leave --ray out"
        ) from error
    try:
        yield RayWorkers(ray)
    finally:
        ray.shutdown()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def is_listening(address: str) -> bool:
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
