"""Messages of gRPC calls: received within limits, and decoded unless that would cost too much."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from migrator.core.errors import HttpError
from migrator.serving.http.bodies import SLOW_S

ENVELOPE_BYTES = 64 * 2**10
"""Of a message beside its tensors."""
_MAX_FIELDS = 2**13
"""Of a message with its tensors: an empty field of two bytes takes a hundred once it is decoded."""
_NUMBERS_BYTES = 512 * 2**10
"""Of typed numbers, which take 0.2 s per MiB to convert: a picture of 299 pixels, whole."""
_LARGE_BYTES = 256 * 2**10
"""A message of more than that takes milliseconds to decode."""
_NESTED_FIELD, _RAW_FIELD, _TEXTS_FIELD = 5, 7, 8
"""The numbers of `inputs` in a request and of `contents` in an input, of `raw_input_contents` in a
request, and of `bytes_contents` in contents."""


class Receiver:
    """Receives and decodes messages of calls, a few at a time: each may be as large as the limit.

    A client that has not sent its message after a second gives way when another one waits.
    """

    def __init__(self, places: int, limit_s: float) -> None:
        self._places, self._limit_s = asyncio.Semaphore(places), limit_s
        self._arriving: dict[asyncio.Timeout, float] = {}
        """When each message began to arrive, the oldest first; without those that give way."""
        self._waiting = 0
        self._decoding = asyncio.Lock()
        """Large messages are decoded one after the other, and other events handled in between."""

    async def receive(self, context: Any, kind: Any) -> Any:
        """The first message of a call, decoded; HttpError where none arrives in time."""
        await self._wait_for_place()
        try:
            message = await self._arrived(context)
            if message is grpc.aio.EOF:  # also where it is larger than the limit
                raise HttpError(400, "the call has no message; send one")
            if len(message) <= _LARGE_BYTES:
                return _decoded(kind, message)
            async with self._decoding:
                await asyncio.sleep(0)
                return _decoded(kind, message)
        finally:
            self._places.release()

    async def _arrived(self, context: Any) -> Any:
        limit_s = SLOW_S if self._waiting else self._limit_s
        try:
            async with asyncio.timeout(limit_s) as scope:
                self._arriving[scope] = asyncio.get_running_loop().time()
                return await context.read()
        except TimeoutError:
            raise HttpError(408, "the message did not arrive in time; send it faster") from None
        finally:
            self._arriving.pop(scope, None)

    async def _wait_for_place(self) -> None:
        if self._places.locked() and self._arriving:
            oldest = next(iter(self._arriving))
            oldest.reschedule(self._arriving.pop(oldest) + SLOW_S)
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1


def _decoded(kind: Any, message: bytes) -> Any:
    """A message of that kind; HttpError 400 where it is none."""
    name = kind.DESCRIPTOR.name
    if len(message) > _MAX_FIELDS:
        _require_cheap(name, message)
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise HttpError(
            400, f"{name}: not a message of the protocol ({error}); send one of that type"
        ) from error


def _require_cheap(name: str, message: bytes) -> None:
    """Refuse a message that takes much longer to decode than to receive, before it is decoded.

    What is malformed otherwise ends the look at it: decoding it fails.
    """
    fields, tensors, numbers = 0, 0, 0
    waiting = [(0, len(message), 0)]
    try:
        while waiting:
            at, end, depth = waiting.pop()
            while at < end:
                fields += 1
                if fields > _MAX_FIELDS:
                    raise HttpError(
                        400, f"{name}: more than {_MAX_FIELDS} fields; send raw_input_contents"
                    )
                tag, at = _varint(message, at)
                number, wire = tag >> 3, tag & 7
                if wire in (3, 4):  # decoding would ignore them, and read on
                    raise HttpError(400, f"{name}: not a message of the protocol (it has a group)")
                size, at = _varint(message, at) if wire in (0, 2) else ({1: 8, 5: 4}[wire], at)
                if wire == 0:
                    continue
                if wire == 2 and number == _NESTED_FIELD and depth < 2:
                    waiting.append((at, min(end, at + size), depth + 1))
                if (depth, number) in ((0, _RAW_FIELD), (1, _NESTED_FIELD)):
                    tensors += size
                if depth == 2 and number != _TEXTS_FIELD:
                    numbers += size
                at += size
    except (IndexError, KeyError):
        return
    if numbers > _NUMBERS_BYTES:
        raise HttpError(
            400, f"{name}: more than {_NUMBERS_BYTES} bytes of numbers; send raw_input_contents"
        )
    if len(message) - tensors > ENVELOPE_BYTES:
        raise HttpError(
            400, f"{name}: more than {ENVELOPE_BYTES} bytes beside its tensors; send shorter ones"
        )


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80 or shift > 63:
            return value, at
        shift += 7
