"""The HTTP API: every route and what it refuses, as one Starlette application."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from migrator.serve.admin_routes import ActionAnswer, ActionRequest, ActionRoute
from migrator.serve.backend import Backend, Feedback
from migrator.serve.docs_page import docs_page
from migrator.serve.feedback_route import FeedbackRoute
from migrator.serve.infer_route import TIMEOUT_HEADER, InferRoute
from migrator.serve.limits import header_of
from migrator.serve.metrics import metrics_page
from migrator.serve.model_routes import ModelRoutes, json_response
from migrator.serve.openapi import Operation, description
from migrator.serve.origin import require_own_page
from migrator.serve.protocol import (
    FeedbackAnswer,
    FeedbackRequest,
    IndexEntry,
    InferAnswer,
    InferRequest,
    ModelMetadata,
    Problem,
    Readiness,
    ServerMetadata,
)
from migrator.serve.reading import HEADER_LENGTH
from migrator.serve.recent import Recent
from migrator.serve.refusals import RefusedError
from migrator.serve.request_id import REQUEST_ID_HEADER, request_id
from migrator.serve.tenant_routes import TenantRequest, TenantRoute

__all__ = ["Backend", "Feedback", "application", "operations"]

LOGGER = logging.getLogger(__name__)
Handler = Callable[[Request], Awaitable[Response]]
_ID_HEADER = REQUEST_ID_HEADER.encode()
ENDING = (408, 413)
"""After these the rest of the body is not read: the connection ends with the answer."""


def application(backend: Backend, pages: Sequence[Route] = ()) -> Starlette:
    """All of the API in front of the backend, and pages for people beside it."""
    every = operations(backend)
    described = description(every)
    page = docs_page(described)

    async def openapi(_: Request) -> Response:
        return json_response(described)

    async def docs(_: Request) -> Response:
        return HTMLResponse(page)

    routes = [
        Route(path, _answered(each.handler, backend), methods=[each.method])
        for each in every
        for path in each.paths
    ]
    routes += [Route("/openapi.json", openapi), Route("/docs", docs), *pages]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _no_route})
    app.router.redirect_slashes = False
    return app


def operations(backend: Backend) -> list[Operation]:
    """Everything that can be asked, what is asked most first."""
    return [*_serving(backend), *_describing(backend), *_administration(backend)]


def _serving(backend: Backend) -> list[Operation]:
    limit = backend.limits.recent_bytes
    recent: defaultdict[str, Recent] = defaultdict(lambda: Recent(limit))
    return [
        Operation(
            "POST",
            ("/v2/models/{name}/infer", "/v2/models/{name}/versions/{version}/infer"),
            "Scores and labels of one tensor of inputs.",
            InferRoute(backend, recent).infer,
            access="tenant",
            answer=InferAnswer,
            body=InferRequest,
            headers=(TIMEOUT_HEADER, REQUEST_ID_HEADER, HEADER_LENGTH),
            statuses=(429, 503, 504),
        ),
        Operation(
            "POST",
            ("/v2/models/{name}/feedback",),
            "The true label of an answered request, or of an input sent along; kept on disk.",
            FeedbackRoute(backend, recent).feedback,
            access="tenant",
            answer=FeedbackAnswer,
            body=FeedbackRequest,
            headers=(HEADER_LENGTH,),
            statuses=(507,),
        ),
    ]


def _describing(backend: Backend) -> list[Operation]:
    model = ModelRoutes(backend)
    one = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
    ready = tuple(f"{path}/ready" for path in one)
    return [
        Operation("GET", ("/v2",), "Who answers.", model.server, answer=ServerMetadata),
        Operation("GET", ("/v2/health/live",), "It runs.", model.live, answer=Readiness),
        Operation(
            "GET",
            ("/v2/health/ready",),
            "Every model has an instance ready.",
            model.ready,
            answer=Readiness,
            statuses=(503,),
        ),
        Operation(
            "GET",
            one,
            "What a model takes and gives.",
            model.metadata,
            access="tenant",
            answer=ModelMetadata,
        ),
        Operation(
            "GET",
            ready,
            "The model has an instance ready.",
            model.model_ready,
            access="tenant",
            answer=Readiness,
            statuses=(503,),
        ),
        Operation(
            "POST",
            ("/v2/repository/index",),
            "The models one may use.",
            model.index,
            access="any",
            answer=list[IndexEntry],
        ),
    ]


def _administration(backend: Backend) -> list[Operation]:
    async def metrics(request: Request) -> Response:
        require_own_page(request, backend.tokens)
        backend.require_admin(request)
        text, kind = await metrics_page(backend, header_of(request, "accept") or "")
        return Response(text, headers={"content-type": kind})

    async def status(request: Request) -> Response:
        require_own_page(request, backend.tokens)
        backend.require_admin(request)
        return json_response(backend.status())

    return [
        Operation(
            "GET", ("/metrics",), "Counters.", metrics, access="admin", media_type="text/plain"
        ),
        Operation(
            "GET",
            ("/admin/status",),
            "The daemon's state.",
            status,
            access="admin",
            answer=dict[str, Any],
        ),
        Operation(
            "POST",
            ("/admin/actions",),
            "Act on it: pause, resume, replan, or roll-back, drain, undrain one tenant.",
            ActionRoute(backend).act,
            access="admin",
            answer=ActionAnswer,
            body=ActionRequest,
            binary=False,
            statuses=(403, 404, 409, 507),
        ),
        Operation(
            "POST",
            ("/admin/tenants",),
            "Serve a tenant more, or one less; only where this GPU is one of a cluster.",
            TenantRoute(backend).change,
            access="admin",
            answer=ActionAnswer,
            body=TenantRequest,
            binary=False,
            statuses=(403, 404, 409, 507),
        ),
    ]


def _answered(handler: Handler, backend: Backend) -> Handler:
    """The handler with its refusals as answers; nothing it raises gets to the server."""

    async def answer(request: Request) -> Response:
        try:
            response = await handler(request)
        except RefusedError as refusal:
            response = refused(request, refusal.status, str(refusal))
            if refusal.retry_after_s is not None:
                response.headers["retry-after"] = str(refusal.retry_after_s)
        except ClientDisconnect:
            response = refused(request, 400, "body: the client left before its end; send it again")
        except Exception as error:
            _tell(request, error)
            response = refused(
                request, 500, "an error of the server; look into its log, or try again"
            )
        # as it is sent: Starlette would look through all headers first
        response.raw_headers.append((_ID_HEADER, request_id(request).encode()))
        return response

    def refused(request: Request, status: int, reason: str) -> Response:
        backend.access.refuse(request, backend.asked_of(request), status, reason)
        return _refusal(status, reason)

    return answer


def _tell(request: Request, error: Exception) -> None:
    asked = request_id(request)
    LOGGER.error(
        "request %s: %s %s: %r",
        asked,
        request.method,
        request.url.path[:200],
        error,
        extra={"request_id": asked},
    )


def _refusal(status: int, reason: str) -> Response:
    headers = {"connection": "close"} if status in ENDING else {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    body = msgspec.json.encode(Problem(error=reason))
    return Response(body, status, headers, "application/json")


async def _no_route(request: Request, error: Exception) -> Response:
    """A path or method that is not there."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    asked = f"{request.method} {request.url.path[:200]}"
    response = _refusal(status, f"{asked} is not part of the API; see /docs for what is")
    if isinstance(error, HTTPException) and error.headers:
        response.headers.update(error.headers)
    return response
