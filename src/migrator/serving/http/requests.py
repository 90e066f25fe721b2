"""One request: its headers, its token, its body within limits, its id, and whether its client left.

There is a bearer token per tenant and one for administration. Only digests are kept, and every
comparison takes the same time whatever was sent. Without tokens the server listens on a loopback
address, but a web page from another site that is open in a browser on this machine can send
requests to it too. Such a page cannot send `application/json` across sites without a preflight
request, which is never answered; it cannot hide its Origin; and one whose name resolves to this
machine (DNS rebinding) shows that name as the Host.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from itertools import count
from typing import Any, cast
from uuid import uuid4

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from migrator.core.errors import HttpError, InputError
from migrator.serving.http.protocol import decode

MEDIA_TYPES = ("application/json", "application/octet-stream")
JSON_LENGTH_HEADER = "inference-header-content-length"
REQUEST_ID_HEADER = "x-request-id"
ORDER_KEY = "migrator-order-key"
"""The header with the key that an agent shares with its daemon."""
_MAX_DIGITS = 18
"""int() raises ValueError beyond some thousand digits."""
_UNDISPUTED_TYPES = (b"", *(each.encode() for each in MEDIA_TYPES))
_JSON_LENGTH, _REQUEST_ID = JSON_LENGTH_HEADER.encode(), REQUEST_ID_HEADER.encode()
_NOTHING = memoryview(b"")
SLOW_S = 1.0
"""A client that has not sent all of its request after this time gives way to others."""
_ID_KEY, _WAITING_KEY = "migrator.request_id", "migrator.waiting"
_HEADERS_KEY = "migrator.headers"
"""Keys of the ASGI scope."""
_USABLE_ID = re.compile(r"[\x21-\x7e]{1,128}")
"""What may stand in a header and in a log unchanged."""

_id_prefix, _id_numbers = uuid4().hex[:12], count()
_OWN_SITES = ("same-origin", "none")
"""Sec-Fetch-Site of a page of this server, and of an address typed in."""


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


class BodyBudget:
    """Memory for the bodies of all requests that are being received or decoded.

    For a body that does not fit, the one that has been arriving for longest is refused: slow
    clients must not keep others out. Where all have begun within the last second, the new one is.
    """

    def __init__(self, limits: Limits) -> None:
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
    given = headers_of(request).get(_JSON_LENGTH)
    if given is None:
        if first is not None:
            with suppress(msgspec.MsgspecError, ValueError, RecursionError):
                return first.decode(body), _NOTHING
        return decode(decoder, body), _NOTHING
    if not given.isdigit() or len(given) > _MAX_DIGITS or int(given) > len(body):
        raise HttpError(
            400,
            f"{JSON_LENGTH_HEADER}: not a number within the body; send the length of the JSON",
        )
    whole, length = memoryview(body), int(given)
    return decode(decoder, whole[:length]), whole[length:]


async def read_body(request: Request, held: HeldBody, limit_bytes: int) -> bytes:
    """The whole body, refused as soon as it is too large; its connection ends slow ones."""
    headers = headers_of(request)
    if headers.get(b"content-type", b"") not in _UNDISPUTED_TYPES:
        require_media_type(request, *MEDIA_TYPES, missing="application/json")
    encoding = headers.get(b"content-encoding")
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


def cancel_at_disconnect(request: Request, waiting: asyncio.Future[Any]) -> None:
    """Cancel what the request waits for when its client closes the connection.

    The connection finds it in the scope: no request needs a task that watches.
    """
    request.scope[_WAITING_KEY] = waiting


def is_disconnected(request: Request) -> bool:
    """Whether the connection has cancelled what the request waits for."""
    return _WAITING_KEY not in request.scope


class DisconnectGuard:
    """Inside, ClientDisconnect is raised when the client closes its connection."""

    def __init__(self, request: Request) -> None:
        self._request, self._task = request, asyncio.current_task()

    def __enter__(self) -> None:
        assert self._task is not None
        cancel_at_disconnect(self._request, self._task)

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


_HOST = re.compile(r"(\[(?P<six>[^\[\]]+)\]|(?P<name>[^:\[\]]+))(:\d+)?")


@dataclass(frozen=True)
class Holder:
    """The owner of the token of a request."""

    tenant: str | None = None
    admin: bool = False

    def may_use(self, tenant: str) -> bool:
        """Whether the holder may use that tenant's model."""
        return self.admin or self.tenant == tenant


_ANYONE = Holder(admin=True)
"""Where there are no tokens."""


class Tokens:
    """Tokens as SHA-256 digests in hexadecimal; without any, every request is allowed."""

    def __init__(self, tenants: Mapping[str, str] | None = None, admin: str | None = None) -> None:
        given = [(Holder(tenant=name), tenant) for name, tenant in (tenants or {}).items()]
        if admin is not None:
            given.append((Holder(admin=True), admin))
        for holder, each in given:
            if not re.fullmatch("[0-9a-f]{64}", each):
                raise InputError(
                    f"token of {holder.tenant or 'administration'}: not a SHA-256 digest; give 64 "
                    "lower case hexadecimal digits"
                )
        self._known = [(holder, bytes.fromhex(each)) for holder, each in given]

    @property
    def configured(self) -> bool:
        """Whether requests need a token."""
        return bool(self._known)

    def holder(self, request: Request) -> Holder:
        """The holder of the token in the Authorization header; HttpError 401 without one."""
        if not self._known:
            return _ANYONE
        scheme, _, token = headers_of(request).get(b"authorization", b"").partition(b" ")
        sent, found = hashlib.sha256(token.strip()).digest(), None
        for holder, known in self._known:
            if hmac.compare_digest(sent, known):
                found = holder
        if found is None or scheme.lower() != b"bearer":
            raise HttpError(
                401, "token: missing or unknown; send the header 'Authorization: Bearer TOKEN'"
            )
        return found


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def require_tenant(request: Request, tokens: Tokens, tenant: str) -> None:
    """Refuse a request without a token for the tenant's model."""
    if not tokens.holder(request).may_use(tenant):
        raise HttpError(403, "token: not for this model; use the token of the model's tenant")


def require_admin(request: Request, tokens: Tokens) -> None:
    """Refuse a request without the token for administration, or from a page of another site."""
    require_own_page(request, tokens)
    if not tokens.holder(request).admin:
        raise HttpError(403, "token: not for administration; use the token for administration")


def require_own_page(request: Request, tokens: Tokens) -> None:
    """Refuse what a page of another site sends; with tokens, the token is enough."""
    if tokens.configured:
        return
    host = (header_of(request, "host") or "").strip().lower()
    if not _is_this_machine(host):
        raise HttpError(
            403,
            f"host: {host[:80] or 'none'} is not this machine; without tokens use 127.0.0.1 or "
            "localhost",
        )
    origin = header_of(request, "origin")
    site = header_of(request, "sec-fetch-site") or "none"
    foreign = origin is not None and origin.strip().lower().partition("://")[2] != host
    if foreign or site.strip().lower() not in _OWN_SITES:
        raise HttpError(
            403,
            f"origin: a page of {(origin or site)[:80]} may not send this; use the page of this "
            "server, or set tokens",
        )


@lru_cache(maxsize=64)
def _is_this_machine(host: str) -> bool:
    """Whether a Host header names this machine, with or without a port."""
    match = _HOST.fullmatch(host)
    name = match["six"] or match["name"] if match else ""
    return is_loopback(name) or name == "localhost."


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require_safe(host: str, tokens: Tokens) -> None:
    """Refuse to listen on an address that others can reach without tokens."""
    if not tokens.configured and not is_loopback(host):
        raise InputError(
            f"host: {host} can be reached by others and no tokens are set; set tokens, or listen "
            "on 127.0.0.1"
        )
