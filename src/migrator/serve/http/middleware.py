"""Around every handler: authentication, refusals as answers, the request id, the access log.

One wrapper per route instead of a stack of ASGI middleware: it is on the path of every request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from migrator.serve.exceptions import RefusedError
from migrator.serve.http.authentication import require_admin, require_json
from migrator.serve.http.openapi import Access, Handler, Operation
from migrator.serve.http.protocol import Problem
from migrator.serve.http.requests import REQUEST_ID_HEADER, header_of, request_id
from migrator.serve.http.state import state_of

_ID_HEADER = REQUEST_ID_HEADER.encode()
_CLOSING = (408, 413)
"""After these the rest of the body is not read: the connection is closed."""

_log = logging.getLogger(__name__)


def guard(operation: Operation) -> Handler:
    """The operation's handler behind its access rule; nothing that it raises gets to the server."""
    handler, authorize = operation.handler, _AUTHORIZE[operation.access]
    json_only = operation.body is not None and not operation.binary

    async def endpoint(request: Request) -> Response:
        try:
            authorize(request)
            if json_only:
                require_json(request)
            response = await handler(request)
        except RefusedError as refusal:
            response = _refuse(request, refusal.status, str(refusal))
            if refusal.retry_after_s is not None:
                response.headers["retry-after"] = str(refusal.retry_after_s)
        except ClientDisconnect:
            response = _refuse(request, 400, "body: the client disconnected; send it again")
        except Exception as error:
            _log_error(request, error)
            response = _refuse(request, 500, "internal error; see the server's log, or try again")
        # appended to the list that is sent: Starlette would search all headers first
        response.raw_headers.append((_ID_HEADER, request_id(request).encode()))
        return response

    return endpoint


async def refuse_unknown_route(request: Request, error: Exception) -> Response:
    """The answer for a path or method that does not exist."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    route = f"{request.method} {request.url.path[:200]}"
    response = refusal_response(status, f"{route} is not part of the API; see /docs")
    if isinstance(error, HTTPException) and error.headers:
        response.headers.update(error.headers)
    return response


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


def _refuse(request: Request, status: int, reason: str) -> Response:
    state = state_of(request)
    name = request.path_params.get("name", "")
    tenant = name if name in state.backend.models else ""
    state.access_log.refuse(request, tenant, status, reason)
    return refusal_response(status, reason)


def _log_error(request: Request, error: Exception) -> None:
    id_ = request_id(request)
    _log.error(
        "request %s: %s %s: %r",
        id_,
        request.method,
        request.url.path[:200],
        error,
        extra={"request_id": id_},
    )


def _allow(_: Request) -> None:
    """No token is needed."""


def _require_any(request: Request) -> None:
    state_of(request).tokens.holder(header_of(request, "authorization"))


def _require_tenant(request: Request) -> None:
    tokens = state_of(request).tokens
    tokens.require_tenant(header_of(request, "authorization"), request.path_params["name"])


def _require_admin(request: Request) -> None:
    require_admin(request, state_of(request).tokens)


_AUTHORIZE: dict[Access, Callable[[Request], None]] = {
    "open": _allow,
    "any": _require_any,
    "tenant": _require_tenant,
    "admin": _require_admin,
}
