"""The forkserver as the daemon sees it: forks workers and trainings, restarted when it dies.

Its process is `forkserver_process`. A tenant that is added later has another one, forked from the
first: importing its model may take long or end the process, which stops no other tenant's workers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
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
    Duplicate,
    Fork,
    FromForkserver,
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

    def __init__(self, pid: int, reap: Reaper, handles: socket.socket) -> None:
        super().__init__("the forkserver", pid, FromForkserver, reap=reap)
        self.handles = handles

    def fault_error(self, fault: Fault) -> Exception:
        if fault.kind is FaultKind.INPUT:
            return InputError(fault.reason)
        return _not_forked(fault.reason)

    def send_handles(self, *ends: socket.socket) -> None:
        try:
            socket.send_fds(self.handles, [b"\0"], [end.fileno() for end in ends])
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
        parent: Forkserver | None = None,
    ) -> None:
        """`log`: where it and all workers write; `answer_s`: limit for forking a process.

        `ahead`, `prepare`: as in `messages.Build`. `parent`: forks its process; None: spawned.
        """
        self._log, self._models, self._answer_s = log, dict(models), answer_s
        self._ahead, self._prepare = ahead, prepare
        self._parent = parent
        self._added: dict[str, Forkserver] = {}
        """Those of tenants that were added later."""
        self._running: _ForkserverProcess | None = None
        self._interfaces: Mapping[str, ModelInterface] = {}
        self._up = asyncio.Event()
        self._reported = frozenset[str]()
        self.changed: Callable[[frozenset[str]], None] = lambda _: None
        """Called with the tenants for which no process can be started, whenever these change."""
        self._keeper: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        """For processes whose caller was cancelled while they were forked."""

    @property
    def pid(self) -> int | None:
        return self._running.pid if self._running else None

    @property
    def interfaces(self) -> Mapping[str, ModelInterface]:
        interfaces = dict(self._interfaces)
        for added in self._added.values():
            interfaces |= added.interfaces
        return interfaces

    async def start(self) -> None:
        """Start it and build all models; InputError for a model that cannot be built."""
        process = await self._spawn()
        try:
            await self._begin(process)
        except TimeoutError as error:
            raise InputError(
                f"models: not imported and built within {BUILD_S:g} s; see {self._log}"
            ) from error
        except WorkerLostError as error:
            raise MigratorError(
                f"the forkserver died while it built the models; see {self._log}"
            ) from error

    async def close(self) -> None:
        await asyncio.gather(*(added.close() for added in self._added.values()))
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
        request: Fork | Duplicate,
        child: Callable[[int, Reaper], _Child],
        *beside: socket.socket,
        limit_s: float | None = None,
    ) -> _Child:
        """A process that waits for its first request; WorkerLostError if it cannot be forked.

        `child`: makes the connection to it from its process id. `beside`: further sockets that it
        gets. `limit_s`: how long to wait for a forkserver that is being started; None: as long as
        for its answer.
        """
        if isinstance(request, Fork) and request.tenant in self._added:
            return await self._added[request.tenant].fork(request, child, limit_s=limit_s)
        forking = asyncio.create_task(self._fork(request, child, beside, limit_s or self._answer_s))
        try:
            return await asyncio.shield(forking)
        except asyncio.CancelledError:
            ending = asyncio.create_task(_end_unneeded(forking))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            raise

    async def _fork(
        self,
        request: Fork | Duplicate,
        child: Callable[[int, Reaper], _Child],
        beside: Sequence[socket.socket],
        limit_s: float,
    ) -> _Child:
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise _not_forked(error.strerror) from error
        try:
            with theirs:
                running = await self._wait_until_up(limit_s)
                running.send_handles(theirs, *beside)
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
        added = Forkserver(
            self._log,
            {tenant: model},
            answer_s=self._answer_s,
            prepare=self._prepare,
            parent=self,
        )
        added.changed = lambda _: self._report_if_changed()
        process = await added._spawn()
        try:
            await added._begin(process)
        except (TimeoutError, WorkerLostError) as error:
            why = str(error) or f"it took more than {BUILD_S:g} s"
            raise InputError(
                f"tenant {tenant}: the process that imports and builds {model.model} was lost "
                f"({why}); correct the class, see {self._log}"
            ) from error
        self._added[tenant] = added

    async def forget(self, tenant: str) -> None:
        """Fork nothing for a tenant any more, and build its model at no restart."""
        self._models.pop(tenant, None)
        self._interfaces = {name: kept for name, kept in self._interfaces.items() if name != tenant}
        if tenant in self._added:
            await self._added.pop(tenant).close()
            self._report_if_changed()  # plans no longer wait for its restart

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
                    if self._running is not None and self._running.alive:
                        return self._running
                    await asyncio.sleep(_LOOK_S)  # it has died, and its restart begins
        raise WorkerLostError(
            f"the forkserver was not ready within {limit_s:g} s; it is being restarted, see "
            f"{self._log}"
        )

    async def _keep(self, running: _ForkserverProcess) -> None:
        while True:
            await running.wait()
            self._up.clear()
            self._running = None
            running.handles.close()
            self._report_if_changed()
            running = self._running = await self._restart()
            self._up.set()
            self._report_if_changed()

    def _report_if_changed(self) -> None:
        stopped = frozenset(
            tenant
            for forkserver in (self, *self._added.values())
            if not forkserver._up.is_set()
            for tenant in forkserver._models
        )
        if stopped != self._reported:
            self._reported = stopped
            self.changed(stopped)

    async def _restart(self) -> _ForkserverProcess:
        for attempt in range(sys.maxsize):
            wait_s = _RESTART_S[min(attempt, len(_RESTART_S) - 1)]
            _log.warning("the forkserver died and is restarted in %g s", wait_s)
            await asyncio.sleep(wait_s)
            try:
                return await self._build(await self._spawn())
            except (MigratorError, OSError) as error:
                _log.warning("the forkserver could not be restarted: %s", error)
        raise AssertionError

    async def _begin(self, process: _ForkserverProcess) -> None:
        self._running = await self._build(process)
        self._up.set()
        self._keeper = asyncio.create_task(self._keep(self._running))

    async def _build(self, process: _ForkserverProcess) -> _ForkserverProcess:
        try:
            async with asyncio.timeout(BUILD_S):
                request = Build(self._models, self._ahead, self._prepare)
                frame = await process.request(request, limit_s=2 * BUILD_S)
        except BaseException:  # one that used the GPU could not be forked either
            process.kill("the models could not be built")
            await process.wait()
            process.handles.close()
            raise
        answer: Built = frame.message
        self._interfaces = answer.interfaces
        return process

    async def _spawn(self) -> _ForkserverProcess:
        handles, their_handles = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        handles.setblocking(False)
        try:
            with their_handles:
                if self._parent is None:
                    return await self._spawned(handles, their_handles)
                return await self._parent.fork(
                    Duplicate(),
                    lambda pid, reap: _ForkserverProcess(pid, reap, handles),
                    their_handles,
                    limit_s=BUILD_S,  # it may be restarted and build its models
                )
        except BaseException:
            handles.close()
            raise

    async def _spawned(
        self, handles: socket.socket, their_handles: socket.socket
    ) -> _ForkserverProcess:
        ours, theirs = socket.socketpair()
        fds = (theirs.fileno(), their_handles.fileno())
        try:
            with theirs:
                log = os.open(
                    self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
                )
                try:
                    command = ["migrator.serving.workers.forkserver_process", *map(str, fds)]
                    popen = spawn(command, child_environment(), output=log, fds=fds)
                finally:
                    os.close(log)

            async def reap(_: int) -> str:
                return exit_status(popen.wait())

            process = _ForkserverProcess(popen.pid, reap, handles)
            await process.connect(ours)
        except BaseException:
            ours.close()
            raise
        return process


async def _end_unneeded(forking: asyncio.Task[_Child]) -> None:
    await asyncio.wait([forking])
    if not forking.cancelled() and forking.exception() is None:
        process = forking.result()
        process.kill("it is not needed")
        await process.wait()


def _not_forked(reason: str | None) -> WorkerLostError:
    return WorkerLostError(f"no process could be forked ({reason})")
