"""GET /openapi.json: what the API takes and answers, made from its own routes and messages."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

import migrator
from migrator.serve.protocol import Problem

REFERENCE = "#/components/schemas/{name}"
BODY_STATUSES = (400, 408, 413, 415)
ACCESS_STATUSES = {"open": (), "any": (401,), "tenant": (401, 403, 404), "admin": (401, 403)}


@dataclass(frozen=True)
class Operation:
    """One thing that can be asked of the API."""

    method: Literal["GET", "POST"]
    paths: tuple[str, ...]
    summary: str
    handler: Callable[[Request], Awaitable[Response]]
    access: Literal["open", "any", "tenant", "admin"] = "open"
    answer: Any = None
    """The type of the message it answers with; None: text."""
    media_type: str = "application/json"
    body: type[msgspec.Struct] | None = None
    binary: bool = True
    """Whether the body may have tensor data behind its JSON."""
    headers: tuple[str, ...] = ()
    statuses: tuple[int, ...] = ()
    """What it refuses with, beyond those of its access and body."""

    @property
    def all_statuses(self) -> list[int]:
        """Everything it can answer with."""
        body = BODY_STATUSES if self.body else ()
        return sorted({200, 500, *ACCESS_STATUSES[self.access], *body, *self.statuses})


def description(operations: Sequence[Operation]) -> dict[str, Any]:
    """The OpenAPI 3.1 description of the routes."""
    schemas, components = _schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        for path in each.paths:
            paths.setdefault(path, {})[each.method.lower()] = _operation(each, path, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "MIGRator",
            "version": migrator.__version__,
            "description": "Open Inference Protocol version 2 with the binary tensor extension, "
            "labels, metrics. Every refusal is JSON with one sentence under 'error'. A server "
            "with too many connections answers 503, one that reads no HTTP answers 400.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas(operations: Iterable[Operation]) -> tuple[dict[Any, Any], dict[str, Any]]:
    kinds: list[Any] = [Problem]
    for each in operations:
        kinds += [kind for kind in (each.answer, each.body) if kind and kind not in kinds]
    found, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    return dict(zip(map(str, kinds), found, strict=True)), components


def _operation(each: Operation, path: str, schemas: dict[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": each.summary,
        "operationId": _identifier(each, path),
        "parameters": [
            *map(_path_parameter, re.findall(r"{(\w+)}", path)),
            *map(_header, each.headers),
        ],
        "responses": {str(status): _answer(each, status, schemas) for status in each.all_statuses},
    }
    if each.body is not None:
        described["requestBody"] = _body(schemas[str(each.body)], each.binary)
    if each.access != "open":
        described["security"] = [{"token": []}, {}]
    return described


def _identifier(each: Operation, path: str) -> str:
    words = [word for word in re.split(r"\W+", path) if word]
    return "_".join([each.method.lower(), *words])


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _header(name: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": {"type": "number"}}


def _body(schema: dict[str, Any], binary: bool) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if binary:
        words = "JSON of the same kind, then the tensor's bytes in row-major order."
        content["application/octet-stream"] = {"schema": {"description": words}}
    return {"required": True, "content": content}


def _answer(each: Operation, status: int, schemas: dict[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if status != 200:
        described["content"] = {"application/json": {"schema": schemas[str(Problem)]}}
    else:
        schema = schemas[str(each.answer)] if each.answer else {"type": "string"}
        described["content"] = {each.media_type: {"schema": schema}}
    return described
