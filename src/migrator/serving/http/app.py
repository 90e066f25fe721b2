"""The HTTP API as one Starlette application: the table of operations, their routes and
description (/openapi.json)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import migrator
from migrator.serving.http import routes
from migrator.serving.http.bodies import JSON_LENGTH_HEADER
from migrator.serving.http.inference import TIMEOUT_HEADER, feedback, infer, samples
from migrator.serving.http.operations import (
    ApiState,
    GuardedOperation,
    Operation,
    json_response,
    refuse_unknown_route,
)
from migrator.serving.http.protocol import (
    ErrorAnswer,
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
from migrator.serving.http.requests import REQUEST_ID_HEADER

_MODEL = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")


def _of_model(route: str = "") -> tuple[str, ...]:
    """The paths of a route of a model, and of one version of it."""
    return tuple(f"{path}{route}" for path in _MODEL)


OPERATIONS = (
    Operation(
        *("POST", _of_model("/infer"), infer, "tenant", InferAnswer, InferRequest),
        headers=(TIMEOUT_HEADER, REQUEST_ID_HEADER, JSON_LENGTH_HEADER),
    ),
    Operation(
        *("POST", _of_model("/feedback")[:1], feedback, "tenant", FeedbackAnswer, FeedbackRequest),
        headers=(JSON_LENGTH_HEADER,),
    ),
    Operation(
        *("POST", _of_model("/samples")[:1], samples, "tenant", SamplesAnswer, SamplesRequest),
        headers=(JSON_LENGTH_HEADER,),
    ),
    Operation("GET", ("/v2",), routes.server_metadata, "open", ServerMetadata),
    Operation("GET", ("/v2/health/live",), routes.live, "open", Readiness),
    Operation("GET", ("/v2/health/ready",), routes.ready, "open", Readiness),
    Operation("GET", ("/v2/models/stats",), routes.all_statistics, "any"),
    Operation("GET", _of_model(), routes.model_metadata, "tenant", ModelMetadata),
    Operation("GET", _of_model("/ready"), routes.model_ready, "tenant", Readiness),
    Operation("GET", _of_model("/config"), routes.model_config, "tenant"),
    Operation("GET", _of_model("/stats"), routes.model_statistics, "tenant"),
    Operation("POST", ("/v2/repository/index",), routes.model_index, "any", list[IndexEntry]),
    *(
        Operation(
            *("POST", (f"/v2/repository/models/{{name}}/{verb}",), handler, "admin"),
            *(routes.ActionAnswer, routes.ModelControl),
            binary=False,
            typed=False,
        )
        for verb, handler in (("load", routes.load_model), ("unload", routes.unload_model))
    ),
    Operation("GET", ("/metrics",), routes.metrics, "admin", str, media_type="text/plain"),
    Operation("GET", ("/admin/status",), routes.status, "admin"),
    *(
        Operation("POST", (path,), handler, "admin", routes.ActionAnswer, body, binary=False)
        for path, handler, body in (
            ("/admin/actions", routes.act, routes.ActionRequest),
            ("/admin/tenants", routes.change_tenants, routes.TenantRequest),
        )
    ),
)
"""The most frequent one first, as routes are tried in turn."""


def description() -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    kinds: list[Any] = [ErrorAnswer]
    for operation in OPERATIONS:
        kinds += [kind for kind in (operation.answer, operation.body) if kind and kind not in kinds]
    definitions, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    schemas = dict(zip(map(str, kinds), definitions, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        for path in operation.paths:
            described = _operation(operation, path, schemas)
            paths.setdefault(path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "MIGRator",
            "version": migrator.__version__,
            "description": "Open Inference Protocol version 2 with the binary tensor extension, "
            "labels, metrics. Every refusal is JSON with one sentence under 'error'. Too many "
            "connections are answered with 503, anything but HTTP with 400.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation, path: str, schemas: dict[str, Any]) -> dict[str, Any]:
    path_words = [word for word in re.split(r"\W+", path) if word]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ] + [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string"}}
        for name in operation.headers
    ]
    described: dict[str, Any] = {
        "summary": operation.handler.__doc__,
        "operationId": "_".join([operation.method.lower(), *path_words]),
        "parameters": parameters,
        "responses": {
            "200": _answer("Done", schemas[str(operation.answer)], operation.media_type),
            "default": _answer("Refused", schemas[str(ErrorAnswer)], "application/json"),
        },
    }
    if operation.body is not None:
        content: dict[str, Any] = {"application/json": {"schema": schemas[str(operation.body)]}}
        if operation.binary:
            after = "JSON of the same kind, then the tensor's bytes in row-major order."
            content["application/octet-stream"] = {"schema": {"description": after}}
        described["requestBody"] = {"required": True, "content": content}
    if operation.access != "open":
        described["security"] = [{"token": []}, {}]
    return described


def _answer(words: str, schema: Any, media_type: str) -> dict[str, Any]:
    return {"description": words, "content": {media_type: {"schema": schema}}}


class Application(Starlette):
    """The API with its state."""

    def __init__(self, api: ApiState, routes: Sequence[Route]) -> None:
        super().__init__(routes=routes, exception_handlers={HTTPException: refuse_unknown_route})
        self.router.redirect_slashes = False
        self.api = api


def application(state: ApiState, pages: Sequence[Route] = ()) -> Application:
    """The API with this state, and HTML pages beside it."""
    described = description()

    async def openapi(_: Request) -> Response:
        return json_response(described)

    every = [
        Route(path, GuardedOperation(operation), methods=[operation.method])
        for operation in OPERATIONS
        for path in operation.paths
    ]
    every += [Route("/openapi.json", openapi), *pages]
    return Application(state, every)
