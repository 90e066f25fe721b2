"""The HTTP API as one Starlette application: the table of operations, their routes and
description (/openapi.json, /docs)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html import escape
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
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

REFERENCE = "#/components/schemas/{name}"
INFER_EXAMPLE = """\
curl http://127.0.0.1:8600/v2/models/photos/infer -H 'content-type: application/json' -d '{
  "id": "r1",
  "inputs": [{"name": "input", "datatype": "UINT8", "shape": [1, 3, 16, 16], "data": [0, 1, ...]}]
}'

# Python: pip install 'tritonclient[http]' (or tritonclient[grpc] where grpc_port is set)
import numpy as np
import tritonclient.http as triton

client = triton.InferenceServerClient("127.0.0.1:8600")
tensor = triton.InferInput("input", [1, 3, 16, 16], "UINT8")
tensor.set_data_from_numpy(np.zeros((1, 3, 16, 16), np.uint8))
answer = client.infer("photos", [tensor], request_id="r1")
print(answer.as_numpy("label"), answer.as_numpy("class_name"), answer.as_numpy("scores"))"""

FEEDBACK_EXAMPLE = """\
curl http://127.0.0.1:8600/v2/models/photos/feedback -H 'content-type: application/json' \\
  -d '{"id": "r1", "label": 3}'

# Python: the id is that of the answer; the next window learns the label, a number or a name
import json
import urllib.request

body = json.dumps({"id": "r1", "label": 3}).encode()
request = urllib.request.Request(
    "http://127.0.0.1:8600/v2/models/photos/feedback",
    body,
    {"content-type": "application/json"},  # with tokens also "authorization": "Bearer TOKEN"
)
print(urllib.request.urlopen(request).read())"""

SAMPLES_EXAMPLE = """\
curl http://127.0.0.1:8600/v2/models/photos/samples -H 'content-type: application/json' -d '{
  "id": "upload-1", "labels": [3, 0],
  "inputs": [{"name": "input", "datatype": "UINT8", "shape": [2, 3, 16, 16], "data": [0, 1, ...]}]
}'"""

INDEX_EXAMPLE = "curl -X POST http://127.0.0.1:8600/v2/repository/index"

ACTION_EXAMPLE = """\
curl http://127.0.0.1:8600/admin/actions -H 'content-type: application/json' \\
  -d '{"action": "drain", "tenant": "photos"}'"""

TENANTS_EXAMPLE = """\
curl http://127.0.0.1:8600/admin/tenants -H 'content-type: application/json' \\
  -d '{"remove": "photos"}'"""
LOAD_EXAMPLE = "curl -X POST http://127.0.0.1:8600/v2/repository/models/photos/load"
UNLOAD_EXAMPLE = "curl -X POST http://127.0.0.1:8600/v2/repository/models/photos/unload"
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
        example=INFER_EXAMPLE,
    ),
    Operation(
        "POST",
        ("/v2/models/{name}/feedback",),
        feedback,
        access="tenant",
        answer=FeedbackAnswer,
        body=FeedbackRequest,
        headers=(JSON_LENGTH_HEADER,),
        statuses=(409, 503, 507),
        example=FEEDBACK_EXAMPLE,
    ),
    Operation(
        "POST",
        ("/v2/models/{name}/samples",),
        samples,
        access="tenant",
        answer=SamplesAnswer,
        body=SamplesRequest,
        headers=(JSON_LENGTH_HEADER,),
        statuses=(503, 507),
        example=SAMPLES_EXAMPLE,
    ),
    Operation("GET", ("/v2",), routes.server_metadata, answer=ServerMetadata),
    Operation("GET", ("/v2/health/live",), routes.live, answer=Readiness),
    Operation("GET", ("/v2/health/ready",), routes.ready, answer=Readiness, statuses=(503,)),
    Operation(
        "GET",
        ("/v2/models/stats",),
        routes.all_statistics,
        access="any",
        answer=routes.StatisticsAnswer,
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
        routes.model_config,
        access="tenant",
        answer=routes.ModelConfig,
    ),
    Operation(
        "GET",
        tuple(f"{path}/stats" for path in _MODEL),
        routes.model_statistics,
        access="tenant",
        answer=routes.StatisticsAnswer,
    ),
    Operation(
        "POST",
        ("/v2/repository/index",),
        routes.model_index,
        access="any",
        answer=list[IndexEntry],
        example=INDEX_EXAMPLE,
    ),
    *(
        Operation(
            "POST",
            (f"/v2/repository/models/{{name}}/{verb}",),
            handler,
            access="admin",
            answer=routes.ActionAnswer,
            body=routes.ModelControl,
            binary=False,
            typed=False,
            statuses=(404, 409, 507),
            example=example,
        )
        for verb, handler, example in (
            ("load", routes.load_model, LOAD_EXAMPLE),
            ("unload", routes.unload_model, UNLOAD_EXAMPLE),
        )
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
            ("/admin/actions", routes.act, routes.ActionRequest, ACTION_EXAMPLE),
            ("/admin/tenants", routes.change_tenants, routes.TenantRequest, TENANTS_EXAMPLE),
        )
    ),
)
"""The most frequent one first, as routes are tried in turn."""
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "background:#fff;color:#222}"
    "code,pre{font:14px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}"
    "pre{background:#f4f4f4;padding:.7rem;"
    "overflow:auto}h2{margin-top:2rem;font-size:1.05rem}td{padding:0 1rem 0 0}"
    "nav{background:#f4f4f4;padding:.1rem 1rem}nav h2{margin:.7rem 0 .2rem}"
    "nav ul{margin:.3rem 0 .8rem;padding-left:1.2rem;columns:20rem}"
    "nav li{break-inside:avoid;overflow-wrap:anywhere}"
    "@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark}"
    "body{background:#14171a;color:#ddd}pre,nav{background:#222}a{color:#8ab4f8}}"
    "@media print{pre{white-space:pre-wrap}}"
)
PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
}
"""Of a page without scripts, pictures and forms."""


def description(operations: Sequence[Operation]) -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    kinds: list[Any] = [ErrorAnswer]
    for operation in operations:
        kinds += [kind for kind in (operation.answer, operation.body) if kind and kind not in kinds]
    definitions, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    schemas = dict(zip(map(str, kinds), definitions, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        for path in operation.paths:
            paths.setdefault(path, {})[operation.method.lower()] = _operation(
                operation, path, schemas
            )
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
        {"name": name, "in": "header", "required": False, "schema": {"type": "number"}}
        for name in operation.headers
    ]
    described: dict[str, Any] = {
        "summary": operation.handler.__doc__,
        "operationId": "_".join([operation.method.lower(), *path_words]),
        "parameters": parameters,
        "responses": {
            str(status): _answer(operation, status, schemas) for status in operation.all_statuses
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


def _answer(operation: Operation, status: int, schemas: dict[str, Any]) -> dict[str, Any]:
    kind, schema = "application/json", schemas[str(ErrorAnswer)]
    if status == 200:
        kind = operation.media_type
        schema = schemas[str(operation.answer)] if operation.answer else {"type": "string"}
    return {"description": HTTPStatus(status).phrase, "content": {kind: {"schema": schema}}}


def docs_page(described: dict[str, Any], operations: Sequence[Operation]) -> str:
    """The description as one HTML page without scripts; every operation once."""
    info = described["info"]
    title = escape(f"{info['title']} {info['version']}")
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        f"<p>{escape(info['description'])}</p>",
        "<p>With tokens, every example needs <code>-H 'authorization: Bearer TOKEN'</code>.</p>",
        *_contents(described, operations),
        "<main>",
        *_operations(described["paths"], operations),
        '<h2 id="messages">Messages</h2>',
    ]
    for name, schema in described["components"]["schemas"].items():
        parts += [
            f'<h3 id="{escape(name)}">{escape(name)}</h3>',
            f"<p>{escape(schema.get('description', ''))}</p>",
            f"<pre>{escape(json.dumps(schema.get('properties', {}), indent=1))}</pre>",
        ]
    return "\n".join([*parts, "</main></body></html>"])


def _contents(described: dict[str, Any], operations: Sequence[Operation]) -> Iterator[str]:
    """Links to every operation and to every message."""
    yield '<nav aria-label="Contents"><h2>Operations</h2><ul>'
    for operation in operations:
        path = operation.paths[0]
        anchor = described["paths"][path][operation.method.lower()]["operationId"]
        heading = escape(f"{operation.method} {path}")
        yield f'<li><a href="#{escape(anchor)}"><code>{heading}</code></a></li>'
    yield '</ul><h2><a href="#messages">Messages</a></h2><ul>'
    for name in map(escape, described["components"]["schemas"]):
        yield f'<li><a href="#{name}">{name}</a></li>'
    yield "</ul></nav>"


def _operations(paths: dict[str, Any], operations: Sequence[Operation]) -> Iterator[str]:
    for operation in operations:
        path, *others = operation.paths
        operation_schema = paths[path][operation.method.lower()]
        anchor = escape(operation_schema["operationId"])
        yield f'<h2 id="{anchor}"><code>{operation.method} {escape(path)}</code></h2>'
        yield f"<p>{escape(operation_schema['summary'])}</p>"
        for other in others:
            yield f"<p>Also <code>{escape(other)}</code>.</p>"
        if "requestBody" in operation_schema:
            yield f"<p>Takes {_message(operation_schema['requestBody'])}.</p>"
        curl = f"curl http://127.0.0.1:8600{path.replace('{name}', 'photos')}"
        yield f"<pre>{escape(operation.example or curl)}</pre>"
        rows = (
            f"<tr><td>{status}</td><td>{escape(answer['description'])}</td>"
            f"<td>{_message(answer)}</td></tr>"
            for status, answer in operation_schema["responses"].items()
        )
        yield f"<table>{''.join(rows)}</table>"


def _message(described: dict[str, Any]) -> str:
    kind, content = next(iter(described["content"].items()))
    schema = content["schema"]
    name = schema.get("$ref", schema.get("items", {}).get("$ref", "")).rpartition("/")[2]
    return f'<a href="#{escape(name)}">{escape(name)}</a>' if name else escape(kind)


class Application(Starlette):
    """The API with its state."""

    def __init__(self, api: ApiState, routes: Sequence[Route]) -> None:
        super().__init__(routes=routes, exception_handlers={HTTPException: refuse_unknown_route})
        self.router.redirect_slashes = False
        self.api = api


def application(state: ApiState, pages: Sequence[Route] = ()) -> Application:
    """The API with this state, and HTML pages beside it."""
    described = description(OPERATIONS)
    page = docs_page(described, OPERATIONS)

    async def openapi(_: Request) -> Response:
        return json_response(described)

    async def docs(_: Request) -> Response:
        return HTMLResponse(page, headers=PAGE_HEADERS)

    every = [
        Route(path, GuardedOperation(operation), methods=[operation.method])
        for operation in OPERATIONS
        for path in operation.paths
    ]
    every += [Route("/openapi.json", openapi), Route("/docs", docs), *pages]
    return Application(state, every)
