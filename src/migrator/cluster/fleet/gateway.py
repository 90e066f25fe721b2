"""A gateway: the API of all tenants at one address; forwards each request to the serving GPU.

A gateway stores only the map, so any number of them can run side by side. Tokens, ids and bodies
pass through unchanged; requests never go through Ray.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

import migrator
from migrator.cluster.fleet.forwarding import (
    ForwardCounts,
    Forwarder,
    ForwardRequest,
    NotServed,
    Trust,
)
from migrator.cluster.fleet.map_source import MapSource
from migrator.core.errors import HttpError, MigratorError
from migrator.io.http_client import Reply
from migrator.serving.http.access import Tokens, require_admin, require_own_page
from migrator.serving.http.bodies import BodyBudget, require_length
from migrator.serving.http.metrics import counter, gauge
from migrator.serving.http.requests import ClientLimits, DisconnectGuard, headers_of

if TYPE_CHECKING:
    from migrator.serving.spans import Tracing

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
_OPEN = (*_CONSTANT, "/v2/health/ready")
"""Paths that reveal nothing; they need no token."""
_READY_S = 3.0
"""Seconds within which daemons have to say that they are ready."""
_RETRY = {"retry-after": "1"}
_UP = ("up", "drained")


class Gateway:
    """The ASGI application of a gateway."""

    def __init__(
        self,
        source: MapSource,
        limits: ClientLimits | None = None,
        tracing: Tracing | None = None,
        trust: Trust | None = None,
    ) -> None:
        """`tracing`: None forwards the trace context of a client unchanged."""
        self._source, self._limits = source, limits or ClientLimits()
        self._tracing = tracing
        self._bodies = BodyBudget(self._limits)
        self.forwarder = Forwarder(source, trust)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        request, path = Request(scope), scope["path"]
        try:
            if path not in _OPEN:
                # the daemon does not see the original Host header
                require_own_page(request, self._tokens)
            require_length(request, self._limits.body_bytes)
            with self._bodies.hold() as held:
                body = await held.receive(receive, self._limits.body_bytes)
                if path.startswith(_MODELS) and path != _ALL_STATISTICS:
                    response = await self._forward_in_trace(request, body)
                else:
                    response = await self._own(request, body)
        except ClientDisconnect:
            return  # a request that is being forwarded is cancelled too
        except HttpError as error:
            response = _refusal(error)
        except MigratorError as error:
            response = _error(503, str(error))
        await response(scope, receive, send)

    async def _forward_in_trace(self, request: Request, body: bytes) -> Response:
        if self._tracing is None:
            return await self._forward(request, body)
        tenant = request.scope["path"][len(_MODELS) :].partition("/")[0]
        with self._tracing.request("gateway", headers_of(request), tenant) as span:
            request.scope["headers"] = self._tracing.passed_on(request.scope["headers"])
            response = await self._forward(request, body)
            self._tracing.answered(span, response.status_code)
            return response

    async def _forward(self, request: Request, body: bytes) -> Response:
        path: str = request.scope["path"]
        tenant = path[len(_MODELS) :].partition("/")[0]
        with DisconnectGuard(request):
            answer = await self.forwarder.forward(tenant, _forwarded(request.scope, body))
        if isinstance(answer, NotServed):
            return _error(answer.status, answer.reason, _RETRY if answer.status == 503 else None)
        return _passed_on(answer)

    async def _own(self, request: Request, body: bytes) -> Response:
        """Answer requests that are not forwarded."""
        path: str = request.scope["path"]
        if path in _CONSTANT:
            return _json(_CONSTANT[path])
        if path == "/v2/health/ready":
            return await self._ready(request)
        if path == "/v2/repository/index":
            return await self._of_all(request, body)
        if path == _ALL_STATISTICS:
            return await self._of_all(request, body, "model_stats")
        if path in ("/cluster", "/cluster/map", "/metrics"):
            require_admin(request, self._tokens)
            return await self._administration(path)
        return _error(404, f"{path[:200]} is not part of a gateway; send it to a GPU's daemon")

    async def _ready(self, request: Request) -> Response:
        """200 if every tenant's daemon answers and at least one of the daemons is ready."""
        current, replies = self._source.current, {}
        with suppress(TimeoutError):
            async with asyncio.timeout(_READY_S):
                replies = await self.forwarder.each(_forwarded(request.scope, b""))
        away = [*current.away, *(name for name, url in current.homes.items() if url not in replies)]
        if not away and any(reply.status == 200 for reply in replies.values()):
            return _json({"ready": True})
        names = ", ".join(away) or "all tenants"
        return _error(503, f"not served now: {names}; try again in some seconds")

    async def _of_all(self, request: Request, body: bytes, key: str | None = None) -> Response:
        """The lists of all daemons in one; `key`: where the list is in the answer of each."""
        homes = self._source.current.homes
        replies = await self.forwarder.each(_forwarded(request.scope, body))
        refused = next((reply for reply in replies.values() if reply.status != 200), None)
        if refused is not None:
            return _passed_on(refused)
        # during a move two daemons have the tenant: list it once, at the daemon that the map names
        answers = {url: msgspec.json.decode(reply.body) for url, reply in replies.items()}
        entries = [
            entry
            for url, answer in answers.items()
            for entry in (answer if key is None else answer[key])
            if homes.get(entry["name"]) == url
        ]
        return _json(entries if key is None else {key: entries})

    async def _administration(self, path: str) -> Response:
        if path == "/cluster/map":
            return _json(self._source.current)
        if path == "/metrics":
            return Response(await self._metrics(), media_type="text/plain; version=0.0.4")
        return _json(await self._source.overview())

    async def _metrics(self) -> bytes:
        try:
            status = await self._source.overview()
        except MigratorError:  # the gateway's own metrics matter most in this case
            status = None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_ClusterMetrics(status, self.forwarder.counts, self._source))
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
        *(header for header in headers if header[0] not in _OWN),
        (b"content-length", b"%d" % len(reply.body)),
    ]
    return response


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def _refusal(error: HttpError) -> Response:
    headers = {"connection": "close"} if error.status == 413 else {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(error.retry_after_s)
    return _error(error.status, str(error), headers)


def _error(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    return _json({"error": reason}, status, headers)


class _ClusterMetrics(Collector):
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
            {(gpu["gpu"], gpu.get("node", "")): gpu["state"] in _UP for gpu in gpus},
        )
        yield counter(
            "migrator_cluster_daemon_restarts",
            "Times that the GPU's agent has started its daemon again.",
            ["gpu", "node"],
            {(gpu["gpu"], gpu.get("node", "")): gpu.get("restarts", 0) for gpu in gpus},
        )
        yield gauge(
            "migrator_cluster_tenant_served",
            "1 while some GPU serves the tenant, else 0.",
            ["tenant", "gpu"],
            {
                (name, tenant["gpu"] or ""): tenant["state"] == "served"
                for name, tenant in overview["tenants"].items()
            },
        )
        yield counter(
            "migrator_cluster_moves",
            "Tenants that this head has moved from one GPU to another while both served.",
            [],
            {(): overview["moves"]},
        )
        yield gauge("migrator_cluster_epoch", "Of the head.", [], {(): overview["epoch"]})
