"""The HTTP API: every route and what it refuses, as one Starlette application."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from migrator.serve.backend import Backend, Feedback
from migrator.serve.docs_page import docs_page
from migrator.serve.feedback_route import FeedbackRoute
from migrator.serve.infer_route import TIMEOUT_HEADER, InferRoute
from migrator.serve.metrics import metrics_text
from migrator.serve.model_routes import ModelRoutes, json_response
from migrator.serve.openapi import Operation, description
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

__all__ = ["Backend", "Feedback", "application", "operations"]

LOGGER = logging.getLogger(__name__)
Handler = Callable[[Request], Awaitable[Response]]
ENDING = (408, 413)
"""After these the rest of the body is not read: the connection ends with the answer."""


def application(backend: Backend) -> Starlette:
    """All of the API in front of the backend."""
    every = operations(backend)
    described = description(every)
    page = docs_page(described)

    async def openapi(_: Request) -> Response:
        return json_response(described)

    async def docs(_: Request) -> Response:
        return HTMLResponse(page)

    routes = [
        Route(path, _answered(each.handler), methods=[each.method])
        for each in every
        for path in each.paths
    ]
    routes += [Route("/openapi.json", openapi), Route("/docs", docs)]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _no_route})
    app.router.redirect_slashes = False
    return app


def operations(backend: Backend) -> list[Operation]:
    """Everything that can be asked, what is asked most first."""
    return [*_serving(backend), *_describing(backend), *_administration(backend)]


def _serving(backend: Backend) -> list[Operation]:
    limit = backend.limits.recent_bytes
    recent = {name: Recent(limit) for name in backend.models}
    return [
        Operation(
            "POST",
            ("/v2/models/{name}/infer", "/v2/models/{name}/versions/{version}/infer"),
            "Scores and labels of one tensor of inputs.",
            InferRoute(backend, recent).infer,
            access="tenant",
            answer=InferAnswer,
            body=InferRequest,
            headers=(TIMEOUT_HEADER, HEADER_LENGTH),
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
        backend.require_admin(request)
        text = metrics_text(backend.router, *backend.collectors)
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})

    async def status(request: Request) -> Response:
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
    ]


def _answered(handler: Handler) -> Handler:
    """The handler with its refusals as answers; nothing it raises gets to the server."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except RefusedError as refusal:
            return _refusal(refusal.status, str(refusal))
        except ClientDisconnect:
            return _refusal(400, "body: the client left before its end; send it again")
        except Exception as error:
            LOGGER.error("%s %s: %r", request.method, request.url.path, error)
            return _refusal(500, "an error of the server; look into its log, or try again")

    return answer


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
