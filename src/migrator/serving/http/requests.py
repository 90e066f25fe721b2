"""One request: its headers, its id, the limits of its client, and whether that has left."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from itertools import count
from typing import Any, cast
from uuid import uuid4

from starlette.requests import ClientDisconnect, Request

REQUEST_ID_HEADER = "x-request-id"
_REQUEST_ID = REQUEST_ID_HEADER.encode()
_ID_KEY, _WAITING_KEY = "migrator.request_id", "migrator.waiting"
_HEADERS_KEY = "migrator.headers"
"""Keys of the ASGI scope."""
_USABLE_ID = re.compile(r"[\x21-\x7e]{1,128}")
"""What may stand in a header and in a log unchanged."""
_id_prefix, _id_numbers = uuid4().hex[:12], count()


@dataclass(frozen=True)
class ClientLimits:
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
    bodies_bytes: int = 256 * 2**20
    """Of all bodies together that are being received or decoded."""
    recent_bytes: int = 64 * 2**20
    """Per tenant: inputs of answered requests, kept for feedback that names them."""


def header_of(request: Request, name: str) -> str | None:
    """One header, the first where it is repeated.

    Several times faster than Starlette's `request.headers`, which searches a list every time.
    """
    value = headers_of(request).get(name.encode())
    return None if value is None else str(value, "latin-1")


def headers_of(request: Request) -> dict[bytes, bytes]:
    """All headers by name in lower case, of repeated ones the first."""
    headers: dict[bytes, bytes] | None = request.scope.get(_HEADERS_KEY)
    if headers is None:
        headers = dict(reversed(request.scope["headers"]))  # the first replaces later ones
        request.scope[_HEADERS_KEY] = headers
    return headers


def request_id(request: Request, given: str | None = None) -> str:
    """The id of a request: from its header, else `given` in its message, else a new one."""
    known: str | None = request.scope.get(_ID_KEY)
    if known is None:
        offered = headers_of(request).get(_REQUEST_ID)
        if offered is not None and _USABLE_ID.fullmatch(str(offered, "latin-1")):
            known = str(offered, "latin-1")
        elif given and _USABLE_ID.fullmatch(given):
            known = given
        else:
            known = new_id()
        request.scope[_ID_KEY] = known
    return known


def new_id() -> str:
    """An id that no other request has."""
    return f"{_id_prefix}-{next(_id_numbers)}"


class DisconnectGuard:
    """Inside, ClientDisconnect is raised when the client closes its connection.

    The connection finds the task in the scope: no request needs another task that watches.
    """

    def __init__(self, request: Request) -> None:
        self._request, self._task = request, asyncio.current_task()

    def __enter__(self) -> None:
        self._request.scope[_WAITING_KEY] = self._task

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        connected = self._request.scope.pop(_WAITING_KEY, None) is not None
        if kind is not None and not connected and issubclass(kind, asyncio.CancelledError):
            assert self._task is not None
            self._task.uncancel()
            raise ClientDisconnect from None


def cancel_on_disconnect(scope: object) -> None:
    """Called by the connection when it is closed."""
    waiting = cast("dict[str, Any]", scope).pop(_WAITING_KEY, None)
    if waiting is not None:
        waiting.cancel()
