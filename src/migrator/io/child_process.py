"""Processes that exchange frames with their parent: the connection's two ends.

A frame is a fixed prefix (magic, request number, sizes), a msgspec struct as msgpack, and the raw
bytes of an array. No pickle. `ChildProcess` is the parent's end, for the daemon's event loop: it
sends requests with limits to the forkserver, workers and trainings. `Channel` is the child's end.
The child exits with its parent (`spawn.exit_with_parent`).
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from migrator.core.errors import InputError, MigratorError
from migrator.core.tensors import dtype_of, dtype_text
from migrator.io.spawn import ChildLostError

MAX_HEADER_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 1 << 28
"""Maximum payload in bytes. A frame that announces more is invalid."""
_MAGIC = b"MGR2"
_PREFIX = struct.Struct("<4sIII")
_READ_BYTES, _ANSWER_BYTES = 1 << 16, 1 << 12
"""Sizes of a read in bytes, by the child and by the parent.

A batch of small images and its header fit into the first. Answers are small, and each frame takes
a new buffer.
"""
_JOIN_BYTES = 1 << 17
"""Size in bytes up to which one copy costs less than a second system call."""
_DTYPES = {
    kind.str: kind for kind in (np.dtype(code).newbyteorder("<") for code in "?bBhHilqIQefd")
}

Message = TypeVar("Message")


class FrameError(MigratorError):
    """The bytes are not a frame. The connection is unusable afterwards."""


class Frame(Struct, Generic[Message], frozen=True):
    """One message and its payload. The buffer belongs to the receiver."""

    number: int
    """Number of the request. An answer has the number of its request."""
    message: Message
    payload: memoryview


def encode_frame(
    number: int, message: Struct, payload: bytes | memoryview = b""
) -> list[bytes | memoryview]:
    """The buffers to write, in order."""
    header = msgspec.msgpack.encode(message, enc_hook=_encode_path)
    if len(header) > MAX_HEADER_BYTES or len(payload) > MAX_PAYLOAD_BYTES:
        raise FrameError(
            f"a message of {len(header)} bytes with an array of {len(payload)} bytes is over the "
            f"limit of {MAX_PAYLOAD_BYTES >> 20} MiB; send smaller batches"
        )
    head = _PREFIX.pack(_MAGIC, number, len(header), len(payload)) + header
    if len(payload) <= _JOIN_BYTES:
        return [b"".join((head, payload))]
    return [head, payload]


class FrameReader(Generic[Message]):
    """Decoder of a stream: read into `space`, then call `add` with the number of bytes read."""

    def __init__(self, messages: Any, read_bytes: int = _READ_BYTES) -> None:
        """`messages` is the union of message types that this end accepts."""
        self._decoder = msgspec.msgpack.Decoder(messages, dec_hook=_decode_path)
        self._read_bytes = read_bytes
        self._buffer, self._filled = bytearray(read_bytes), 0

    def space(self) -> memoryview:
        """The buffer for the next bytes. Never empty."""
        return memoryview(self._buffer)[self._filled :]

    def add(self, size_read: int) -> list[Frame[Message]]:
        """The frames that these bytes complete. Raises FrameError for anything else."""
        self._filled += size_read
        frames: list[Frame[Message]] = []
        at = 0
        while True:
            number, header, payload = self._prefix(at)
            size = _PREFIX.size + header + payload
            if self._filled - at < size:
                break
            frames.append(self._frame(number, at + _PREFIX.size, header, payload))
            at += size
        # Frames keep the buffer that they arrived in, so the rest moves to a new one.
        if frames or size > len(self._buffer):
            rest = self._buffer[at : self._filled]
            self._buffer, self._filled = bytearray(max(self._read_bytes, size)), len(rest)
            self._buffer[: len(rest)] = rest
        return frames

    def _prefix(self, at: int) -> tuple[int, int, int]:
        """Number and sizes of the frame at this position; zeros until the prefix is complete."""
        if self._filled - at < _PREFIX.size:
            return 0, 0, 0
        magic, number, header, payload = _PREFIX.unpack_from(self._buffer, at)
        if magic != _MAGIC or header > MAX_HEADER_BYTES or payload > MAX_PAYLOAD_BYTES:
            raise _invalid(f"it begins with {bytes(self._buffer[at : at + _PREFIX.size])!r}")
        return number, header, payload

    def _frame(self, number: int, at: int, header: int, payload: int) -> Frame[Message]:
        whole, middle = memoryview(self._buffer), at + header
        try:
            message = self._decoder.decode(whole[at:middle])
        except msgspec.MsgspecError as error:
            raise _invalid(str(error)) from error
        return Frame(number, message, whole[middle : middle + payload])


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
        self._reader = FrameReader[Any](answers, _ANSWER_BYTES)
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


class Channel(Generic[Message]):
    """A blocking end of the connection, for the child process."""

    def __init__(self, end: socket.socket, messages: Any) -> None:
        self.socket, self._reader = end, FrameReader[Message](messages)
        self._received: list[Frame[Message]] = []

    def receive(self) -> Frame[Message] | None:
        """The next frame; None at the end of the stream."""
        while not self._received:
            try:
                received = self.socket.recv_into(self._reader.space())
            except ConnectionError:
                return None
            if not received:
                return None
            self._received = self._reader.add(received)
        return self._received.pop(0)

    def send(self, number: int, message: Struct, payload: bytes | memoryview = b"") -> None:
        for buffer in encode_frame(number, message, payload):
            self.socket.sendall(buffer)


def encode_array(array: NDArray[Any]) -> tuple[tuple[int, ...], str, memoryview]:
    """Shape, type and bytes of an array. Raises TypeError for an array of objects."""
    if array.dtype.str not in _DTYPES or not array.flags.c_contiguous:
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
    if not _is_numeric(array.dtype):
        raise TypeError(f"arrays of {array.dtype} cannot be sent; use a numeric type")
    # a buffer of records has a format that cannot be cast
    content = array.data if array.dtype.names is None else array.view(np.uint8).data
    return (
        array.shape,
        dtype_text(array.dtype),
        content.cast("B") if array.size else memoryview(b""),
    )


def decode_array(shape: tuple[int, ...], dtype: str, payload: memoryview) -> NDArray[Any]:
    """The array, without a copy. Raises FrameError if shape and bytes do not match."""
    kind = _DTYPES[dtype] if dtype in _DTYPES else _record_type(dtype)
    if kind is None or min(shape, default=0) < 0:
        raise _invalid(f"an array of type {dtype[:20]!r} and shape {shape}")
    if math.prod(shape) * kind.itemsize != len(payload):
        raise _invalid(f"{len(payload)} bytes for an array of {shape}")
    return np.frombuffer(payload, kind).reshape(shape)


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    if dtype.names is None:
        return dtype.base.str in _DTYPES
    return all(_is_numeric(dtype[name].base) for name in dtype.names)


@lru_cache
def _record_type(text: str) -> np.dtype[Any] | None:
    """The type of records of numbers; None if the text is of none."""
    try:
        dtype = dtype_of(text)
    except (TypeError, ValueError):
        return None
    return dtype if dtype.names is not None and _is_numeric(dtype) else None


def _invalid(reason: str) -> FrameError:
    return FrameError(f"invalid data between two processes of MIGRator ({reason})")


def _encode_path(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be part of a message")


def _decode_path(kind: type, value: Any) -> object:
    if kind is Path:
        return Path(value)
    raise TypeError(f"{kind.__name__} cannot be part of a message")
