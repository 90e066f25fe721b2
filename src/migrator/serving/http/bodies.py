"""Bodies of requests, received within limits of time and memory: JSON, and tensors behind it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from migrator.core.errors import HttpError
from migrator.serving.http.protocol import decode
from migrator.serving.http.requests import ClientLimits, header_of, headers_of

MEDIA_TYPES = ("application/json", "application/octet-stream")
JSON_LENGTH_HEADER = "inference-header-content-length"
_MAX_DIGITS = 18
"""int() raises ValueError beyond some thousand digits."""
_JSON_LENGTH = JSON_LENGTH_HEADER.encode()
_NOTHING = memoryview(b"")
SLOW_S = 1.0
"""A client that has not sent all of its request after this time gives way to others."""


class BodyBudget:
    """Memory for the bodies of all requests that are being received or decoded.

    For a body that does not fit, the one that has been arriving for longest is refused: slow
    clients must not keep others out. Where all have begun within the last second, the new one is.
    """

    def __init__(self, limits: ClientLimits) -> None:
        self.limit_bytes = max(limits.bodies_bytes, limits.body_bytes)
        self.held_bytes = 0
        self.arriving: dict[HeldBody, None] = {}
        """Those of which a part is missing, the oldest first."""

    def hold(self) -> HeldBody:
        """The memory of one body, until the end of the `with` block."""
        return HeldBody(self)


class HeldBody:
    """One body in memory."""

    __slots__ = ("_begun_s", "_budget", "_bytes", "_scope")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget, self._bytes = budget, 0
        self._begun_s = 0.0
        self._scope: asyncio.Timeout | None = None

    def __enter__(self) -> HeldBody:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.held_bytes -= self._bytes
        self._bytes = 0

    def add(self, size: int) -> None:
        """Count more bytes; HttpError 503 where there is no room for them."""
        self._bytes += size
        self._budget.held_bytes += size
        while self._budget.held_bytes > self._budget.limit_bytes:
            oldest = next(iter(self._budget.arriving), self)
            if oldest is self or not oldest._is_slow():
                raise _no_room()
            oldest._end()

    async def receive(self, receive: Receive, limit_bytes: int) -> bytes:
        """The whole body; HttpError 413 as soon as it is too large."""
        part, more = self._part(await receive(), limit_bytes)
        if not more:
            return part
        parts = [part]
        self._begun_s = asyncio.get_running_loop().time()
        self._budget.arriving[self] = None
        try:
            async with asyncio.timeout(None) as self._scope:
                while more:
                    part, more = self._part(await receive(), limit_bytes)
                    parts.append(part)
        except TimeoutError:
            raise _no_room() from None
        finally:
            self._budget.arriving.pop(self, None)
        return b"".join(parts)

    def _part(self, message: Message, limit_bytes: int) -> tuple[bytes, bool]:
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part: bytes = message.get("body", b"")
        if self._bytes + len(part) > limit_bytes:
            raise _too_large(limit_bytes)
        self.add(len(part))
        return part, message.get("more_body", False)

    def _is_slow(self) -> bool:
        return asyncio.get_running_loop().time() - self._begun_s >= SLOW_S

    def _end(self) -> None:
        assert self._scope is not None
        del self._budget.arriving[self]
        self.__exit__()
        self._scope.reschedule(self._begun_s)  # in the past: `receive` ends with TimeoutError


def _no_room() -> HttpError:
    return HttpError(
        503,
        "body: there is no memory for more large requests at present; try again in some seconds",
        retry_after_s=1,
    )


def _too_large(limit_bytes: int) -> HttpError:
    return HttpError(
        413,
        f"body: larger than {limit_bytes} bytes; send fewer rows, or send them as binary data",
    )


async def read_message(
    request: Request,
    held: HeldBody,
    limit_bytes: int,
    decoder: msgspec.json.Decoder[Any],
    first: msgspec.json.Decoder[Any] | None = None,
) -> tuple[Any, memoryview]:
    """The JSON message and the binary tensor data behind it.

    `first`: tried before `decoder` on a body without binary data.
    """
    body = await read_body(request, held, limit_bytes)
    json_length = headers_of(request).get(_JSON_LENGTH)
    if json_length is None:
        if first is not None:
            with suppress(msgspec.MsgspecError, ValueError, RecursionError):
                return first.decode(body), _NOTHING
        return decode(decoder, body), _NOTHING
    if not json_length.isdigit() or len(json_length) > _MAX_DIGITS or int(json_length) > len(body):
        raise HttpError(
            400,
            f"{JSON_LENGTH_HEADER}: not a number within the body; send the length of the JSON",
        )
    whole, length = memoryview(body), int(json_length)
    return decode(decoder, whole[:length]), whole[length:]


async def read_body(request: Request, held: HeldBody, limit_bytes: int) -> bytes:
    """The whole body, refused as soon as it is too large; its connection ends slow ones."""
    require_media_type(request, *MEDIA_TYPES, missing="application/json")
    encoding = headers_of(request).get(b"content-encoding")
    if encoding and encoding.strip().lower() != b"identity":
        raise HttpError(
            415,
            f"content-encoding: {str(encoding.strip().lower(), 'latin-1')[:80]} is not accepted; "
            "send the body uncompressed",
        )
    require_length(request, limit_bytes)
    return await held.receive(request.receive, limit_bytes)


def require_length(request: Request, limit_bytes: int) -> None:
    """Refuse a body whose declared length is too large."""
    declared = headers_of(request).get(b"content-length", b"0")
    if declared.isdigit() and int(declared[:_MAX_DIGITS]) > limit_bytes:
        raise _too_large(limit_bytes)


def require_media_type(request: Request, *accepted: str, missing: str = "") -> None:
    """Refuse a body of another content type; `missing` is assumed where none is declared."""
    kind = header_of(request, "content-type") or missing
    if kind not in accepted:
        kind = kind.partition(";")[0].strip().lower() or missing
    if kind not in accepted:
        raise HttpError(
            415,
            f"content-type: {kind[:80] or 'none'} is not accepted; send {' or '.join(accepted)}",
        )
