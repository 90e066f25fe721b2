"""The nursery as the daemon sees it: started, asked for workers, started again when it dies."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from migrator.core.errors import InputError, MigratorError
from migrator.serve.assignment import InputKind, ModelSpec, WorkerLostError
from migrator.serve.messages import Build, Built, Fault, Fork, Forked, FromNursery, Reap, Reaped
from migrator.serve.scrubbed import scrubbed
from migrator.serve.wire import PACKET, packed, unpacked

BUILD_S = 300.0
"""A user's own class may take its time to import, but not for ever."""
_REAP_S = 0.25
"""How a worker ended is worth no longer a wait than this."""
_AGAIN_S = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
_END_S = 2.0

_Answer = tuple[FromNursery, list[int]]

_log = logging.getLogger(__name__)


class NurseryGoneError(WorkerLostError):
    """The nursery died or does not answer; it is started again."""


@dataclass(frozen=True)
class Forkling:
    """A process just forked: its number, a handle on it, and our end of the line to it."""

    pid: int
    handle: int
    end: socket.socket


class Nursery:
    """The process that forks workers, whichever one it is at the moment."""

    def __init__(
        self,
        log: Path,
        models: Mapping[str, ModelSpec],
        *,
        answer_s: float,
        ahead: tuple[str, ...] = (),
    ) -> None:
        """`log`: where it and all workers write; `answer_s`: for how long it is waited for."""
        self._log, self._models, self._answer_s = log, dict(models), answer_s
        self._ahead = ahead
        self._process: _Process | None = None
        self.inputs: Mapping[str, InputKind] = {}
        """What one row of every tenant's inputs looks like, once it has been started."""
        self._up = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Its process; None while there is none."""
        return self._process.popen.pid if self._process else None

    async def start(self) -> None:
        """Up and built; InputError for a model that cannot be."""
        self._process, self.inputs = await _started(self._log, self._models, self._ahead)
        self._up.set()
        self._keeping = asyncio.create_task(self._keep(self._process))

    async def close(self) -> None:
        """End it."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self._process is not None:
            await self._process.end()
        self._process = None
        self._up.clear()

    async def fork(self, tenant: str, worker: str) -> Forkling:
        """A worker that waits for its assignment; WorkerLostError if there can be none."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise WorkerLostError(f"no worker could be forked ({error.strerror})") from error
        try:
            async with asyncio.timeout(self._answer_s):
                await self._up.wait()
                said, handles = await self._asked(Fork(tenant, worker), [theirs.fileno()])
            assert isinstance(said, Forked)
            if not handles:  # the kernel drops it where we are at our limit of open files
                raise WorkerLostError("no worker could be forked (too many open files)")
        except BaseException as error:
            ours.close()  # a worker without its line ends by itself
            if isinstance(error, TimeoutError):
                self._kill()
                raise NurseryGoneError(self._trouble("does not answer")) from error
            raise
        finally:
            theirs.close()
        return Forkling(said.pid, handles[0], ours)

    async def add(self, tenant: str, model: ModelSpec) -> None:
        """Another tenant's model, built beside the others; InputError where it cannot be."""
        async with asyncio.timeout(BUILD_S):
            await self._up.wait()
            if self._process is None:
                raise NurseryGoneError(self._trouble("is not there"))
            said, _ = await self._process.asked(Build({tenant: model}))
        if isinstance(said, Fault):
            raise InputError(said.said)
        assert isinstance(said, Built)
        self._models[tenant] = model
        self.inputs = {**self.inputs, **said.inputs}

    async def reap(self, pid: int) -> str:
        """How a worker ended, in words as far as it can be told."""
        with suppress(TimeoutError, MigratorError):
            async with asyncio.timeout(_REAP_S):
                said, _ = await self._asked(Reap(pid))
                assert isinstance(said, Reaped)
                return said.how
        return "ended"

    async def _asked(self, message: Struct, handles: Sequence[int] = ()) -> _Answer:
        if self._process is None:
            raise NurseryGoneError(self._trouble("is not there"))
        said, got = await self._process.asked(message, handles)
        if isinstance(said, Fault):
            raise WorkerLostError(f"no worker could be forked ({said.said}); see {self._log}")
        return said, got

    async def _keep(self, process: _Process) -> None:
        """Whenever it dies, another one; living workers are nobody's business here."""
        while True:
            await process.over()
            self._up.clear()
            self._process = None
            process.close()
            process = self._process = await self._again()
            self._up.set()

    async def _again(self) -> _Process:
        for attempt in range(sys.maxsize):
            wait_s = _AGAIN_S[min(attempt, len(_AGAIN_S) - 1)]
            _log.warning("the nursery died and is started again in %g s", wait_s)
            await asyncio.sleep(wait_s)
            try:
                process, self.inputs = await _started(self._log, self._models, self._ahead)
                return process
            except (MigratorError, OSError) as error:
                _log.warning("the nursery could not be started again: %s", error)
        raise AssertionError

    def _kill(self) -> None:
        if self._process is not None:
            self._process.popen.kill()

    def _trouble(self, what: str) -> str:
        return f"the nursery, which forks workers, {what} and is started again; see {self._log}"


class _Process:
    """One nursery process and the line to it: answers come in the order of the questions."""

    def __init__(self, popen: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.popen, self._control = popen, control
        self._handle = os.pidfd_open(popen.pid)
        self._asked: deque[asyncio.Future[_Answer]] = deque()
        asyncio.get_running_loop().add_reader(control.fileno(), self._arrived)

    async def asked(self, message: Struct, handles: Sequence[int] = ()) -> _Answer:
        """Its answer, and the handles that came along."""
        try:
            socket.send_fds(self._control, [packed(message)], list(handles))
        except OSError as error:
            raise _gone() from error
        self._asked.append(asyncio.get_running_loop().create_future())
        return await self._asked[-1]

    def _arrived(self) -> None:
        try:
            packet, handles, _, _ = socket.recv_fds(self._control, PACKET, 1)
        except OSError:
            packet, handles = b"", []
        if not packet:
            self._hang_up()
            return
        waiting = self._asked.popleft()
        if waiting.done():  # nobody waits any more; a worker without its line ends by itself
            for each in handles:
                os.close(each)
        else:
            waiting.set_result((unpacked(FromNursery, packet), handles))

    def _hang_up(self) -> None:
        if self._control.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
        self._control.close()
        for each in self._asked:
            if not each.done():
                each.set_exception(_gone())
        self._asked.clear()

    async def over(self) -> None:
        """When it has ended."""
        await readable(self._handle)

    async def end(self) -> None:
        """Hang up, at which it ends by itself; one that does not go is killed."""
        self._hang_up()
        try:
            async with asyncio.timeout(_END_S):
                await self.over()
        except TimeoutError:
            self.popen.kill()
            await self.over()
        self.close()

    def close(self) -> None:
        """Let go of a process that has ended."""
        self._hang_up()
        os.close(self._handle)
        self.popen.wait()


async def _started(
    log: Path, models: dict[str, ModelSpec], ahead: tuple[str, ...]
) -> tuple[_Process, Mapping[str, InputKind]]:
    process = _spawned(log)
    try:
        async with asyncio.timeout(BUILD_S):
            said, _ = await process.asked(Build(models, ahead))
        if isinstance(said, Fault):
            raise InputError(said.said)
        assert isinstance(said, Built)
    except BaseException as error:
        process.popen.kill()
        await process.end()
        raise _not_built(error, log) from error
    return process, said.inputs


def _not_built(error: BaseException, log: Path) -> BaseException:
    if isinstance(error, TimeoutError):
        return InputError(
            f"models: they were not imported and built within {BUILD_S:g} s; see {log} for what "
            "takes so long"
        )
    if isinstance(error, NurseryGoneError):
        return MigratorError(f"the nursery died while it built the models; see {log} for why")
    return error


def _spawned(log: Path) -> _Process:
    number = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    try:
        popen = subprocess.Popen(
            [sys.executable, "-m", "migrator.serve.nursery", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=number,
            stderr=number,
            env=scrubbed(),
            pass_fds=(theirs.fileno(),),
            start_new_session=True,  # Ctrl-C is for the daemon, which lets workers finish
        )
    except OSError:
        ours.close()
        raise
    finally:
        os.close(number)
        theirs.close()
    return _Process(popen, ours)


def _gone() -> NurseryGoneError:
    return NurseryGoneError("the nursery, which forks workers, died; try again in a moment")


async def readable(handle: int) -> None:
    """When there is something to read, or the process behind the handle has ended."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(handle, _set, ready)
    try:
        await ready
    finally:
        loop.remove_reader(handle)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
