"""Messages between processes as frames: encoding, a decoder of streams, a blocking end.

A frame is a fixed prefix (magic, request number, sizes), a msgspec struct as msgpack, and the raw
bytes of an array. No pickle.
"""

from __future__ import annotations

import math
import socket
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from migrator.core.errors import MigratorError
from migrator.core.tensors import dtype_of, dtype_text

MAX_HEADER_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 1 << 28
"""Maximum payload in bytes. A frame that announces more is invalid."""
_MAGIC = b"MGR2"
_PREFIX = struct.Struct("<4sIII")
_READ_BYTES = 1 << 16
"""Size of a read in bytes: a batch of small images and its header fit."""
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

    def add(self, count: int) -> list[Frame[Message]]:
        """The frames that these bytes complete. Raises FrameError for anything else."""
        self._filled += count
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


class Channel(Generic[Message]):
    """A blocking end of the connection, for the child process."""

    def __init__(self, end: socket.socket, messages: Any) -> None:
        self.socket, self._reader = end, FrameReader[Message](messages)
        self._received: list[Frame[Message]] = []

    def receive(self) -> Frame[Message] | None:
        """The next frame; None at the end of the stream."""
        while not self._received:
            try:
                count = self.socket.recv_into(self._reader.space())
            except ConnectionError:
                return None
            if not count:
                return None
            self._received = self._reader.add(count)
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
