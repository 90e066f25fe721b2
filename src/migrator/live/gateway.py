"""The API in front of a daemon: what it is told of tenants, and its server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from prometheus_client.registry import Collector
from starlette.requests import Request

from migrator.core.action import Acted, ActionKind
from migrator.dashboard.routes import Dashboard
from migrator.dashboard.source import Source
from migrator.live.serving import Serving
from migrator.live.tenant_run import TenantRun
from migrator.live.window_clock import WindowClock
from migrator.policies.policy import Routing
from migrator.policies.registry import policy
from migrator.serve.api import application
from migrator.serve.assignment import InputKind
from migrator.serve.backend import Backend, Feedback, TenantChanges
from migrator.serve.limits import Limits
from migrator.serve.line import Served
from migrator.serve.origin import require_own_page
from migrator.serve.protocol import WindowNow
from migrator.serve.router import Router
from migrator.serve.server import ApiServer, affordable
from migrator.serve.tensors import Offered
from migrator.workload.live import LiveTenant


def router_of(serving: Serving) -> Router:
    """A line for every tenant."""
    return Router({each.name: line_of(serving, each) for each in serving.live.tenants})


def line_of(serving: Serving, tenant: LiveTenant) -> Served:
    """How a tenant's requests wait, and for how long at most."""
    thrifty = policy(serving.live.scenario.policy).routing is Routing.THRIFTY
    service, limit = tenant.service, serving.live.live.queue_limit
    return Served(tenant.name, service.slo_s, service.batch, limit, thrifty)


def limits_of(serving: Serving) -> Limits:
    """What clients may ask of it, within the open files this process may have."""
    live = serving.live.live
    return affordable(
        Limits(body_bytes=round(live.max_body_mib * 2**20), connections=live.connections)
    )


def server_of(
    serving: Serving,
    limits: Limits,
    router: Router,
    tenants: Mapping[str, TenantRun],
    models: Mapping[str, Offered],
    clock: WindowClock,
    labelled: Callable[[Feedback], Awaitable[None]],
    status: Callable[[], Mapping[str, Any]],
    act: Callable[[ActionKind, str | None, str], Awaitable[Acted]],
    collectors: tuple[Collector, ...],
    admit: Callable[[object], Awaitable[str]],
    dismiss: Callable[[str], Awaitable[str]],
) -> ApiServer:
    """The API; not listening yet."""
    live = serving.live.live

    def version(name: str) -> int:
        known = tenants[name].version
        return known.number if known else 0

    backend = Backend(
        router,
        models,
        labelled,
        version,
        lambda: WindowNow(clock.number, clock.into_s, clock.window_s),
        status,
        serving.tokens,
        limits,
        collectors,
        act=act,
        tenants=TenantChanges(admit, dismiss, serving.order_key) if serving.reader else None,
    )
    page = _page(serving, backend)
    return ApiServer(
        application(backend, page.routes()),
        tokens=serving.tokens,
        host=live.host,
        port=live.port,
        limits=limits,
        closing=page.close,
    )


def _page(serving: Serving, backend: Backend) -> Dashboard:
    """The live page: what it shows is for the administration alone."""

    def allow(request: Request) -> None:
        require_own_page(request, serving.tokens)
        backend.require_admin(request)

    source = Source(serving.live.scenario.name, serving.records)
    return Dashboard([source], allow=allow, needs_token=serving.tokens.configured, acts=True)


def offered(name: str, kind: InputKind, classes: int) -> Offered:
    """A model as the API describes it."""
    return Offered(name, kind.datatype, kind.shape, classes, kind.values)
