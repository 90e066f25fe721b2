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
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

import migrator
from migrator.cluster.fleet.forwarding import (
    ForwardCounts,
    Forwarder,
    ForwardRequest,
    MapSource,
    NotServed,
)
from migrator.cluster.fleet.overview import overview_page
from migrator.core.errors import HttpError, MigratorError
from migrator.io.http_client import Reply
from migrator.serve.http.metrics import counter, gauge
from migrator.serve.http.requests import (
    DisconnectGuard,
    Limits,
    Tokens,
    require_admin,
    require_own_page,
)

_MODELS, _ALL_STATISTICS = "/v2/models/", "/v2/models/stats"
_OWN = (b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"date")
"""Headers of one connection, which are not passed on."""

_CONSTANT = {
    "/v2": {
        "name": "migrator",
        "version": migrator.__version__,
        "extensions": ["binary_tensor_data"],
    },
    "/v2/health/live": {"ready": True},
}


class Gateway:
    """The ASGI application of a gateway."""

    def __init__(self, source: MapSource, limits: Limits | None = None) -> None:
        self._source, self._limits = source, limits or Limits()
        self.forwarder = Forwarder(source)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        try:
            body = await self._body(receive)
            if body is None:
                reason = f"body: larger than {self._limits.body_bytes} bytes"
                response = _error(413, reason, {"connection": "close"})
            elif scope["path"].startswith(_MODELS) and scope["path"] != _ALL_STATISTICS:
                response = await self._forward(Request(scope), body)
            else:
                response = await self._own(Request(scope), body)
        except ClientDisconnect:
            return  # a request that is being forwarded is cancelled too
        except HttpError as error:
            response = _error(error.status, str(error))
        except MigratorError as error:
            response = _error(503, str(error))
        await response(scope, receive, send)

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

    async def _forward(self, request: Request, body: bytes) -> Response:
        path: str = request.scope["path"]
        tenant = path[len(_MODELS) :].partition("/")[0]
        # the daemon does not see the original Host header
        if path.endswith(("/feedback", "/samples")):
            require_own_page(request, self._tokens)
        with DisconnectGuard(request):
            found = await self.forwarder.forward(tenant, _forwarded(request.scope, body))
        if isinstance(found, NotServed):
            return _error(found.status, found.reason, _RETRY if found.status == 503 else None)
        return _passed_on(found)

    async def _own(self, request: Request, body: bytes) -> Response:
        """Answer requests that are not forwarded."""
        path: str = request.scope["path"]
        if path in _CONSTANT:
            return _json(_CONSTANT[path])
        if path == "/v2/health/ready":
            return self._ready()
        if path == "/v2/repository/index":
            return await self._of_all(request, body)
        if path == _ALL_STATISTICS:
            return await self._of_all(request, body, "model_stats")
        if path in ("/cluster", "/cluster/map", "/metrics"):
            require_admin(request, self._tokens)
            return await self._administration(request, path)
        return _error(404, f"{path[:200]} is not part of a gateway; see /docs of a GPU's daemon")

    def _ready(self) -> Response:
        found = self._source.current
        if found.homes and not found.away:
            return _json({"ready": True})
        away = ", ".join(found.away) or "all tenants"
        return _error(503, f"not served now: {away}; try again in some seconds")

    async def _of_all(self, request: Request, body: bytes, key: str | None = None) -> Response:
        """The lists of all daemons in one; `key`: where the list is in the answer of each."""
        homes = self._source.current.homes
        replies = await self.forwarder.each(_forwarded(request.scope, body))
        refused = next((each for each in replies.values() if each.status != 200), None)
        if refused is not None:
            return _passed_on(refused)
        # during a move two daemons have the tenant: list it once, at the daemon that the map names
        answers = {url: msgspec.json.decode(reply.body) for url, reply in replies.items()}
        found = [
            each
            for url, answer in answers.items()
            for each in (answer if key is None else answer[key])
            if homes.get(each["name"]) == url
        ]
        return _json(found if key is None else {key: found})

    async def _administration(self, request: Request, path: str) -> Response:
        if path == "/cluster/map":
            return _json(self._source.current)
        if path == "/metrics":
            return Response(await self._metrics(), media_type="text/plain; version=0.0.4")
        found = await self._source.overview()
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(overview_page(found))
        return _json(found)

    async def _metrics(self) -> bytes:
        try:
            found = await self._source.overview()
        except MigratorError:  # the gateway's own metrics matter most in this case
            found = None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(ClusterMetrics(found, self.forwarder.counts, self._source))
        return generate_latest(registry)

    @property
    def _tokens(self) -> Tokens:
        return Tokens(admin=self._source.current.admin)


async def follow_map(source: MapSource) -> asyncio.Task[None]:
    """Fetch the map, and start the task that keeps it up to date."""
    await source.refresh()
    return asyncio.create_task(source.follow())


def _forwarded(scope: Scope, body: bytes) -> ForwardRequest:
    target: bytes = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    return ForwardRequest(scope["method"], target, scope["headers"], body)


def _passed_on(reply: Reply) -> Response:
    response = Response(reply.body, reply.status)
    headers = [
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers.items()
    ]
    response.raw_headers = [
        *(each for each in headers if each[0] not in _OWN),
        (b"content-length", b"%d" % len(reply.body)),
    ]
    return response


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


_RETRY = {"retry-after": "1"}


def _error(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    return _json({"error": reason}, status, headers)


_UP = ("up", "drained")


class ClusterMetrics(Collector):
    """Metric families of the gateway and the cluster."""

    def __init__(
        self, overview: Mapping[str, Any] | None, counts: ForwardCounts, source: MapSource
    ) -> None:
        """`overview`: status of the cluster; None if it is not available."""
        self._overview, self._counts, self._source = overview, counts, source

    def collect(self) -> Iterator[Metric]:
        yield from self._gateway()
        if self._overview is not None:
            yield from self._cluster(self._overview)

    def _gateway(self) -> Iterator[Metric]:
        yield counter(
            "migrator_gateway_requests",
            "Requests by tenant and status code of the answer; 0: no answer.",
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

    def _cluster(self, overview: Mapping[str, Any]) -> Iterator[Metric]:
        gpus = overview["gpus"]
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
            {
                (name, e["gpu"] or ""): e["state"] == "served"
                for name, e in overview["tenants"].items()
            },
        )
        yield counter(
            "migrator_cluster_moves",
            "Tenants that this head has moved from one GPU to another while both served.",
            [],
            {(): overview["moves"]},
        )
        yield gauge("migrator_cluster_epoch", "Of the head.", [], {(): overview["epoch"]})
