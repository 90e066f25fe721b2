"""Requests on their way to the daemon that serves their tenant, over connections that stay open.

A daemon that is not there, or does not have the tenant any more, means that the map is stale: it
is asked for again, and the request goes once more where that names another place. Inference has no
effect but its answer, and a label counts once however often it is sent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from migrator.agents.map_source import MapSource
from migrator.agents.reports import ClusterMap
from migrator.load.http import Connection, HttpPool, NoAnswerError, Reply

Headers = Iterable[tuple[bytes, bytes]]

UPSTREAM_S = 60.0
_STALE = (404, 503)
"""What a daemon answers that does not have the tenant, or lets go of it."""
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
    )
)
"""Headers of one connection, not of the request."""


class Upstream(HttpPool):
    """Connections to one daemon."""

    def __init__(self, url: str) -> None:
        super().__init__(url, timeout_s=UPSTREAM_S)
        self._head = f"\r\nhost: {self._address.authority}\r\ncontent-length: ".encode()
        self._busy: set[Connection] = set()
        self._closed = False

    async def forward(self, method: str, target: bytes, headers: Headers, body: bytes) -> Reply:
        """The daemon's answer; NoAnswerError where there is none."""
        parts = [method.encode(), b" ", target, b" HTTP/1.1", self._head, b"%d" % len(body)]
        for name, value in headers:
            if name not in _OURS:
                parts += (b"\r\n", name, b": ", value)
        parts += (b"\r\n\r\n", body)
        try:
            async with asyncio.timeout(self._timeout_s), self._places:
                return await self._asked(b"".join(parts))
        except TimeoutError:
            raise NoAnswerError("no answer in time") from None
        except OSError as error:
            raise NoAnswerError("no connection") from error

    def close(self) -> None:
        """Nobody waits any longer for a daemon that is gone."""
        self._closed = True
        super().close()
        for each in list(self._busy):
            each.close()

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
class NoHome:
    """Nobody serves the tenant now."""

    status: int
    reason: str


@dataclass
class Forwarded:
    """What became of requests, for metrics."""

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By tenant and status; 0: nobody answered."""
    again: Counter[str] = field(default_factory=Counter)
    """By tenant: sent once more as the map was stale."""


class Forwarder:
    """Knows the map and holds the connections."""

    def __init__(self, source: MapSource) -> None:
        self._source = source
        self._upstreams: dict[str, Upstream] = {}
        self.counts = Forwarded()
        source.changed = self._renew

    async def forward(
        self, tenant: str, method: str, target: bytes, headers: Headers, body: bytes
    ) -> Reply | NoHome:
        """The answer of whoever serves the tenant."""
        url = self._source.current.homes.get(tenant)
        found = None if url is None else await self._sent(url, method, target, headers, body)
        if found is None or found.status in _STALE:
            await self._source.refresh()
            newer = self._source.current.homes.get(tenant)
            if newer is not None and newer != url:
                self.counts.again[tenant] += 1
                found = await self._sent(newer, method, target, headers, body) or found
        known = tenant if url is not None else ""
        self.counts.answers[known, 0 if found is None else found.status] += 1
        return self._nobody(tenant) if found is None else found

    async def each(self, method: str, target: bytes, headers: Headers, body: bytes) -> list[Reply]:
        """What every daemon answers that serves somebody."""
        urls = dict.fromkeys(self._source.current.homes.values())
        kept = list(headers)
        found = await asyncio.gather(
            *(self._sent(each, method, target, kept, body) for each in urls)
        )
        return [each for each in found if each is not None]

    def close(self) -> None:
        """Let go of every connection."""
        for each in self._upstreams.values():
            each.close()
        self._upstreams.clear()

    async def _sent(
        self, url: str, method: str, target: bytes, headers: Headers, body: bytes
    ) -> Reply | None:
        upstream = self._upstreams.get(url)
        if upstream is None:
            upstream = self._upstreams[url] = Upstream(url)
        try:
            return await upstream.forward(method, target, headers, body)
        except NoAnswerError:
            return None

    def _nobody(self, tenant: str) -> NoHome:
        found = self._source.current
        if tenant in found.away:
            return NoHome(503, f"{tenant}: {found.away[tenant]}; try again in some seconds")
        if tenant in found.homes:
            return NoHome(503, f"{tenant}: its GPU does not answer; try again in some seconds")
        known = ", ".join([*found.homes, *found.away]) or "nobody yet"
        return NoHome(404, f"model: there is no {tenant[:80]}; ask for one of {known}")

    def _renew(self, found: ClusterMap) -> None:
        """Daemons that have gone keep nobody waiting; those that let a tenant go answer still."""
        there = {*found.homes.values(), *found.pages.values()}
        for url in [each for each in self._upstreams if each not in there]:
            self._upstreams.pop(url).close()
