"""The forkserver as the daemon uses it: started, asked for workers, restarted when it dies.

The process itself is `forkserver_main`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from migrator.core.errors import InputError, MigratorError
from migrator.io.child_process import ChildProcess, Fault, FaultKind, exit_status, spawn
from migrator.serve.workers.messages import (
    Build,
    Fork,
    FromForkserver,
    FromWorker,
    InputKind,
    ModelFaultError,
    ModelSpec,
    Reap,
    WorkerLostError,
)

BUILD_S = 300.0
"""Limit for importing and building the models, which may be a user's own classes."""
_REAP_S = 0.25
"""An exit status is not waited for any longer."""
_RESTART_S = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
_END_S = 2.0

_log = logging.getLogger(__name__)


class WorkerProcess(ChildProcess):
    """The connection to one worker."""

    lost_error = WorkerLostError

    def fault_error(self, fault: Fault) -> Exception:
        """ModelFaultError where the model raised."""
        if fault.kind is FaultKind.MODEL:
            return ModelFaultError(f"the model failed ({fault.reason}); correct its class or input")
        return super().fault_error(fault)


class _ForkserverProcess(ChildProcess):
    """The connection to the forkserver, and the socket on which it gets the workers' sockets."""

    lost_error = WorkerLostError

    def __init__(self, popen: subprocess.Popen[bytes], handles: socket.socket) -> None:
        super().__init__("the forkserver", popen.pid, FromForkserver, reap=self._exit_status)
        self._popen, self.handles = popen, handles

    async def _exit_status(self, _: int) -> str:
        return exit_status(self._popen.wait())

    def fault_error(self, fault: Fault) -> Exception:
        if fault.kind is FaultKind.INPUT:
            return InputError(fault.reason)
        return _not_forked(fault.reason)

    def send_handle(self, end: socket.socket) -> None:
        try:
            socket.send_fds(self.handles, [b"\0"], [end.fileno()])
        except OSError as error:
            raise WorkerLostError(f"the forkserver cannot be reached ({error.strerror})") from error


class Forkserver:
    """Forks workers; restarts its process when that dies. Workers live on meanwhile."""

    def __init__(
        self,
        log: Path,
        models: Mapping[str, ModelSpec],
        *,
        answer_s: float,
        ahead: tuple[str, ...] = (),
    ) -> None:
        """`log`: where it and all workers write; `answer_s`: limit for forking a worker."""
        self._log, self._models, self._answer_s = log, dict(models), answer_s
        self._ahead = ahead
        self._running: _ForkserverProcess | None = None
        self.inputs: Mapping[str, InputKind] = {}
        """One row of every tenant's inputs, once started."""
        self._up = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Its process; None while there is none."""
        return self._running.pid if self._running else None

    async def start(self) -> None:
        """Start it and build all models; InputError for a model that cannot be built."""
        self._running = await self._start()
        self._up.set()
        self._keeper = asyncio.create_task(self._keep(self._running))

    async def close(self) -> None:
        """End it."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._running is not None:
            await self._running.end(_END_S)
            self._running.handles.close()
        self._running = None
        self._up.clear()

    async def fork(
        self, tenant: str, name: str, on_exit: Callable[[WorkerProcess, str], None]
    ) -> WorkerProcess:
        """A worker that waits for its assignment; WorkerLostError if it cannot be forked."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise _not_forked(error.strerror) from error
        try:
            with theirs:
                running = await self._wait_until_up(self._answer_s)
                running.send_handle(theirs)
                frame = await running.request(Fork(tenant, name), limit_s=self._answer_s)
                worker = WorkerProcess(
                    f"worker {name}",
                    frame.message.pid,
                    FromWorker,
                    reap=self._reap,
                    on_exit=lambda how: on_exit(worker, how),
                )
        except BaseException as error:
            ours.close()  # a worker without its connection exits
            if isinstance(error, OSError):
                raise _not_forked(error.strerror) from error
            raise
        await worker.connect(ours)
        return worker

    async def add(self, tenant: str, model: ModelSpec) -> None:
        """Build another tenant's model; InputError where it cannot be built."""
        running = await self._wait_until_up(BUILD_S)
        frame = await running.request(Build({tenant: model}), limit_s=BUILD_S)
        self._models[tenant] = model
        self.inputs = {**self.inputs, **frame.message.inputs}

    async def _reap(self, pid: int) -> str:
        """How a worker ended, in words, as far as it is known."""
        with suppress(TimeoutError, MigratorError):
            async with asyncio.timeout(_REAP_S):
                if self._running is not None:
                    frame = await self._running.request(Reap(pid), limit_s=self._answer_s)
                    status: str = frame.message.status
                    return status
        return "ended"

    async def _wait_until_up(self, limit_s: float) -> _ForkserverProcess:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._up.wait(), limit_s)
        if self._running is None:
            raise WorkerLostError(
                f"the forkserver is not running and is being restarted; see {self._log}"
            )
        return self._running

    async def _keep(self, running: _ForkserverProcess) -> None:
        while True:
            await running.wait()
            self._up.clear()
            self._running = None
            running.handles.close()
            running = self._running = await self._restart()
            self._up.set()

    async def _restart(self) -> _ForkserverProcess:
        for attempt in range(sys.maxsize):
            wait_s = _RESTART_S[min(attempt, len(_RESTART_S) - 1)]
            _log.warning("the forkserver died and is restarted in %g s", wait_s)
            await asyncio.sleep(wait_s)
            try:
                return await self._start()
            except (MigratorError, OSError) as error:
                _log.warning("the forkserver could not be restarted: %s", error)
        raise AssertionError

    async def _start(self) -> _ForkserverProcess:
        running = await self._spawn()
        try:
            async with asyncio.timeout(BUILD_S):
                frame = await running.request(Build(self._models, self._ahead), limit_s=2 * BUILD_S)
        except BaseException as error:
            running.kill("the models could not be built")
            await running.wait()
            running.handles.close()
            if isinstance(error, TimeoutError):
                raise InputError(
                    f"models: not imported and built within {BUILD_S:g} s; see {self._log}"
                ) from error
            if isinstance(error, WorkerLostError):
                raise MigratorError(
                    f"the forkserver died while it built the models; see {self._log}"
                ) from error
            raise
        self.inputs = frame.message.inputs
        return running

    async def _spawn(self) -> _ForkserverProcess:
        ours, theirs = socket.socketpair()
        handles, their_handles = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        handles.setblocking(False)
        fds = (theirs.fileno(), their_handles.fileno())
        try:
            with theirs, their_handles:
                command = ["migrator.serve.workers.forkserver_main", *map(str, fds)]
                process = _ForkserverProcess(spawn(command, self._log, fds), handles)
            await process.connect(ours)
        except BaseException:
            ours.close()
            handles.close()
            raise
        return process


def _not_forked(reason: str | None) -> WorkerLostError:
    return WorkerLostError(f"no worker could be forked ({reason})")
