"""Forwarding of requests to the daemon that serves their tenant.

If a daemon is unreachable or does not have the tenant, the map is stale: the gateway fetches it
again, and repeats the request if the new map names another daemon. Inference has no effect besides
its answer, and a label with an id counts once however often it is sent. A label without an id could
be stored twice, so it is repeated only if no daemon can have received it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from migrator.cluster.fleet.cluster_map import ClusterMap
from migrator.cluster.fleet.map_source import MapSource
from migrator.core.errors import MigratorError
from migrator.io.http_client import NoAnswerError, Reply, certificate_trouble, warn_if_clear
from migrator.io.http_pool import Connection, HttpPool
from migrator.io.tls import trusting

Headers = Sequence[tuple[bytes, bytes]]
UPSTREAM_S = 620.0
"""Seconds; longer than any request may take. A daemon that leaves the map is not waited for."""
CONNECT_S = 2.0
"""Seconds to connect: a machine without power does not refuse the connection."""
_MAYBE_KEPT = (
    "its GPU went before it answered, and the label may be kept; send it again with an id, then it "
    "counts once"
)
_STALE = (404, 503)
"""Status codes of a daemon that does not have the tenant, or is releasing it."""
_OURS = frozenset(
    (
        b"host",
        b"connection",
        b"keep-alive",
        b"content-length",
        b"transfer-encoding",
        b"te",
        b"trailer",
        b"upgrade",
        b"expect",
        b"proxy-connection",
        b"proxy-authorization",
    )
)
"""Headers of one connection, which are not forwarded."""
_log = logging.getLogger(__name__)
_LABELS, _JSON_LENGTH = (b"/feedback", b"/samples"), b"inference-header-content-length"


class _Label(msgspec.Struct):
    id: str = ""


_LABEL = msgspec.json.Decoder(_Label)


class MaybeDoneError(MigratorError):
    """The request was sent and not answered: it may have been executed."""


@dataclass(frozen=True)
class ForwardRequest:
    """One request to forward."""

    method: str
    target: bytes
    headers: Headers
    body: bytes

    def written(self, head: bytes) -> bytes:
        """The request as bytes; `head`: the part that begins with the host header."""
        # a response to HEAD has a length but no body, so the client could not find its end
        method = "GET" if self.method == "HEAD" else self.method
        parts = [method.encode(), b" ", self.target, b" HTTP/1.1", head, b"%d" % len(self.body)]
        for name, value in self.headers:
            if name not in _OURS:
                parts += (b"\r\n", name, b": ", value)
        return b"".join((*parts, b"\r\n\r\n", self.body))

    @property
    def repeatable(self) -> bool:
        """Whether executing the request twice has the same effect as once."""
        return not self.target.partition(b"?")[0].endswith(_LABELS) or self._has_id()

    def _has_id(self) -> bool:
        length = dict(self.headers).get(_JSON_LENGTH, b"")
        # int() raises beyond some thousand digits; the daemon refuses such a length
        label = self.body[: int(length)] if length.isdigit() and len(length) < 19 else self.body
        try:
            return bool(_LABEL.decode(label).id)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return True  # the daemon refuses it, however often it is sent


@dataclass(frozen=True)
class Trust:
    """How certificates of daemons are verified."""

    context: ssl.SSLContext = field(default_factory=lambda: trusting(None))
    server_name: str | None = None
    """In their certificates; None: the address of each."""


class Upstream(HttpPool):
    """Connection pool of one daemon."""

    def __init__(self, url: str, trust: Trust) -> None:
        super().__init__(
            url, timeout_s=UPSTREAM_S, context=trust.context, server_name=trust.server_name
        )
        self._head = f"\r\nhost: {self._address.authority}\r\ncontent-length: ".encode()
        self._busy: set[Connection] = set()
        self._closed = False

    async def forward(self, request: ForwardRequest) -> Reply:
        """Return the daemon's answer.

        Raises NoAnswerError if there is none, MaybeDoneError if the request may have been executed.
        """
        written = request.written(self._head)
        try:
            async with asyncio.timeout(self._timeout_s), self._places:
                if request.repeatable:
                    return await self._asked(written)
                return await self._once(written)
        except TimeoutError:
            late = NoAnswerError if request.repeatable else MaybeDoneError
            raise late("no answer in time") from None
        except OSError as error:
            if trouble := certificate_trouble(error):
                _log.warning("%s: %s", self._address.authority, trouble)
            raise NoAnswerError("no connection") from error

    def close(self) -> None:
        """Close all connections, also those that wait for an answer of the daemon."""
        self._closed = True
        super().close()
        for connection in list(self._busy):
            connection.close()

    async def _once(self, written: bytes) -> Reply:
        """Send over a new connection: an old one may be closed just as it is used."""
        connection = await self._opened()
        try:
            return await self._over(connection, written)
        except NoAnswerError as error:
            raise MaybeDoneError(str(error)) from error

    async def _opened(self) -> Connection:
        try:
            async with asyncio.timeout(CONNECT_S):
                return await super()._opened()
        except TimeoutError:
            raise NoAnswerError("no connection in time") from None

    async def _over(self, connection: Connection, request: bytes) -> Reply:
        if self._closed:
            connection.close()
            raise NoAnswerError("the daemon is gone")
        self._busy.add(connection)
        try:
            return await super()._over(connection, request)
        finally:
            self._busy.discard(connection)


@dataclass(frozen=True)
class NotServed:
    """No GPU serves the tenant now."""

    status: int
    reason: str


@dataclass
class ForwardCounts:
    """Counts of forwarded requests, for metrics."""

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By tenant and status; 0: no answer."""
    again: Counter[str] = field(default_factory=Counter)
    """By tenant: repeated because the map was stale."""


class Forwarder:
    """Forwards requests according to the map and holds the connections."""

    def __init__(self, source: MapSource, trust: Trust | None = None) -> None:
        self._source, self._trust = source, trust or Trust()
        self._upstreams: dict[str, Upstream] = {}
        self.counts = ForwardCounts()
        source.changed = self._renew

    async def forward(self, tenant: str, request: ForwardRequest) -> Reply | NotServed:
        """Return the answer of the daemon that serves the tenant."""
        url = self._source.current.homes.get(tenant)
        reply: Reply | NotServed | None = None
        try:
            reply = None if url is None else await self._send(url, request)
            if reply is None or reply.status in _STALE:
                reply = await self._retry(tenant, url, request) or reply
                if reply and reply.status == 404 and not await self._has(tenant, request):
                    reply = None
        except MaybeDoneError:
            reply = NotServed(503, _MAYBE_KEPT)
        current, status = self._source.current, reply.status if isinstance(reply, Reply) else 0
        has_tenant = tenant in current.homes or tenant in current.away
        self.counts.answers[tenant if has_tenant else "", status] += 1
        return self._not_served(tenant) if reply is None else reply

    async def _retry(self, tenant: str, url: str | None, request: ForwardRequest) -> Reply | None:
        """Repeat the request if a newer map names another daemon."""
        await self._source.refresh()
        newer = self._source.current.homes.get(tenant)
        if newer is None or newer == url:
            return None
        self.counts.again[tenant] += 1
        return await self._send(newer, request)

    async def _has(self, tenant: str, request: ForwardRequest) -> bool:
        """Whether the daemon in the map has the tenant: a 404 may be about a label's id."""
        url = self._source.current.homes.get(tenant)
        if url is None:
            return False
        model = b"/".join(request.target.partition(b"?")[0].split(b"/")[:4])
        reply = await self._send(url, ForwardRequest("GET", model, request.headers, b""))
        return reply is not None and reply.status != 404

    async def each(self, request: ForwardRequest) -> dict[str, Reply]:
        """Send the request to every daemon with tenants; return address -> answer."""
        urls = list(dict.fromkeys(self._source.current.homes.values()))
        replies = await asyncio.gather(*(self._send(url, request) for url in urls))
        return {url: reply for url, reply in zip(urls, replies, strict=True) if reply is not None}

    def close(self) -> None:
        for upstream in self._upstreams.values():
            upstream.close()
        self._upstreams.clear()

    async def _send(self, url: str, request: ForwardRequest) -> Reply | None:
        upstream = self._upstreams.get(url)
        if upstream is None:
            upstream = self._upstreams[url] = Upstream(url, self._trust)
            if self._source.current.admin is not None:
                await asyncio.to_thread(warn_if_clear, url)  # it may look up a name
        try:
            return await upstream.forward(request)
        except NoAnswerError:
            return None

    def _not_served(self, tenant: str) -> NotServed:
        current = self._source.current
        if tenant in current.away:
            return NotServed(503, f"{tenant}: {current.away[tenant]}; try again in some seconds")
        if tenant in current.homes:
            return NotServed(
                503, f"{tenant}: its GPU does not answer for it; try again in some seconds"
            )
        tenants = ", ".join([*current.homes, *current.away]) or "none yet"
        return NotServed(404, f"model: there is no {tenant[:80]}; ask for one of {tenants}")

    def _renew(self, newer: ClusterMap) -> None:
        """Close connections to daemons that left the cluster; those without tenants stay open."""
        urls = {*newer.homes.values(), *newer.pages.values()}
        for url in [upstream for upstream in self._upstreams if upstream not in urls]:
            self._upstreams.pop(url).close()
