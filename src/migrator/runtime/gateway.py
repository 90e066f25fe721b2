"""The API in front of a daemon: what it is told of tenants, and its server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from migrator.runtime.serving import Serving
from migrator.runtime.tenant_run import TenantRun
from migrator.runtime.window_clock import WindowClock
from migrator.serve.api import application
from migrator.serve.assignment import InputKind
from migrator.serve.backend import Backend, Feedback
from migrator.serve.limits import Limits
from migrator.serve.line import Served
from migrator.serve.protocol import WindowNow
from migrator.serve.router import Router
from migrator.serve.server import ApiServer
from migrator.serve.tensors import Offered


def router_of(serving: Serving) -> Router:
    """A line for every tenant."""
    limit = serving.live.live.queue_limit
    return Router(
        {
            each.name: Served(each.name, each.service.slo_s, each.service.batch, limit)
            for each in serving.live.tenants
        }
    )


def server_of(
    serving: Serving,
    router: Router,
    tenants: Mapping[str, TenantRun],
    inputs: Mapping[str, InputKind],
    clock: WindowClock,
    labelled: Callable[[Feedback], Awaitable[None]],
    status: Callable[[], Mapping[str, Any]],
) -> ApiServer:
    """The API; not listening yet."""
    live, models = serving.live.live, serving.models

    def version(name: str) -> int:
        known = tenants[name].version
        return known.number if known else 0

    limits = Limits(body_bytes=round(live.max_body_mib * 2**20), connections=live.connections)
    backend = Backend(
        router,
        {name: _offered(name, inputs[name], models[name].classes) for name in tenants},
        labelled,
        version,
        lambda: WindowNow(clock.number, clock.into_s, clock.window_s),
        status,
        serving.tokens,
        limits,
    )
    return ApiServer(
        application(backend), tokens=serving.tokens, host=live.host, port=live.port, limits=limits
    )


def _offered(name: str, kind: InputKind, classes: int) -> Offered:
    return Offered(name, kind.datatype, kind.shape, classes, kind.values)
