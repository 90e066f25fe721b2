"""GET /openapi.json and GET /docs, made from the table of operations and the messages."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

import migrator
from migrator.serve.http.protocol import Problem

REFERENCE = "#/components/schemas/{name}"
Access = Literal["open", "any", "tenant", "admin"]
Handler = Callable[[Request], Awaitable[Response]]
BODY_STATUSES = (400, 408, 413, 415)
ACCESS_STATUSES = {"open": (), "any": (401,), "tenant": (401, 403, 404), "admin": (401, 403)}


@dataclass(frozen=True)
class Operation:
    """One operation of the API; its summary is the docstring of the handler."""

    method: Literal["GET", "POST"]
    paths: tuple[str, ...]
    handler: Handler
    access: Access = "open"
    answer: Any = None
    """The type of its answer; None: text."""
    media_type: str = "application/json"
    body: type[msgspec.Struct] | None = None
    binary: bool = True
    """Whether tensor data may follow the JSON of the body."""
    headers: tuple[str, ...] = ()
    statuses: tuple[int, ...] = ()
    """Refusals beyond those of its access and body."""
    example: str = ""
    """A client in curl, or in curl and Python; empty: curl with the path alone."""

    @property
    def all_statuses(self) -> list[int]:
        """Every status of its answers."""
        body = BODY_STATUSES if self.body else ()
        return sorted({200, 500, *ACCESS_STATUSES[self.access], *body, *self.statuses})


def description(operations: Sequence[Operation]) -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    kinds: list[Any] = [Problem]
    for each in operations:
        kinds += [kind for kind in (each.answer, each.body) if kind and kind not in kinds]
    found, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    schemas = dict(zip(map(str, kinds), found, strict=True))
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
            "labels, metrics. Every refusal is JSON with one sentence under 'error'. Too many "
            "connections are answered with 503, anything but HTTP with 400.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(each: Operation, path: str, schemas: dict[str, Any]) -> dict[str, Any]:
    words = [word for word in re.split(r"\W+", path) if word]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ] + [
        {"name": name, "in": "header", "required": False, "schema": {"type": "number"}}
        for name in each.headers
    ]
    described: dict[str, Any] = {
        "summary": each.handler.__doc__,
        "operationId": "_".join([each.method.lower(), *words]),
        "parameters": parameters,
        "responses": {str(status): _answer(each, status, schemas) for status in each.all_statuses},
    }
    if each.body is not None:
        content: dict[str, Any] = {"application/json": {"schema": schemas[str(each.body)]}}
        if each.binary:
            after = "JSON of the same kind, then the tensor's bytes in row-major order."
            content["application/octet-stream"] = {"schema": {"description": after}}
        described["requestBody"] = {"required": True, "content": content}
    if each.access != "open":
        described["security"] = [{"token": []}, {}]
    return described


def _answer(each: Operation, status: int, schemas: dict[str, Any]) -> dict[str, Any]:
    kind, schema = "application/json", schemas[str(Problem)]
    if status == 200:
        kind = each.media_type
        schema = schemas[str(each.answer)] if each.answer else {"type": "string"}
    return {"description": HTTPStatus(status).phrase, "content": {kind: {"schema": schema}}}


STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "background:#fff;color:#222}"
    "code,pre{font:14px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}"
    "pre{background:#f4f4f4;padding:.7rem;"
    "overflow:auto}h2{margin-top:2rem;font-size:1.05rem}td{padding:0 1rem 0 0}"
    "@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark}"
    "body{background:#14171a;color:#ddd}pre{background:#222}a{color:#8ab4f8}}"
    "@media print{pre{white-space:pre-wrap}}"
)


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
        *_operations(described["paths"], operations),
        "<h2>Messages</h2>",
    ]
    for name, schema in described["components"]["schemas"].items():
        parts += [
            f'<h3 id="{escape(name)}">{escape(name)}</h3>',
            f"<p>{escape(schema.get('description', ''))}</p>",
            f"<pre>{escape(json.dumps(schema.get('properties', {}), indent=1))}</pre>",
        ]
    return "\n".join([*parts, "</body></html>"])


def _operations(paths: dict[str, Any], operations: Sequence[Operation]) -> Iterator[str]:
    for operation in operations:
        path, *others = operation.paths
        each = paths[path][operation.method.lower()]
        yield f"<h2><code>{operation.method} {escape(path)}</code></h2>"
        yield f"<p>{escape(each['summary'])}</p>"
        for other in others:
            yield f"<p>Also <code>{escape(other)}</code>.</p>"
        if "requestBody" in each:
            yield f"<p>Takes {_message(each['requestBody'])}.</p>"
        curl = f"curl http://127.0.0.1:8600{path.replace('{name}', 'photos')}"
        yield f"<pre>{escape(operation.example or curl)}</pre>"
        rows = (
            f"<tr><td>{status}</td><td>{escape(answer['description'])}</td>"
            f"<td>{_message(answer)}</td></tr>"
            for status, answer in each["responses"].items()
        )
        yield f"<table>{''.join(rows)}</table>"


def _message(described: dict[str, Any]) -> str:
    kind, content = next(iter(described["content"].items()))
    schema = content["schema"]
    name = schema.get("$ref", schema.get("items", {}).get("$ref", "")).rpartition("/")[2]
    return f'<a href="#{escape(name)}">{escape(name)}</a>' if name else escape(kind)
