"""A gateway: the API of all tenants at one address; forwards each request to the serving GPU.

A gateway stores only the map, so any number of them can run side by side. Tokens, ids and bodies
pass through unchanged; requests never go through Ray.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

import migrator
from migrator.cluster.fleet.forwarding import ForwardCounts, Forwarder, ForwardRequest, NotServed
from migrator.cluster.fleet.map_source import MapSource
from migrator.cluster.fleet.overview import overview_page
from migrator.core.errors import MigratorError
from migrator.load.http import Reply
from migrator.serve.exceptions import RefusedError
from migrator.serve.http.authentication import Tokens, require_admin, require_own_page
from migrator.serve.http.metrics import counter, gauge
from migrator.serve.http.requests import Limits, raise_on_disconnect

_MODELS = "/v2/models/"
_OWN = (b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"date")
_JSON = [(b"content-type", b"application/json")]


class Gateway:
    """The ASGI application of a gateway."""

    def __init__(self, source: MapSource, limits: Limits | None = None) -> None:
        self._source, self._limits = source, limits or Limits()
        self.forwarder = Forwarder(source)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
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
            if path.endswith("/feedback"):  # the daemon does not see the original Host header
                require_own_page(request, self._tokens)
            with raise_on_disconnect(request):
                found = await self.forwarder.forward(tenant, _sending(scope, body))
        except ClientDisconnect:
            return  # the client is gone; the request to the daemon is cancelled too
        except RefusedError as error:
            await _refuse(send, error.status, str(error))
            return
        if isinstance(found, NotServed):
            more = [(b"retry-after", b"1")] if found.status == 503 else []
            await _refuse(send, found.status, found.reason, more)
        else:
            await _answer(send, found)

    async def _body(self, receive: Receive) -> bytes | None:
        """Read the body; None if it is too large, ClientDisconnect if the client closes early."""
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
        """Answer requests that are not forwarded."""
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
                    require_admin(Request(scope), self._tokens)
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
        """List the models of all daemons that the caller may use."""
        homes = self._source.current.homes
        replies = await self.forwarder.each(_sending(scope, body))
        refused = next((each for each in replies.values() if each.status != 200), None)
        if refused is not None:
            await _answer(send, refused)
            return
        # during a move two daemons have the tenant: list it once, at the daemon that the map names
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
        except MigratorError:  # the gateway's own metrics matter most in this case
            told = None
        return metrics_text(told, self.forwarder.counts, self._source)

    @property
    def _tokens(self) -> Tokens:
        return Tokens(admin=self._source.current.admin)


async def follow_map(source: MapSource) -> asyncio.Task[None]:
    """Fetch the map, and start the task that keeps it up to date."""
    await source.refresh()
    return asyncio.create_task(source.follow())


def _sending(scope: Scope, body: bytes) -> ForwardRequest:
    target: bytes = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    return ForwardRequest(scope["method"], target, scope["headers"], body)


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


_UP = ("up", "drained")


class ClusterMetrics(Collector):
    """Metric families of the gateway and the cluster."""

    def __init__(
        self, told: Mapping[str, Any] | None, counts: ForwardCounts, source: MapSource
    ) -> None:
        """`told`: overview of the cluster; None if it is not available."""
        self._told, self._counts, self._source = told, counts, source

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        yield from self._gateway()
        if self._told is not None:
            yield from self._cluster(self._told)

    def _gateway(self) -> Iterator[Metric]:
        yield counter(
            "migrator_gateway_requests",
            "Requests by tenant and status code of the answer; 0: nobody answered.",
            ["tenant", "code"],
            {(name, str(code)): n for (name, code), n in self._counts.answers.items()},
        )
        yield counter(
            "migrator_gateway_sent_again",
            "Requests that were sent once more, as the map had become stale.",
            ["tenant"],
            {(name,): n for name, n in self._counts.again.items()},
        )
        yield gauge(
            "migrator_gateway_map_failures",
            "Times in a row that no map could be had; the last one stays in force.",
            [],
            {(): self._source.failures},
        )
        yield gauge(
            "migrator_gateway_map_version",
            "The version of the map in force, within its epoch.",
            ["epoch"],
            {(str(self._source.current.epoch),): self._source.current.version},
        )

    def _cluster(self, told: Mapping[str, Any]) -> Iterator[Metric]:
        gpus = told["gpus"]
        yield gauge(
            "migrator_cluster_gpu_up",
            "1 while the GPU's daemon serves, else 0.",
            ["gpu", "node"],
            {(e["gpu"], e.get("node", "")): e["state"] in _UP for e in gpus},
        )
        yield counter(
            "migrator_cluster_daemon_restarts",
            "Times that the GPU's agent has started its daemon again.",
            ["gpu", "node"],
            {(e["gpu"], e.get("node", "")): e.get("restarts", 0) for e in gpus},
        )
        yield gauge(
            "migrator_cluster_tenant_served",
            "1 while some GPU serves the tenant, else 0.",
            ["tenant", "gpu"],
            {(name, e["gpu"] or ""): e["state"] == "served" for name, e in told["tenants"].items()},
        )
        yield counter(
            "migrator_cluster_moves",
            "Tenants that this head has moved from one GPU to another while both served.",
            [],
            {(): told["moves"]},
        )
        yield gauge("migrator_cluster_epoch", "Of the head.", [], {(): told["epoch"]})


def metrics_text(told: Mapping[str, Any] | None, counts: ForwardCounts, source: MapSource) -> bytes:
    """Render the metrics page."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ClusterMetrics(told, counts, source))
    return generate_latest(registry)
