"""What every operation of the API shares: its state, its access rule, refusals, the access log.

One wrapper per route instead of a stack of ASGI middleware: it is on the path of every request.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from numpy.typing import NDArray
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from migrator.core.action import Acted, ActionKind
from migrator.core.errors import HttpError
from migrator.serving.http.access import Tokens, require_admin, require_own_page, require_tenant
from migrator.serving.http.bodies import BodyBudget, require_media_type
from migrator.serving.http.encoding import EncodingThread
from migrator.serving.http.metrics import ApiMetrics
from migrator.serving.http.protocol import ErrorAnswer, WindowNow
from migrator.serving.http.recent_requests import RecentRequests
from migrator.serving.http.requests import (
    REQUEST_ID_HEADER,
    ClientLimits,
    headers_of,
    request_id,
)
from migrator.serving.logs import LineLimiter
from migrator.serving.queue import Second
from migrator.serving.router import Router
from migrator.serving.workers.messages import ModelInterface

if TYPE_CHECKING:
    from migrator.serving.spans import Tracing

_LEVELS = {500: logging.ERROR, 507: logging.WARNING}
"""Levels of log lines by HTTP status, where they are not info; 507 is a full disk."""
MAX_REASON = 300
"""Characters of a refusal in the log."""
_access_log = logging.getLogger("migrator.serving.http.access_log")
Access = Literal["open", "any", "tenant", "admin"]
Handler = Callable[[Request], Awaitable[Response]]
_CLOSING = (408, 413)
"""After these the rest of the body is not read: the connection is closed."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Feedback:
    """The true label of one row of inputs."""

    tenant: str
    window: int
    """The window to which the label belongs: the one after it learns the label."""
    inputs: NDArray[Any]
    label: int | NDArray[Any]
    """A class, or a record of tensors."""
    predicted: int | None
    """The label that the model gave; None where it was not asked, or decides itself."""
    request_id: str
    """A label that is sent twice has the same id and counts once; another label is refused."""
    second: Second | None = None
    """In which the request arrived, if it was answered in time."""
    outputs: NDArray[Any] | None = None
    """The answer, where the model itself decides whether it is correct."""


@dataclass(frozen=True, eq=False)
class TenantChanges:
    """How tenants are added and removed."""

    admit: Callable[[object, str | None], Awaitable[str]]
    """Add a tenant, given as in a scenario. Paths in it are relative to the folder."""
    remove: Callable[[str], Awaitable[str]]
    load: Callable[[str, object | None], Awaitable[str]] | None = None
    """Add a removed tenant again, or one with this section; None: only a cluster's head does."""
    removed: Callable[[], Sequence[str]] = tuple
    """Tenants that can be loaded by name."""
    order_key: str | None = None
    """Requests must carry this key, which only the agent of a cluster has; None: administrators
    may change tenants."""


@dataclass(frozen=True, eq=False)
class Backend:
    """What the daemon provides to the API."""

    router: Router
    models: Mapping[str, ModelInterface]
    feedback: Callable[[Feedback], Awaitable[bool]]
    """Returns when the label is on disk: whether it is new. HttpError if it is not stored."""
    version: Callable[[str], int | None]
    """The version of a tenant's model that serves now; None: none does yet."""
    window: Callable[[], WindowNow]
    status: Callable[[], Mapping[str, Any]]
    """For GET /admin/status."""
    act: Callable[[ActionKind, str | None, str], Awaitable[Acted]] | None = None
    """Carry out an operator's action for a tenant, requested by page, cli or api."""
    tenants: TenantChanges | None = None
    """None: they stay as they are."""


class AccessLog:
    """One log line for every request that was refused, failed or late; none for the others.

    No body and no token is logged. A flood is logged with a few lines per second.
    """

    def __init__(self, lines: LineLimiter | None = None) -> None:
        self.refused: Counter[tuple[str, int]] = Counter()
        """By tenant and HTTP status; the tenant is "" where none or an unknown one was named."""
        self._lines = lines or LineLimiter()

    def refuse(self, request: Request, tenant: str, status: int, reason: str) -> None:
        self.refused[tenant, status] += 1
        id_, of_tenant = request_id(request), f" of {tenant}" if tenant else ""
        self._lines.log(
            _access_log,
            _LEVELS.get(status, logging.INFO),
            (tenant, status),
            f"request {id_}{of_tenant} refused with {status}: {reason[:MAX_REASON]}",
            request_id=id_,
            tenant=tenant,
            status=status,
            path=request.url.path[:200],
        )

    def late(self, request: Request, tenant: str, waited_s: float, served_s: float) -> None:
        id_ = request_id(request)
        self._lines.log(
            _access_log,
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
    limits: ClientLimits = field(default_factory=ClientLimits)
    collectors: tuple[Collector, ...] = ()
    """Metrics beyond those of the router and the API."""
    access_log: AccessLog = field(default_factory=AccessLog)
    recent: defaultdict[str, RecentRequests] = field(init=False)
    """By tenant."""
    bodies: BodyBudget = field(init=False)
    encoding: EncodingThread = field(default_factory=EncodingThread)

    @property
    def all_collectors(self) -> tuple[Collector, ...]:
        return (ApiMetrics(self.backend.router, self.access_log.refused), *self.collectors)

    def __post_init__(self) -> None:
        limit = self.limits.recent_bytes
        object.__setattr__(self, "recent", defaultdict(lambda: RecentRequests(limit)))
        object.__setattr__(self, "bodies", BodyBudget(self.limits))


def state_of(request: Request) -> ApiState:
    """The state of the application that got the request."""
    state: ApiState = request.scope["app"].api
    return state


@dataclass(frozen=True)
class Operation:
    """One operation of the API; its summary is the docstring of the handler."""

    method: Literal["GET", "POST"]
    paths: tuple[str, ...]
    handler: Handler
    access: Access = "open"
    answer: Any = dict[str, Any]
    """The type of its answer."""
    body: type[msgspec.Struct] | None = None
    media_type: str = "application/json"
    """Of its answer."""
    binary: bool = True
    """Whether tensor data may follow the JSON of the body."""
    typed: bool = True
    """Whether JSON alone must come with its content type. Triton's clients send some without."""
    headers: tuple[str, ...] = ()


class GuardedOperation:
    """An operation behind its access rule, as an ASGI application for one route.

    Nothing that its handler raises gets to the server.
    """

    def __init__(self, operation: Operation) -> None:
        self._handler, self._access = operation.handler, operation.access
        self._json_only = operation.body is not None and not operation.binary
        self._traced = operation.access == "tenant"
        self._missing = "" if operation.typed else "application/json"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            _authorize(request, self._access)
            if self._json_only:  # other types may come from a page of another site
                require_media_type(request, "application/json", missing=self._missing)
            tracing = state_of(request).backend.router.tracing
            if tracing is None or not self._traced:
                response = await self._handler(request)
            else:
                response = await self._trace(tracing, request)
        except Exception as error:
            response = _refusal(request, error)
        response.headers[REQUEST_ID_HEADER] = request_id(request)
        await response(scope, receive, send)

    async def _trace(self, tracing: Tracing, request: Request) -> Response:
        """Answer within a span. Requests without the tenant's token do not get here."""
        name, tenant = self._handler.__name__, request.path_params["name"]
        with tracing.request(name, headers_of(request), tenant) as span:
            try:
                response = await self._handler(request)
            except Exception as error:
                response = _refusal(request, error)
            tracing.answered(span, response.status_code, request_id(request))
            return response


def _refusal(request: Request, error: Exception) -> Response:
    if isinstance(error, HttpError):
        response = _refuse(request, error.status, str(error))
        if error.retry_after_s is not None:
            response.headers["retry-after"] = str(error.retry_after_s)
        return response
    if isinstance(error, ClientDisconnect):
        return _refuse(request, 400, "body: the client disconnected; send it again")
    id_, path = request_id(request), request.url.path[:200]
    _log.error("request %s: %s %s: %r", id_, request.method, path, error, extra={"request_id": id_})
    return _refuse(request, 500, "internal error; see the server's log, or try again")


def _authorize(request: Request, access: str) -> None:
    tokens = state_of(request).tokens
    if access == "any":
        require_own_page(request, tokens)
        tokens.holder(request)
    elif access == "tenant":
        require_own_page(request, tokens)
        require_tenant(request, tokens, request.scope["path_params"]["name"])
    elif access == "admin":
        require_admin(request, tokens)


def _refuse(request: Request, status: int, reason: str) -> Response:
    state = state_of(request)
    name = request.path_params.get("name", "")
    tenant = name if name in state.backend.models else ""
    state.access_log.refuse(request, tenant, status, reason)
    return refusal_response(status, reason)


async def refuse_unknown_route(request: Request, error: Exception) -> Response:
    """The answer for a path or method that does not exist."""
    assert isinstance(error, HTTPException)
    route = f"{request.method} {request.url.path[:200]}"
    response = refusal_response(
        error.status_code, f"{route} is not part of the API; see /openapi.json"
    )
    response.headers.update(error.headers or {})
    return response


def json_response(value: Any) -> Response:
    """Anything that msgspec encodes."""
    return Response(msgspec.json.encode(value), media_type="application/json")


def refusal_response(status: int, reason: str) -> Response:
    """The answer to a request that is refused."""
    headers = {"connection": "close"} if status in _CLOSING else {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    body = msgspec.json.encode(ErrorAnswer(error=reason))
    return Response(body, status, headers, "application/json")
