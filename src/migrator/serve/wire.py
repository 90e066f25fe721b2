"""What goes over the sockets between daemon, nursery and workers: frames, and no pickle.

A frame is a fixed prefix, a msgpack header that says what it is, and the raw bytes of a tensor
where it carries one. Both ends read into the same `Frames`: the daemon from asyncio, the others
from a blocking socket (`Line`).
"""

from __future__ import annotations

import math
import socket
import struct
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from migrator.core.errors import MigratorError

LARGEST_HEADER = 1 << 20
LARGEST_PAYLOAD = 1 << 28
"""Bytes; whoever announces more is not one of ours."""
PACKET = 1 << 17
"""Bytes of the largest message between daemon and nursery."""
_MAGIC = b"MGR1"
_PREFIX = struct.Struct("<4sII")
_ROOM = 1 << 16
"""A batch of small images and its header fit, so that one read takes a whole frame."""
_TOGETHER = 1 << 17
"""Up to here one copy costs less than a second system call."""
_DTYPES = {kind.str: kind for kind in (np.dtype(each).newbyteorder("<") for each in "?bBhHilqIefd")}

Message = TypeVar("Message")


class WireError(MigratorError):
    """The other end sent what is no frame; the line cannot be used any more."""


class Frame(Struct, Generic[Message], frozen=True):
    """One message and the bytes that came with it, writable and nobody else's."""

    message: Message
    payload: memoryview


def encoded(message: Struct, payload_bytes: int = 0) -> bytes:
    """Prefix and header; the payload follows as it is."""
    header = packed(message)
    if len(header) > LARGEST_HEADER or payload_bytes > LARGEST_PAYLOAD:
        raise WireError(
            f"a message of {len(header)} bytes with a tensor of {payload_bytes} bytes is over the "
            f"limit of {LARGEST_PAYLOAD >> 20} MiB; send smaller batches"
        )
    return _PREFIX.pack(_MAGIC, len(header), payload_bytes) + header


def packed(message: Struct) -> bytes:
    """The header alone, for sockets that keep messages apart by themselves."""
    return msgspec.msgpack.encode(message, enc_hook=_told)


def unpacked(kind: Any, header: bytes) -> Any:
    """Back from `packed`; WireError for anything that is not of that kind."""
    try:
        return msgspec.msgpack.decode(header, type=kind, dec_hook=_read)
    except msgspec.MsgspecError as error:
        raise _garbage(str(error)) from error


class Frames(Generic[Message]):
    """Frames out of a stream of bytes: read into `space`, then say how many bytes came."""

    def __init__(self, kind: Any, room: int = _ROOM) -> None:
        """`kind`: the union of messages that this end understands; `room`: bytes read at once."""
        self._decoder = msgspec.msgpack.Decoder(kind, dec_hook=_read)
        self._room = room
        self._buffer, self._filled = bytearray(room), 0

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return memoryview(self._buffer)[self._filled :]

    def add(self, count: int) -> list[Frame[Message]]:
        """The frames that are whole with these bytes; WireError for garbage."""
        self._filled += count
        found: list[Frame[Message]] = []
        at = 0
        while True:
            header, payload = self._sizes(at)
            size = _PREFIX.size + header + payload
            if self._filled - at < size:
                break
            found.append(self._frame(at + _PREFIX.size, header, payload))
            at += size
        # frames keep the buffer they came in: what is left moves to one of its own
        if found or size > len(self._buffer):
            rest = self._buffer[at : self._filled]
            self._buffer, self._filled = bytearray(max(self._room, size)), len(rest)
            self._buffer[: len(rest)] = rest
        return found

    def _sizes(self, at: int) -> tuple[int, int]:
        """Bytes of header and payload of the frame that begins there; 0 while nobody knows."""
        if self._filled - at < _PREFIX.size:
            return 0, 0
        magic, header, payload = _PREFIX.unpack_from(self._buffer, at)
        if magic != _MAGIC or header > LARGEST_HEADER or payload > LARGEST_PAYLOAD:
            raise _garbage(f"it begins with {bytes(self._buffer[at : at + 12])!r}")
        return header, payload

    def _frame(self, at: int, header: int, payload: int) -> Frame[Message]:
        whole, middle = memoryview(self._buffer), at + header
        try:
            message = self._decoder.decode(whole[at:middle])
        except msgspec.MsgspecError as error:
            raise _garbage(str(error)) from error
        return Frame(message, whole[middle : middle + payload])


class Line(Generic[Message]):
    """A blocking end: a worker's."""

    def __init__(self, end: socket.socket, kind: Any) -> None:
        self._end, self._frames = end, Frames[Message](kind)
        self._waiting: list[Frame[Message]] = []

    def receive(self) -> Frame[Message] | None:
        """The next frame; None: the other end is gone."""
        while not self._waiting:
            try:
                count = self._end.recv_into(self._frames.space())
            except ConnectionError:
                return None
            if not count:
                return None
            self._waiting = self._frames.add(count)
        return self._waiting.pop(0)

    def send(self, message: Struct, payload: bytes | memoryview = b"") -> None:
        """Write it whole."""
        for each in parts(message, payload):
            self._end.sendall(each)


def parts(message: Struct, payload: bytes | memoryview = b"") -> list[bytes | memoryview]:
    """A frame as what is to be written, one after the other."""
    head = encoded(message, len(payload))
    if len(payload) <= _TOGETHER:
        return [b"".join((head, payload))]
    return [head, payload]


def flat(array: NDArray[Any]) -> tuple[tuple[int, ...], str, memoryview]:
    """An array as its shape, its type and its bytes; TypeError for one of objects."""
    if array.dtype.str not in _DTYPES or not array.flags.c_contiguous:
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
    dtype = array.dtype.str
    if dtype not in _DTYPES:
        raise TypeError(f"arrays of {array.dtype} cannot be sent; use a numeric type")
    return array.shape, dtype, array.data.cast("B") if array.size else memoryview(b"")


def shaped(shape: tuple[int, ...], dtype: str, payload: memoryview) -> NDArray[Any]:
    """Back from `flat`, without a copy; WireError where shape and bytes do not agree."""
    kind = _DTYPES.get(dtype)
    if kind is None or min(shape, default=0) < 0:
        raise _garbage(f"an array of type {dtype[:20]!r} and shape {shape}")
    if math.prod(shape) * kind.itemsize != len(payload):
        raise _garbage(f"{len(payload)} bytes for an array of {shape}")
    return np.frombuffer(payload, kind).reshape(shape)


def _garbage(what: str) -> WireError:
    return WireError(f"a line to a process of ours carries garbage ({what}); end that process")


def _told(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} does not go over a line")


def _read(kind: type, value: Any) -> object:
    if kind is Path:
        return Path(value)
    raise TypeError(f"{kind.__name__} does not come over a line")
