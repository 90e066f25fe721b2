"""The HTTP API as one Starlette application: the table of operations and their routes."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from migrator.serve.http import routes, snippets, triton
from migrator.serve.http.inference import TIMEOUT_HEADER, feedback, infer, samples
from migrator.serve.http.middleware import GuardedOperation, json_response, refuse_unknown_route
from migrator.serve.http.openapi import Operation, description, docs_page
from migrator.serve.http.protocol import (
    FeedbackAnswer,
    FeedbackRequest,
    IndexEntry,
    InferAnswer,
    InferRequest,
    ModelMetadata,
    Readiness,
    SamplesAnswer,
    SamplesRequest,
    ServerMetadata,
)
from migrator.serve.http.requests import JSON_LENGTH_HEADER, REQUEST_ID_HEADER
from migrator.serve.http.state import ApiState

_MODEL = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")

OPERATIONS = (
    Operation(
        "POST",
        tuple(f"{path}/infer" for path in _MODEL),
        infer,
        access="tenant",
        answer=InferAnswer,
        body=InferRequest,
        headers=(TIMEOUT_HEADER, REQUEST_ID_HEADER, JSON_LENGTH_HEADER),
        statuses=(429, 503, 504),
        example=snippets.INFER,
    ),
    Operation(
        "POST",
        ("/v2/models/{name}/feedback",),
        feedback,
        access="tenant",
        answer=FeedbackAnswer,
        body=FeedbackRequest,
        headers=(JSON_LENGTH_HEADER,),
        statuses=(507,),
        example=snippets.FEEDBACK,
    ),
    Operation(
        "POST",
        ("/v2/models/{name}/samples",),
        samples,
        access="tenant",
        answer=SamplesAnswer,
        body=SamplesRequest,
        headers=(JSON_LENGTH_HEADER,),
        statuses=(507,),
        example=snippets.SAMPLES,
    ),
    Operation("GET", ("/v2",), routes.server_metadata, answer=ServerMetadata),
    Operation("GET", ("/v2/health/live",), routes.live, answer=Readiness),
    Operation("GET", ("/v2/health/ready",), routes.ready, answer=Readiness, statuses=(503,)),
    Operation(
        "GET",
        ("/v2/models/stats",),
        triton.all_statistics,
        access="any",
        answer=triton.StatisticsAnswer,
    ),
    Operation("GET", _MODEL, routes.model_metadata, access="tenant", answer=ModelMetadata),
    Operation(
        "GET",
        tuple(f"{path}/ready" for path in _MODEL),
        routes.model_ready,
        access="tenant",
        answer=Readiness,
        statuses=(503,),
    ),
    Operation(
        "GET",
        tuple(f"{path}/config" for path in _MODEL),
        triton.model_config,
        access="tenant",
        answer=triton.ModelConfig,
    ),
    Operation(
        "GET",
        tuple(f"{path}/stats" for path in _MODEL),
        triton.model_statistics,
        access="tenant",
        answer=triton.StatisticsAnswer,
    ),
    Operation(
        "POST",
        ("/v2/repository/index",),
        routes.model_index,
        access="any",
        answer=list[IndexEntry],
        example=snippets.INDEX,
    ),
    Operation("GET", ("/metrics",), routes.metrics, access="admin", media_type="text/plain"),
    Operation("GET", ("/admin/status",), routes.status, access="admin", answer=dict[str, Any]),
    *(
        Operation(
            "POST",
            (path,),
            handler,
            access="admin",
            answer=routes.ActionAnswer,
            body=body,
            binary=False,
            statuses=(403, 404, 409, 507),
            example=example,
        )
        for path, handler, body, example in (
            ("/admin/actions", routes.act, routes.ActionRequest, snippets.ACTION),
            ("/admin/tenants", routes.change_tenants, routes.TenantRequest, snippets.TENANTS),
        )
    ),
)
"""The most frequent one first."""


class Application(Starlette):
    """The API with its state.

    Requests for the first operation do not pass Starlette's middleware and list of routes:
    `GuardedOperation` handles every error, so that nothing is left for the middleware to do.
    """

    def __init__(self, api: ApiState, routes: Sequence[Route]) -> None:
        super().__init__(routes=routes, exception_handlers={HTTPException: refuse_unknown_route})
        self.router.redirect_slashes = False
        self.api = api
        self._first = routes[: len(OPERATIONS[0].paths)]

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """Answer one request; not a coroutine function, as each costs every request some time."""
        if scope["type"] == "http" and scope["method"] == OPERATIONS[0].method:
            for route in self._first:
                if found := route.path_regex.match(scope["path"]):
                    scope["app"], scope["path_params"] = self, found.groupdict()
                    return cast("Coroutine[Any, Any, None]", route.app(scope, receive, send))
        return super().__call__(scope, receive, send)


def application(state: ApiState, pages: Sequence[Route] = ()) -> Application:
    """The API with this state, and HTML pages beside it."""
    described = description(OPERATIONS)
    page = docs_page(described, OPERATIONS)

    async def openapi(_: Request) -> Response:
        return json_response(described)

    async def docs(_: Request) -> Response:
        return HTMLResponse(page)

    every = [
        Route(path, GuardedOperation(each), methods=[each.method])
        for each in OPERATIONS
        for path in each.paths
    ]
    every += [Route("/openapi.json", openapi), Route("/docs", docs), *pages]
    return Application(state, every)
