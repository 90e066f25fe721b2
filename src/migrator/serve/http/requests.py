"""Reading one request: its headers, its body within limits, its id, and whether its client left."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, cast
from uuid import uuid4

import msgspec
from starlette.requests import ClientDisconnect, Request

from migrator.serve.exceptions import MalformedError, MediaTypeError, TooLargeError
from migrator.serve.http.protocol import decode

MEDIA_TYPES = ("application/json", "application/octet-stream")
JSON_LENGTH_HEADER = "inference-header-content-length"
REQUEST_ID_HEADER = "x-request-id"
_MAX_DIGITS = 18
"""int() raises ValueError beyond some thousand digits."""
_ID_KEY, _WAITING_KEY = "migrator.request_id", "migrator.waiting"
"""Keys of the ASGI scope."""
_USABLE_ID = re.compile(r"[\x21-\x7e]{1,128}")
"""What may stand in a header and in a log unchanged."""

_id_prefix, _id_numbers = uuid4().hex[:12], count()


@dataclass(frozen=True)
class Limits:
    """What protects the server from its clients."""

    body_bytes: int = 16 * 2**20
    body_s: float = 10.0
    """From the end of the headers to the end of the body."""
    header_bytes: int = 32 * 2**10
    header_s: float = 10.0
    """From the connection, or the first byte of a request, to the end of its headers."""
    keep_alive_s: int = 30
    write_s: float = 10.0
    """Time in which a client must have read at least `write_bytes_s` on average."""
    write_bytes_s: float = 1024.0
    connections: int = 1024
    recent_bytes: int = 64 * 2**20
    """Per tenant: inputs of answered requests, kept for feedback that names them."""


def header_of(request: Request, name: str) -> str | None:
    """One header; several times faster than Starlette's `request.headers`."""
    wanted = name.encode()
    for key, value in request.scope["headers"]:
        if key == wanted:
            return str(value, "latin-1")
    return None


async def read_message(
    request: Request, limits: Limits, decoder: msgspec.json.Decoder[Any]
) -> tuple[Any, memoryview]:
    """The JSON message and the binary tensor data behind it."""
    body = memoryview(await read_body(request, limits))
    length = _json_length(header_of(request, JSON_LENGTH_HEADER), len(body))
    return decode(decoder, body[:length]), body[length:]


def _json_length(given: str | None, size: int) -> int:
    if given is None:
        return size
    if not given.isdecimal() or len(given) > _MAX_DIGITS or int(given) > size:
        raise MalformedError(
            f"{JSON_LENGTH_HEADER}: not a number within the body; send the length of the JSON"
        )
    return int(given)


async def read_body(request: Request, limits: Limits) -> bytes:
    """The whole body, refused as soon as it is too large; `connections` ends slow ones."""
    _require_media_type(request)
    declared = header_of(request, "content-length") or "0"
    if declared.isdecimal() and int(declared[:_MAX_DIGITS]) > limits.body_bytes:
        raise _too_large(limits)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        size += len(part)
        if size > limits.body_bytes:
            raise _too_large(limits)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(limits: Limits) -> TooLargeError:
    return TooLargeError(
        f"body: larger than {limits.body_bytes} bytes; send fewer rows, or send them as binary data"
    )


def _require_media_type(request: Request) -> None:
    kind = media_type(request) or MEDIA_TYPES[0]
    if kind not in MEDIA_TYPES:
        raise MediaTypeError(
            f"content-type: {kind[:80]} is not accepted; send {' or '.join(MEDIA_TYPES)}"
        )
    encoding = (header_of(request, "content-encoding") or "identity").strip().lower()
    if encoding != "identity":
        raise MediaTypeError(
            f"content-encoding: {encoding[:80]} is not accepted; send the body uncompressed"
        )


def media_type(request: Request) -> str:
    """The content type without parameters; "" without one."""
    return (header_of(request, "content-type") or "").partition(";")[0].strip().lower()


def request_id(request: Request, given: str | None = None) -> str:
    """The id of a request in logs and in the response: its header, else `given`, else a new one.

    `given`: the id in its message. Later calls return the same.
    """
    known: str | None = request.scope.get(_ID_KEY)
    if known is None:
        known = _usable(header_of(request, REQUEST_ID_HEADER)) or _usable(given) or new_id()
        request.scope[_ID_KEY] = known
    return known


def new_id() -> str:
    """An id that no other request has."""
    return f"{_id_prefix}-{next(_id_numbers)}"


def _usable(given: str | None) -> str | None:
    return given if given and _USABLE_ID.fullmatch(given) else None


@contextmanager
def raise_on_disconnect(request: Request) -> Iterator[None]:
    """Inside, ClientDisconnect is raised when the client closes its connection.

    The connection finds the task to cancel in the scope: no request needs a task that watches.
    """
    task = asyncio.current_task()
    request.scope[_WAITING_KEY] = task
    try:
        yield
    except asyncio.CancelledError:
        if _WAITING_KEY in request.scope or task is None:
            raise
        task.uncancel()
        raise ClientDisconnect from None
    finally:
        request.scope.pop(_WAITING_KEY, None)


def cancel_on_disconnect(scope: object) -> None:
    """Called by the connection when it is closed."""
    task = cast("dict[str, Any]", scope).pop(_WAITING_KEY, None)
    if task is not None:
        task.cancel()
