"""The forkserver as the daemon sees it: forks workers and trainings, restarted when it dies.

Its process is `forkserver_process`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from migrator.core.errors import InputError, MigratorError
from migrator.io.child_process import ChildProcess, Fault, FaultKind
from migrator.io.spawn import child_environment, exit_status, spawn
from migrator.serving.workers.messages import (
    Build,
    Built,
    Fork,
    FromForkserver,
    GpuUsed,
    ModelInterface,
    ModelSpec,
    Reap,
    WorkerLostError,
)

BUILD_S = 300.0
"""Limit for importing and building the models, which may be a user's own classes."""
_REAP_S = 0.25
"""An exit status is not waited for any longer."""
_RESTART_S = (0.0, 1.0, 2.0, 5.0, 10.0)
_END_S = 2.0
_LOOK_S = 0.01

_log = logging.getLogger(__name__)

Reaper = Callable[[int], Awaitable[str]]
"""Returns how the process with that id ended, in words."""
_Child = TypeVar("_Child", bound=ChildProcess)


class _ForkserverProcess(ChildProcess):
    """The connection to the forkserver, and the socket on which it gets those of its children."""

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
    """Forks workers and trainings; restarts its process when that dies. What it forked lives on."""

    def __init__(
        self,
        log: Path,
        models: Mapping[str, ModelSpec],
        *,
        answer_s: float,
        ahead: tuple[str, ...] = (),
        prepare: tuple[str, ...] = (),
    ) -> None:
        """`log`: where it and all workers write; `answer_s`: limit for forking a process.

        `ahead`, `prepare`: as in `messages.Build`.
        """
        self._log, self._models, self._answer_s = log, dict(models), answer_s
        self._ahead, self._prepare = ahead, prepare
        self._running: _ForkserverProcess | None = None
        self.interfaces: Mapping[str, ModelInterface] = {}
        """By tenant, once started."""
        self._up = asyncio.Event()
        self._building = asyncio.Lock()
        """Held while it builds an added model and cannot fork."""
        self.changed: Callable[[bool], None] = lambda _: None
        """Called with False when its process has died, and with True when another one runs."""
        self._keeper: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        """For processes whose caller was cancelled while they were forked."""

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
        """End the process, and what it forked for callers that were cancelled."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=_END_S)
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._running is not None:
            await self._running.end(_END_S)
            self._running.handles.close()
        self._running = None
        self._up.clear()

    async def fork(
        self,
        request: Fork,
        child: Callable[[int, Reaper], _Child],
        *,
        limit_s: float | None = None,
    ) -> _Child:
        """A process that waits for its first request; WorkerLostError if it cannot be forked.

        `child`: makes the connection to it from its process id. `limit_s`: how long to wait for a
        forkserver that is being started; None: as long as for its answer.
        """
        asked = asyncio.Event()
        forking = asyncio.create_task(self._fork(request, child, limit_s or self._answer_s, asked))
        try:
            return await asyncio.shield(forking)
        except asyncio.CancelledError:
            if not asked.is_set():  # else only a connected process can be reaped
                forking.cancel()
            ending = asyncio.create_task(_end_unneeded(forking))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            raise

    async def _fork(
        self,
        request: Fork,
        child: Callable[[int, Reaper], _Child],
        limit_s: float,
        asked: asyncio.Event,
    ) -> _Child:
        """`asked` is set once there will be a process."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise _not_forked(error.strerror) from error
        try:
            with theirs:
                running = await self._wait_until_up(limit_s)
                running.send_handle(theirs)
                asked.set()
                frame = await running.request(request, limit_s=self._answer_s)
                process = child(frame.message.pid, self._reap)
        except BaseException as error:
            ours.close()  # a process without its connection exits
            if isinstance(error, OSError):
                raise _not_forked(error.strerror) from error
            raise
        await process.connect(ours)
        return process

    async def add(self, tenant: str, model: ModelSpec) -> None:
        """Build another tenant's model; InputError where it cannot be built."""
        running = await self._wait_until_up(BUILD_S)
        async with self._building:
            request = Build({tenant: model}, prepare=self._prepare)
            try:
                built = await _built(running, request, BUILD_S)
            except WorkerLostError as error:
                raise InputError(
                    f"tenant {tenant}: the process that imports and builds {model.model} was lost "
                    f"({error}); correct the class, see {self._log}"
                ) from error
        self._models[tenant] = model
        self.interfaces = {**self.interfaces, **built.interfaces}

    def forget(self, tenant: str) -> None:
        """Fork nothing for a tenant any more, and build its model at no restart."""
        self._models.pop(tenant, None)
        self.interfaces = {name: kept for name, kept in self.interfaces.items() if name != tenant}

    async def _reap(self, pid: int) -> str:
        """How a process ended, in words, as far as it is known."""
        with suppress(TimeoutError, MigratorError):
            async with asyncio.timeout(_REAP_S):
                if self._running is not None:
                    frame = await self._running.request(Reap(pid), limit_s=self._answer_s)
                    status: str = frame.message.status
                    return status
        return "ended"

    async def _wait_until_up(self, limit_s: float) -> _ForkserverProcess:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while True:
                    await self._up.wait()
                    async with self._building:  # it answers nothing meanwhile
                        if self._running is not None and self._running.alive:
                            return self._running
                    await asyncio.sleep(_LOOK_S)  # it has died, and its restart begins
        raise WorkerLostError(
            f"the forkserver was not ready within {limit_s:g} s; it is being restarted or builds a "
            f"model, see {self._log}"
        )

    async def _keep(self, running: _ForkserverProcess) -> None:
        while True:
            await running.wait()
            self._up.clear()
            self._running = None
            running.handles.close()
            self.changed(False)
            running = self._running = await self._restart()
            self._up.set()
            self.changed(True)

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
                request = Build(self._models, self._ahead, self._prepare)
                built = await _built(running, request, 2 * BUILD_S)
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
        self.interfaces = built.interfaces
        return running

    async def _spawn(self) -> _ForkserverProcess:
        ours, theirs = socket.socketpair()
        handles, their_handles = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        handles.setblocking(False)
        fds = (theirs.fileno(), their_handles.fileno())
        try:
            with theirs, their_handles:
                command = ["migrator.serving.workers.forkserver_process", *map(str, fds)]
                process = _ForkserverProcess(self._spawned(command, fds), handles)
            await process.connect(ours)
        except BaseException:
            ours.close()
            handles.close()
            raise
        return process

    def _spawned(self, command: Sequence[str], fds: Sequence[int]) -> subprocess.Popen[bytes]:
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            return spawn(command, child_environment(), output=log, fds=fds)
        finally:
            os.close(log)


async def _built(running: _ForkserverProcess, request: Build, limit_s: float) -> Built:
    answer: Built | GpuUsed = (await running.request(request, limit_s=limit_s)).message
    if isinstance(answer, GpuUsed):
        # what it forks could not use CUDA; where it ran already, another one is started
        running.kill(answer.reason)
        raise InputError(answer.reason)
    return answer


async def _end_unneeded(forking: asyncio.Task[_Child]) -> None:
    await asyncio.wait([forking])
    if not forking.cancelled() and forking.exception() is None:
        process = forking.result()
        process.kill("it is not needed")
        await process.wait()


def _not_forked(reason: str | None) -> WorkerLostError:
    return WorkerLostError(f"no process could be forked ({reason})")
