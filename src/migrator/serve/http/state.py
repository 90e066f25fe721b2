"""The state of the API's application: what the daemon provides, settings, and recent requests."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client.registry import Collector
from starlette.requests import Request

from migrator.core.action import Acted, ActionKind
from migrator.serve.http.access_log import AccessLog
from migrator.serve.http.authentication import Tokens
from migrator.serve.http.metrics import RefusalMetrics, RouterMetrics
from migrator.serve.http.protocol import Offered, WindowNow
from migrator.serve.http.requests import Limits
from migrator.serve.router.router import Router

MAX_RECENT = 100_000
"""Requests that are kept, whatever their size: small ones have a cost of their own."""
ENTRY_BYTES = 700
"""Memory of an entry beside the contents of its arrays."""


@dataclass(frozen=True, eq=False)
class Feedback:
    """The true label of one row of inputs."""

    tenant: str
    window: int
    """The window in which the label arrived."""
    inputs: NDArray[Any]
    label: int
    predicted: int | None
    """The label that the model gave; None where it was not asked."""
    request_id: str
    """A label that is sent twice has the same id and counts once."""


@dataclass(frozen=True, eq=False)
class TenantChanges:
    """How tenants are added and removed on a GPU of a cluster, and the key that permits it."""

    admit: Callable[[object], Awaitable[str]]
    """Add a tenant, given as in a scenario."""
    dismiss: Callable[[str], Awaitable[str]]
    order_key: str


@dataclass(frozen=True, eq=False)
class Backend:
    """What the daemon provides to the API."""

    router: Router
    models: Mapping[str, Offered]
    feedback: Callable[[Feedback], Awaitable[None]]
    """Returns when the label is on disk."""
    version: Callable[[str], int | None]
    """The version of a tenant's model that serves now; None: none does yet."""
    window: Callable[[], WindowNow]
    status: Callable[[], Mapping[str, Any]]
    """For GET /admin/status."""
    act: Callable[[ActionKind, str | None, str], Awaitable[Acted]] | None = None
    """Carry out an operator's action for a tenant, requested by page, cli or api."""
    tenants: TenantChanges | None = None
    """None: this daemon is not part of a cluster."""


@dataclass(frozen=True, eq=False, slots=True)
class RecentRequest:
    """An answered request."""

    inputs: NDArray[Any]
    predicted: NDArray[np.int64]

    @property
    def held_bytes(self) -> int:
        """Memory that it keeps in use."""
        return self.inputs.nbytes + self.predicted.nbytes + ENTRY_BYTES


class RecentRequests:
    """The last answered requests of a tenant by id, within a limit of bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, RecentRequest] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, request_id: str, inputs: NDArray[Any], predicted: NDArray[np.int64]) -> None:
        """Keep a request, and drop the oldest ones beyond the limit."""
        if request_id in self._kept:
            self._bytes -= self._kept.pop(request_id).held_bytes
        self._kept[request_id] = RecentRequest(_owned(inputs), _owned(predicted))
        self._bytes += self._kept[request_id].held_bytes
        while self._bytes > self._limit_bytes or len(self._kept) > MAX_RECENT:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.held_bytes

    def find(self, request_id: str) -> RecentRequest | None:
        """The request; None if it is unknown or too old."""
        return self._kept.get(request_id)


def _owned(values: NDArray[Any]) -> NDArray[Any]:
    """A view would keep the array that it is a part of: a whole request body, or a batch."""
    return values if values.flags.owndata else values.copy()


@dataclass(frozen=True, eq=False)
class ApiState:
    """Everything that handlers use; `application` sets it as `app.state.api`."""

    backend: Backend
    tokens: Tokens = field(default_factory=Tokens)
    limits: Limits = field(default_factory=Limits)
    collectors: tuple[Collector, ...] = ()
    """Metrics beyond those of the router and the API."""
    access_log: AccessLog = field(default_factory=AccessLog)
    recent: defaultdict[str, RecentRequests] = field(init=False)
    """By tenant."""

    @property
    def all_collectors(self) -> tuple[Collector, ...]:
        """All metrics, in the order of the page."""
        own = (RouterMetrics(self.backend.router), RefusalMetrics(self.access_log))
        return (*own, *self.collectors)

    def __post_init__(self) -> None:
        limit = self.limits.recent_bytes
        object.__setattr__(self, "recent", defaultdict(lambda: RecentRequests(limit)))


def state_of(request: Request) -> ApiState:
    """The state of the application that got the request."""
    state: ApiState = request.app.state.api
    return state
