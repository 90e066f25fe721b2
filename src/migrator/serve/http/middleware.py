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

from migrator.serve.exceptions import HttpError
from migrator.serve.http.authentication import require_admin, require_tenant
from migrator.serve.http.openapi import Handler, Operation
from migrator.serve.http.protocol import Problem
from migrator.serve.http.requests import REQUEST_ID_HEADER, request_id, require_media_type
from migrator.serve.http.state import state_of

_ID_HEADER = REQUEST_ID_HEADER.encode()
_CLOSING = (408, 413)
"""After these the rest of the body is not read: the connection is closed."""

_log = logging.getLogger(__name__)


def guard(operation: Operation) -> Handler:
    """The operation's handler behind its access rule; nothing that it raises gets to the server."""
    json_only = operation.body is not None and not operation.binary

    async def endpoint(request: Request) -> Response:
        try:
            _authorize(request, operation.access)
            if json_only:  # other types may come from a page of another site
                require_media_type(request, "application/json")
            response = await operation.handler(request)
        except HttpError as refusal:
            response = _refuse(request, refusal.status, str(refusal))
            if refusal.retry_after_s is not None:
                response.headers["retry-after"] = str(refusal.retry_after_s)
        except ClientDisconnect:
            response = _refuse(request, 400, "body: the client disconnected; send it again")
        except Exception as error:
            id_, path = request_id(request), request.url.path[:200]
            _log.error(
                "request %s: %s %s: %r",
                id_,
                request.method,
                path,
                error,
                extra={"request_id": id_},
            )
            response = _refuse(request, 500, "internal error; see the server's log, or try again")
        # appended to the list that is sent: Starlette would search all headers first
        response.raw_headers.append((_ID_HEADER, request_id(request).encode()))
        return response

    return endpoint


def _authorize(request: Request, access: str) -> None:
    tokens = state_of(request).tokens
    if access == "any":
        tokens.holder(request)
    elif access == "tenant":
        require_tenant(request, tokens, request.path_params["name"])
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
