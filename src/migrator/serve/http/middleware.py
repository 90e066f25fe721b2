"""Around every handler: authentication, refusals as answers, the request id, the access log.

One wrapper per route instead of a stack of ASGI middleware: it is on the path of every request.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from migrator.serve.exceptions import HttpError
from migrator.serve.http.authentication import require_admin, require_tenant
from migrator.serve.http.openapi import Operation
from migrator.serve.http.protocol import Problem
from migrator.serve.http.requests import REQUEST_ID_HEADER, request_id, require_media_type
from migrator.serve.http.state import state_of

_ID_HEADER = REQUEST_ID_HEADER.encode()
_CLOSING = (408, 413)
"""After these the rest of the body is not read: the connection is closed."""

_log = logging.getLogger(__name__)


class GuardedOperation:
    """An operation behind its access rule, as an ASGI application for one route.

    Nothing that its handler raises gets to the server.
    """

    def __init__(self, operation: Operation) -> None:
        self._handler, self._access = operation.handler, operation.access
        self._json_only = operation.body is not None and not operation.binary

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive, send)
        try:
            _authorize(request, self._access)
            if self._json_only:  # other types may come from a page of another site
                require_media_type(request, "application/json")
            response = await self._handler(request)
        except Exception as error:
            response = _refusal(request, error)
        # appended to the list that is sent: Starlette would search all headers first
        response.raw_headers.append((_ID_HEADER, request_id(request).encode()))
        await response(scope, receive, send)


def _refusal(request: Request, error: Exception) -> Response:
    """The answer to a request whose handler raised."""
    if isinstance(error, HttpError):
        response = _refuse(request, error.status, str(error))
        if error.retry_after_s is not None:
            response.headers["retry-after"] = str(error.retry_after_s)
        return response
    if isinstance(error, ClientDisconnect):
        return _refuse(request, 400, "body: the client disconnected; send it again")
    id_, path = request_id(request), request.url.path[:200]
    _log.error("request %s: %s %s: %r", id_, request.method, path, error, extra={"request_id": id_})
    return _refuse(request, 500, "internal error; see the server's log, or try again")


def _authorize(request: Request, access: str) -> None:
    tokens = state_of(request).tokens
    if access == "any":
        tokens.holder(request)
    elif access == "tenant":
        require_tenant(request, tokens, request.scope["path_params"]["name"])
    elif access == "admin":
        require_admin(request, tokens)


def _refuse(request: Request, status: int, reason: str) -> Response:
    state = state_of(request)
    name = request.path_params.get("name", "")
    tenant = name if name in state.backend.models else ""
    state.access_log.refuse(request, tenant, status, reason)
    return refusal_response(status, reason)


async def refuse_unknown_route(request: Request, error: Exception) -> Response:
    """The answer for a path or method that does not exist."""
    assert isinstance(error, HTTPException)
    route = f"{request.method} {request.url.path[:200]}"
    response = refusal_response(error.status_code, f"{route} is not part of the API; see /docs")
    response.headers.update(error.headers or {})
    return response


class EncodedResponse(Response):
    """A response with headers that are encoded already: Starlette would encode them each time."""

    def __init__(self, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        self.status_code, self.body, self.background = 200, body, None
        self.raw_headers = [(b"content-length", str(len(body)).encode()), *headers]


def json_response(value: Any) -> Response:
    """Anything that msgspec encodes."""
    return Response(msgspec.json.encode(value), media_type="application/json")


def refusal_response(status: int, reason: str) -> Response:
    """The answer to a request that is refused."""
    headers = {"connection": "close"} if status in _CLOSING else {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    body = msgspec.json.encode(Problem(error=reason))
    return Response(body, status, headers, "application/json")
