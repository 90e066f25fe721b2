"""One child process: its environment, its socket, requests with timeouts, and its exit.

The parent holds a `ChildProcess`. The child reads the other end of the socket with `frames.Channel`
and exits with its parent (`exit_with_parent`). Requests and answers are frames.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any, cast

from msgspec import Struct

import migrator
from migrator.core.errors import InputError, MigratorError
from migrator.io.frames import Frame, FrameError, FrameReader, encode_frame

_READ_BYTES = 1 << 12
"""Size of a read in bytes. Answers are small, and each frame takes a new buffer."""
_PASSED_ON = re.compile(
    r"PATH|HOME|LANG|LD_LIBRARY_PATH|LD_PRELOAD|MIGRATOR_(DAEMON|DATA|LOG_FORMAT)|TMPDIR|TZ|"
    r"VIRTUAL_ENV|(LC_|PYTHON|OMP_|CUDA_|NVIDIA_).*"
)
_SECRET = re.compile("TOKEN|SECRET|PASSWORD|CREDENTIAL|KEY")
"""Words in names of variables that are never passed on, as in NVIDIA_API_KEY."""
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables set to 1, because a process with a thread pool must not fork."""


class ChildLostError(MigratorError):
    """The process exited, was killed because it did not answer, or cannot be reached."""


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
        self._exited = False
        self._transport: asyncio.Transport | None = None
        self._watching: asyncio.Task[None] | None = None

    async def connect(self, end: socket.socket) -> None:
        """Use this end of a socket pair. This object takes ownership of it."""
        try:
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: self, sock=end)
        except BaseException:
            end.close()
            os.close(self._pidfd)
            raise
        self._watching = asyncio.create_task(self._watch())

    @property
    def alive(self) -> bool:
        """Whether the process accepts requests."""
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
        """The exception for a request that failed."""
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
        """Kill the process immediately. Open requests fail with the reason."""
        self._killed = self._killed or reason
        self._lose(reason)
        self._send_kill()

    def on_notice(self, message: Any) -> None:
        """Called with a message that answers no request, such as progress."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport has no base class

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by asyncio: return the buffer to read into."""
        del sizehint
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio: bytes were read."""
        try:
            frames = self._reader.add(nbytes)
        except FrameError as error:
            self.kill(f"{self.name} was killed: {error}")
            return
        for each in frames:
            if not each.number:
                self.on_notice(each.message)
            answer = self._waiting.get(each.number)
            if answer is not None and not answer.done():
                answer.set_result(each)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio: kill the process, which is of no use without its connection."""
        del exc
        self._lose(self._describe("ended"))
        self._send_kill()

    def _write(self, number: int, message: Struct, payload: bytes | memoryview = b"") -> None:
        assert self._transport is not None
        for each in encode_frame(number, message, payload):
            self._transport.write(each)

    def _lose(self, reason: str) -> None:
        self._lost = self._lost or reason
        for each in self._waiting.values():
            if not each.done():
                each.set_exception(self.lost_error(reason))
        self._waiting.clear()

    def _send_kill(self) -> None:
        if not self._exited:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def _watch(self) -> None:
        """Wait for its exit; its socket may still be open in a process that it forked."""
        loop, exited = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._pidfd, exited.set)
        try:
            await exited.wait()
        finally:
            loop.remove_reader(self._pidfd)
        self._lose(self._describe("ended"))
        self._exited = True
        os.close(self._pidfd)
        assert self._transport is not None
        self._transport.close()
        status = await self._reap(self.pid)
        self._on_exit(self._killed or self._describe(status))

    def _describe(self, event: str) -> str:
        return f"{self.name} (process {self.pid}) {event}"


def spawn(command: Sequence[str], log: Path, fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start a Python module as a child with its own session, which logs to `log`."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=child_environment(),
            pass_fds=tuple(fds),
            start_new_session=True,
        )
    finally:
        os.close(file)


def child_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that a child needs, without secrets; limits it to one thread."""
    kept = {
        name: value
        for name, value in environment.items()
        if _PASSED_ON.fullmatch(name) and not _SECRET.search(name)
    }
    source = str(Path(migrator.__file__).parent.parent)
    paths = [source, *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
    return {**kept, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONPATH": os.pathsep.join(paths)}


def exit_status(code: int) -> str:
    """An exit code in words."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"


def one_line(error: BaseException) -> str:
    """An error as one line of text."""
    text = str(error).strip().partition("\n")[0][:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def exit_with_parent(end: socket.socket) -> Iterator[None]:
    """Context in which this process exits as soon as the other end of the socket is closed."""
    number = end.fileno()
    stop, stopped = os.pipe()

    def exit_at_hangup() -> None:
        poll = select.poll()
        poll.register(number, select.POLLRDHUP)
        poll.register(stop, 0)
        if number in dict(poll.poll()):
            os._exit(1)

    thread = Thread(target=exit_at_hangup, daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(stopped)
        thread.join()  # no other thread may run in a process that forks
        os.close(stop)
