"""What the API needs from the daemon: the router, and a few things only the daemon knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray
from prometheus_client.registry import Collector
from starlette.requests import Request

from migrator.core.action import Acted, ActionKind
from migrator.serve.access_log import AccessLog
from migrator.serve.limits import Limits, header_of
from migrator.serve.protocol import WindowNow
from migrator.serve.refusals import NotFoundError
from migrator.serve.router import Router
from migrator.serve.tensors import Offered
from migrator.serve.tokens import Holder, Tokens


@dataclass(frozen=True, eq=False)
class Feedback:
    """The true label of one row of inputs."""

    tenant: str
    window: int
    """The one in which the label came."""
    inputs: NDArray[Any]
    label: int
    predicted: int | None
    """What the model had said; None where nobody asked it."""
    request_id: str
    """The same label sent twice has the same; it counts once."""


@dataclass(frozen=True, eq=False)
class TenantChanges:
    """How tenants are added and removed on a GPU of a cluster, and the key that permits it."""

    admit: Callable[[object], Awaitable[str]]
    """Add a tenant, given as scenarios have it."""
    dismiss: Callable[[str], Awaitable[str]]
    order_key: str


@dataclass(frozen=True, eq=False)
class Backend:
    """What is behind the API."""

    router: Router
    models: Mapping[str, Offered]
    feedback: Callable[[Feedback], Awaitable[None]]
    """Returns when the label is on disk."""
    version: Callable[[str], int | None]
    """Of the model that answers a tenant's requests now; None: none does yet."""
    window: Callable[[], WindowNow]
    status: Callable[[], Mapping[str, Any]]
    """The daemon's state, for GET /admin/status."""
    tokens: Tokens = field(default_factory=Tokens)
    limits: Limits = field(default_factory=Limits)
    collectors: tuple[Collector, ...] = ()
    """Metrics beyond the router's."""
    act: Callable[[ActionKind, str | None, str], Awaitable[Acted]] | None = None
    """Do that, for that tenant, asked by page, cli or api; None: nothing can be done here."""
    tenants: TenantChanges | None = None
    """How tenants are added and removed; None: this daemon is not part of a cluster."""
    access: AccessLog = field(default_factory=AccessLog)

    def holder(self, request: Request) -> Holder:
        """Whose token came with it."""
        return self.tokens.holder(header_of(request, "authorization"))

    def asked_of(self, request: Request) -> str:
        """The tenant in the path; "" where there is none of that name."""
        name = request.path_params.get("name", "")
        return name if name in self.models else ""

    def model(self, request: Request) -> Offered:
        """The model in the path, if it is there and for whoever asks."""
        name = request.path_params["name"]
        self.tokens.require_tenant(header_of(request, "authorization"), name)
        if name not in self.models:
            raise NotFoundError(
                f"model: there is no {name[:80]}; ask for one of {', '.join(self.models)}"
            )
        wanted, serving = request.path_params.get("version"), self.version(name)
        if wanted is not None and wanted != str(serving):
            raise NotFoundError(
                f"version: {name} has no version {wanted[:80]} now but {serving}; ask without one"
            )
        return self.models[name]

    def require_admin(self, request: Request) -> None:
        """Only with the token for administration."""
        self.tokens.require_admin(header_of(request, "authorization"))
