"""The state of the API's application: what the daemon provides, settings, recent requests, log."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from prometheus_client.registry import Collector
from starlette.requests import Request

from migrator.core.action import Acted, ActionKind
from migrator.serve.http.authentication import Tokens
from migrator.serve.http.metrics import ApiMetrics
from migrator.serve.http.protocol import ModelInterface, WindowNow
from migrator.serve.http.requests import Limits, request_id
from migrator.serve.logs import LineLimiter
from migrator.serve.router.router import Router

MAX_RECENT = 100_000
"""Requests that are kept, whatever their size: small ones have a cost of their own."""
ENTRY_BYTES = 700
"""Memory of an entry beside the contents of its arrays."""
MAX_REASON = 300
"""Characters of a refusal in the log."""

_log = logging.getLogger("migrator.serve.http.access_log")


@dataclass(frozen=True, eq=False)
class Feedback:
    """The true label of one row of inputs."""

    tenant: str
    window: int
    """The window to which the label belongs: the one after it learns the label."""
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
    models: Mapping[str, ModelInterface]
    feedback: Callable[[Feedback], Awaitable[bool]]
    """Returns when the label is on disk: whether it is new."""
    version: Callable[[str], int | None]
    """The version of a tenant's model that serves now; None: none does yet."""
    window: Callable[[], WindowNow]
    status: Callable[[], Mapping[str, Any]]
    """For GET /admin/status."""
    act: Callable[[ActionKind, str | None, str], Awaitable[Acted]] | None = None
    """Carry out an operator's action for a tenant, requested by page, cli or api."""
    tenants: TenantChanges | None = None
    """None: this daemon is not part of a cluster."""


class RecentRequest(NamedTuple):
    """An answered request."""

    inputs: NDArray[Any]
    predicted: list[int]
    """The label of each row."""
    held_bytes: int


class RecentRequests:
    """The last answered requests of a tenant by id, within a limit of bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes, self._bytes = limit_bytes, 0
        self._kept: OrderedDict[str, RecentRequest] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, request_id: str, inputs: NDArray[Any], predicted: list[int]) -> None:
        """Keep a request, and drop the oldest ones beyond the limit."""
        kept = self._kept
        if request_id in kept:
            self._bytes -= kept.pop(request_id).held_bytes
        if isinstance(inputs.base, np.ndarray):
            inputs = inputs.copy()  # a view would keep the whole array that it is a part of
        held_bytes = inputs.nbytes + 8 * len(predicted) + ENTRY_BYTES
        kept[request_id] = RecentRequest(inputs, predicted, held_bytes)
        self._bytes += held_bytes
        while self._bytes > self._limit_bytes or len(kept) > MAX_RECENT:
            self._bytes -= kept.popitem(last=False)[1].held_bytes

    def find(self, request_id: str) -> RecentRequest | None:
        """The request; None if it is unknown or too old."""
        return self._kept.get(request_id)


class AccessLog:
    """One log line for every request that was refused, failed or late; none for the others.

    No body and no token is logged. A flood is logged with a few lines per second.
    """

    def __init__(self, lines: LineLimiter | None = None) -> None:
        self.refused: Counter[tuple[str, int]] = Counter()
        """By tenant and HTTP status; the tenant is "" where none or an unknown one was named."""
        self._lines = lines or LineLimiter()

    def refuse(self, request: Request, tenant: str, status: int, reason: str) -> None:
        """Record a refusal."""
        self.refused[tenant, status] += 1
        id_, of_tenant = request_id(request), f" of {tenant}" if tenant else ""
        self._lines.log(
            _log,
            logging.ERROR if status == 500 else logging.INFO,
            (tenant, status),
            f"request {id_}{of_tenant} refused with {status}: {reason[:MAX_REASON]}",
            request_id=id_,
            tenant=tenant,
            status=status,
            path=request.url.path[:200],
        )

    def late(self, request: Request, tenant: str, waited_s: float, served_s: float) -> None:
        """Record an answer after its deadline."""
        id_ = request_id(request)
        self._lines.log(
            _log,
            logging.INFO,
            (tenant, "late"),
            f"request {id_} of {tenant} answered late: it waited {1e3 * waited_s:.0f} ms and took "
            f"{1e3 * served_s:.0f} ms",
            request_id=id_,
            tenant=tenant,
            status=200,
            waited_s=round(waited_s, 4),
            served_s=round(served_s, 4),
        )


@dataclass(frozen=True, eq=False)
class ApiState:
    """Everything that handlers use; the application has it as `api`."""

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
        return (ApiMetrics(self.backend.router, self.access_log.refused), *self.collectors)

    def __post_init__(self) -> None:
        limit = self.limits.recent_bytes
        object.__setattr__(self, "recent", defaultdict(lambda: RecentRequests(limit)))


def state_of(request: Request) -> ApiState:
    """The state of the application that got the request."""
    state: ApiState = request.scope["app"].api
    return state
