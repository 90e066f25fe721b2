"""A gateway: the API of all tenants at one address, each request sent on to the GPU that serves it.

It keeps nothing but the map: any number of them may stand side by side. Tokens, ids and bodies pass
through untouched; requests never go through Ray.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

import migrator
from migrator.cluster.fleet.forwarding import Forwarder, NoHome, Sending
from migrator.cluster.fleet.gateway_metrics import metrics_text
from migrator.cluster.fleet.map_source import MapSource
from migrator.cluster.fleet.overview import overview_page
from migrator.core.errors import MigratorError
from migrator.load.http import Reply
from migrator.serve.leaving import leaving
from migrator.serve.limits import Limits, header_of
from migrator.serve.origin import require_own_page
from migrator.serve.refusals import RefusedError
from migrator.serve.tokens import Tokens

_MODELS = "/v2/models/"
_OWN = (b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"date")
_JSON = [(b"content-type", b"application/json")]


class Gateway:
    """The application behind a gateway's port."""

    def __init__(self, source: MapSource, limits: Limits | None = None) -> None:
        self._source, self._limits = source, limits or Limits()
        self.forwarder = Forwarder(source)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        assert scope["type"] == "http"
        try:
            body = await self._body(receive)
        except ClientDisconnect:
            return
        if body is None:
            await _refuse(send, 413, f"body: larger than {self._limits.body_bytes} bytes", end=True)
            return
        path: str = scope["path"]
        if path.startswith(_MODELS):
            await self._forward(scope, path, body, send)
        else:
            await self._own(scope, path, body, send)

    async def _forward(self, scope: Scope, path: str, body: bytes, send: Send) -> None:
        tenant = path[len(_MODELS) :].partition("/")[0]
        request = Request(scope)
        try:
            if path.endswith("/feedback"):  # the daemon does not see the Host that was asked
                require_own_page(request, self._tokens)
            with leaving(request):
                found = await self.forwarder.forward(tenant, _sending(scope, body))
        except ClientDisconnect:
            return  # nobody waits for the answer, here or at the daemon
        except RefusedError as error:
            await _refuse(send, error.status, str(error))
            return
        if isinstance(found, NoHome):
            more = [(b"retry-after", b"1")] if found.status == 503 else []
            await _refuse(send, found.status, found.reason, more)
        else:
            await _answer(send, found)

    async def _body(self, receive: Receive) -> bytes | None:
        """None: it is too large; ClientDisconnect where the rest never comes."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._limits.body_bytes:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)

    async def _own(self, scope: Scope, path: str, body: bytes, send: Send) -> None:
        """What the gateway answers by itself."""
        try:
            match path:
                case "/v2":
                    told = {"name": "migrator", "version": migrator.__version__}
                    await _json(send, {**told, "extensions": ["binary_tensor_data"]})
                case "/v2/health/live":
                    await _json(send, {"ready": True})
                case "/v2/health/ready":
                    await self._ready(send)
                case "/v2/repository/index":
                    await self._index(scope, body, send)
                case "/cluster" | "/cluster/map" | "/metrics":
                    self._require_admin(scope)
                    await self._administration(scope, path, send)
                case _:
                    reason = f"{path[:200]} is not part of a gateway; see /docs of a GPU's daemon"
                    await _refuse(send, 404, reason)
        except RefusedError as error:
            await _refuse(send, error.status, str(error))
        except MigratorError as error:
            await _refuse(send, 503, str(error))

    async def _ready(self, send: Send) -> None:
        found = self._source.current
        if found.homes and not found.away:
            await _json(send, {"ready": True})
            return
        away = ", ".join(found.away) or "everybody"
        await _refuse(send, 503, f"not served now: {away}; try again in some seconds")

    async def _index(self, scope: Scope, body: bytes, send: Send) -> None:
        """The models of all daemons that whoever asks may use."""
        homes = self._source.current.homes
        replies = await self.forwarder.each(_sending(scope, body))
        refused = next((each for each in replies.values() if each.status != 200), None)
        if refused is not None:
            await _answer(send, refused)
            return
        # two have a tenant while it moves: it is listed once, by the one that is asked for it
        entries = (
            each
            for url, reply in replies.items()
            for each in msgspec.json.decode(reply.body)
            if homes.get(each["name"]) == url
        )
        await _json(send, list(entries))

    async def _administration(self, scope: Scope, path: str, send: Send) -> None:
        if path == "/cluster/map":
            await _json(send, self._source.current)
            return
        if path == "/metrics":
            text = await self._metrics()
            await _reply(send, 200, [(b"content-type", b"text/plain; version=0.0.4")], text)
            return
        told = await self._source.overview()
        if b"text/html" in dict(scope["headers"]).get(b"accept", b""):
            kind = [(b"content-type", b"text/html; charset=utf-8")]
            await _reply(send, 200, kind, overview_page(told).encode())
        else:
            await _json(send, told)

    async def _metrics(self) -> bytes:
        try:
            told = await self._source.overview()
        except MigratorError:  # the gateway has its own to tell, above all then
            told = None
        return metrics_text(told, self.forwarder.counts, self._source)

    def _require_admin(self, scope: Scope) -> None:
        request = Request(scope)
        require_own_page(request, self._tokens)
        self._tokens.require_admin(header_of(request, "authorization"))

    @property
    def _tokens(self) -> Tokens:
        return Tokens(admin=self._source.current.admin)


async def followed(source: MapSource) -> asyncio.Task[None]:
    """The map is there, and stays up to date while the task runs."""
    await source.refresh()
    return asyncio.create_task(source.follow())


def _sending(scope: Scope, body: bytes) -> Sending:
    target: bytes = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    return Sending(scope["method"], target, scope["headers"], body)


async def _answer(send: Send, reply: Reply) -> None:
    headers = [
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers.items()
    ]
    await _reply(send, reply.status, [e for e in headers if e[0] not in _OWN], reply.body)


async def _json(send: Send, value: Any) -> None:
    await _reply(send, 200, _JSON, msgspec.json.encode(value))


async def _refuse(
    send: Send,
    status: int,
    reason: str,
    more: list[tuple[bytes, bytes]] | None = None,
    *,
    end: bool = False,
) -> None:
    headers = [*_JSON, *(more or []), *([(b"connection", b"close")] if end else [])]
    await _reply(send, status, headers, msgspec.json.encode({"error": reason}))


async def _reply(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    length = (b"content-length", b"%d" % len(body))
    start: Mapping[str, Any] = {
        "type": "http.response.start",
        "status": status,
        "headers": [*headers, length],
    }
    await send(dict(start))
    await send({"type": "http.response.body", "body": body})
