"""The HTTP application of a daemon or gateway, asked inside this process for gRPC calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import grpc
from starlette.types import ASGIApp, Message

from migrator.serving.http.inference import TIMEOUT_HEADER
from migrator.serving.http.requests import REQUEST_ID_HEADER
from migrator.serving.tracing import HEADERS as TRACE_HEADERS

_PASSED_HEADERS = ("authorization", REQUEST_ID_HEADER, TIMEOUT_HEADER, *TRACE_HEADERS)
CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""Status of HTTP -> that of gRPC."""


class ApplicationClient:
    """Asks an application as a client of its HTTP API does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def json(self, method: str, path: str, context: Any) -> Any:
        status, _, body = await self.ask(method, path, context)
        if status != 200:
            await abort(context, status, body)
        return json.loads(body)

    async def ask(
        self,
        method: str,
        path: str,
        context: Any,
        headers: Mapping[str, str] | None = None,
        parts: list[bytes] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the application's answer.

        `parts`: of the body, joined only if the application reads it, and emptied.
        """
        unread = [parts or []]
        all_headers = {"content-length": str(sum(map(len, unread[0]))), **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "2",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [
                # no page in a browser can call gRPC without TLS
                (b"host", b"localhost"),
                *passed_headers(context),
                *((key.encode(), value.encode()) for key, value in all_headers.items()),
            ],
            "client": None,
            "server": None,
        }
        sent: list[Message] = []

        async def receive() -> Message:
            if unread:
                body = b"".join(unread[0])
                unread.pop().clear()
                return {"type": "http.request", "body": body, "more_body": False}
            await asyncio.Event().wait()  # the call is cancelled when its client leaves
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        answered = {str(k, "latin-1"): str(v, "latin-1") for k, v in sent[0]["headers"]}
        return (
            sent[0]["status"],
            answered,
            b"".join(message.get("body", b"") for message in sent[1:]),
        )


def passed_headers(context: Any) -> list[tuple[bytes, bytes]]:
    """Metadata of a call that the application reads."""
    metadata = {str(key): value for key, value in context.invocation_metadata() or ()}
    return [
        (key.encode(), str(metadata[key]).encode()) for key in _PASSED_HEADERS if key in metadata
    ]


async def abort(context: Any, status: int, body: bytes) -> None:
    """End a call with the status and the error of the application's answer."""
    try:
        reason = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        reason = f"status {status}"
    await context.abort(CODES.get(status, grpc.StatusCode.INTERNAL), reason)


def path_of(name: str, version: str) -> str:
    """Where the application has a model."""
    return f"/v2/models/{name}" + (f"/versions/{version}" if version else "")
