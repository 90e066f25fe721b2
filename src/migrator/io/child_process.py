"""The parent's end of the connection to one child process: requests with limits, and its exit.

Used by the daemon's event loop for the forkserver, workers and trainings. The child reads the other
end with `frames.Channel` and exits with its parent (`spawn.exit_with_parent`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from itertools import count
from typing import Any, cast

from msgspec import Struct

from migrator.core.errors import InputError, MigratorError
from migrator.io.frames import Frame, FrameError, FrameReader, encode_frame
from migrator.io.spawn import ChildLostError

_READ_BYTES = 1 << 12
"""Size of a read in bytes. Answers are small, and each frame takes a new buffer."""


class FaultKind(StrEnum):
    """Consequence of a failed request for the process."""

    INPUT = "input"
    """The request cannot be carried out as given."""
    MODEL = "model"
    """The request failed; the process continues."""
    PROCESS = "process"
    """The process cannot continue and exits."""


class Fault(Struct, tag=True, frozen=True):
    """Answer to a request that failed."""

    kind: FaultKind
    reason: str


class Release(Struct, tag=True, frozen=True):
    """Finish the current request and exit; has no answer."""


class ChildProcess(asyncio.BufferedProtocol):
    """The parent's end of the connection to one process.

    A process that does not answer within its limit, or sends anything but frames, is killed.
    """

    lost_error: type[ChildLostError] = ChildLostError
    grace_s: float = 0.0
    """Seconds between SIGTERM and SIGKILL when it is killed; 0: SIGKILL at once."""

    def __init__(
        self,
        name: str,
        pid: int,
        answers: Any,
        *,
        reap: Callable[[int], Awaitable[str]],
        on_exit: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`answers` is the union of its message types. `on_exit` is called once with the reason.

        `reap` returns the exit status in words. Raises OSError if no handle can be opened.
        """
        self.name, self.pid, self.released = name, pid, False
        self._pidfd = os.pidfd_open(pid)
        self._reap, self._on_exit = reap, on_exit
        self._reader = FrameReader[Any](answers, _READ_BYTES)
        self._waiting: dict[int, asyncio.Future[Frame[Any]]] = {}
        self._numbers = count(1)
        self._lost: str | None = None
        self._killed: str | None = None
        self._asked = self._exited = False
        self._transport: asyncio.Transport | None = None
        self._watching: asyncio.Task[None] | None = None

    async def connect(self, end: socket.socket) -> None:
        """Use this end of a socket pair. This object takes ownership of it."""
        try:
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: self, sock=end)
        except BaseException:
            end.close()
            self._forget()
            raise
        self._watching = asyncio.create_task(self._watch())

    @property
    def alive(self) -> bool:
        return self._lost is None

    async def request(
        self, message: Struct, payload: bytes | memoryview = b"", *, limit_s: float
    ) -> Frame[Any]:
        """Send a request and return the answer; ChildLostError, or that of `fault_error`."""
        if self._lost is not None:
            raise self.lost_error(self._lost)
        number, loop = next(self._numbers) & 0xFFFFFFFF, asyncio.get_running_loop()
        self._write(number, message, payload)
        answer: asyncio.Future[Frame[Any]] = loop.create_future()
        self._waiting[number] = answer
        late = self._describe(f"did not answer within {limit_s:g} s and was killed")
        timer = loop.call_later(limit_s, self.kill, late)
        try:
            frame = await answer
        finally:
            timer.cancel()
            self._waiting.pop(number, None)
        if isinstance(frame.message, Fault):
            raise self.fault_error(frame.message)
        return frame

    def fault_error(self, fault: Fault) -> Exception:
        if fault.kind is FaultKind.INPUT:
            return InputError(fault.reason)
        if fault.kind is FaultKind.MODEL:
            return MigratorError(fault.reason)
        return self.lost_error(f"{self.name} cannot continue ({fault.reason})")

    async def end(self, limit_s: float) -> None:
        """Let the process finish its request and exit; kill it after `limit_s`."""
        if self._lost is None:
            self._write(0, Release())
            self.released = True
            self._lost = f"{self.name} was released; take another"
        await self.wait(limit_s)
        self._send_kill()
        await self.wait()

    async def wait(self, limit_s: float | None = None) -> None:
        """Wait until the process has exited, or for `limit_s`."""
        assert self._watching is not None
        await asyncio.wait([self._watching], timeout=limit_s)

    def kill(self, reason: str) -> None:
        """Kill the process, after its grace. Open requests fail with the reason at once."""
        self._killed = self._killed or reason
        self._lose(reason)
        self._send_kill()

    def on_notice(self, message: Any) -> None:
        """Called with a message that answers no request, such as progress."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport has no base class

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._reader.add(nbytes)
        except FrameError as error:
            self.kill(f"{self.name} was killed: {error}")
            return
        for frame in frames:
            if not frame.number:
                self.on_notice(frame.message)
            answer = self._waiting.get(frame.number)
            if answer is not None and not answer.done():
                answer.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio: kill the process, which is of no use without its connection."""
        del exc
        self._lose(self._describe("ended"))
        self._send_kill()

    def _write(self, number: int, message: Struct, payload: bytes | memoryview = b"") -> None:
        assert self._transport is not None
        for buffer in encode_frame(number, message, payload):
            self._transport.write(buffer)

    def _lose(self, reason: str) -> None:
        self._lost = self._lost or reason
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self.lost_error(reason))
        self._waiting.clear()

    def _send_kill(self) -> None:
        if self.grace_s and not self._asked:
            self._asked = True
            self._send(signal.SIGTERM)
            asyncio.get_running_loop().call_later(self.grace_s, self._send, signal.SIGKILL)
        elif not self.grace_s:
            self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if not self._exited:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def _forget(self) -> None:
        """Close the handle; its number may be that of another process next."""
        self._exited = True
        os.close(self._pidfd)

    async def _watch(self) -> None:
        """Wait for its exit; its socket may still be open in a process that it forked."""
        loop, exited = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._pidfd, exited.set)
        try:
            await exited.wait()
        finally:
            loop.remove_reader(self._pidfd)
        self._lose(self._describe("ended"))
        self._forget()
        assert self._transport is not None
        self._transport.close()
        status = await self._reap(self.pid)
        self._on_exit(self._killed or self._describe(status))

    def _describe(self, event: str) -> str:
        return f"{self.name} (process {self.pid}) {event}"
