"""The asynchronous HTTP client: many connections to one server, one request at a time on each.

Connections are opened on demand and kept, and a request costs a few tens of microseconds.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

import httptools

from migrator.io.http_client import NoAnswerError, Reply, address_of, certificate_trouble


class Connection(asyncio.Protocol):
    """One connection. The response goes to the future of its request."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Reply] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self.open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending request, because the connection was closed."""
        self.open = False
        self._fail("the connection was closed" if exc is None else "the connection broke")

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail("the answer is no HTTP")
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        reply = Reply(self._parser.get_status_code(), self._headers, b"".join(self._body))
        if not self._parser.should_keep_alive():
            self.close()
        self._headers, self._body = {}, []
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)

    def send(self, request: bytes) -> asyncio.Future[Reply]:
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiting

    def close(self) -> None:
        """Close at once: under TLS, without waiting for the server's closing message."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(NoAnswerError(reason))


class HttpPool:
    """Connections to one server, opened on demand and reused."""

    def __init__(
        self,
        url: str,
        *,
        most: int = 512,
        timeout_s: float = 30.0,
        context: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> None:
        """`context`: what is trusted of a server with TLS; None: the CAs of the system.
        `server_name`: in its certificate, where that is not the host."""
        self._address = address_of(url)
        secure, self._server_name = self._address.secure, server_name
        self._context = (context or ssl.create_default_context()) if secure else None
        self._timeout_s = timeout_s
        self._places = asyncio.Semaphore(most)
        self._idle: deque[Connection] = deque()

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Reply:
        """The response to one request; NoAnswerError if none arrives in time."""
        request = self._written(method, path, body, headers or {})
        try:
            async with asyncio.timeout(self._timeout_s), self._places:
                return await self._asked(request)
        except TimeoutError:
            raise NoAnswerError("no answer in time") from None
        except OSError as error:
            # for a name with several addresses the error has no number
            refused = isinstance(error, ConnectionRefusedError) or "refused" in str(error).lower()
            why = certificate_trouble(error) or "no connection"
            raise NoAnswerError("connection refused" if refused else why) from error

    def close(self) -> None:
        """Close idle connections. No request may follow."""
        while self._idle:
            self._idle.pop().close()

    async def _asked(self, request: bytes) -> Reply:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                # a server may close an idle connection just as it is reused: retry once
                with suppress(NoAnswerError):
                    return await self._over(connection, request)
                break
        return await self._over(await self._opened(), request)

    async def _over(self, connection: Connection, request: bytes) -> Reply:
        try:
            reply = await connection.send(request)
        except BaseException:
            connection.close()  # a late response would be taken for that of the next request
            raise
        if connection.open:
            self._idle.append(connection)
        return reply

    async def _opened(self) -> Connection:
        loop = asyncio.get_running_loop()
        address, context = self._address, self._context
        _, connection = await loop.create_connection(
            *(Connection, address.host, address.port),
            ssl=context,
            server_hostname=(self._server_name or address.host) if context else None,
        )
        return connection

    def _written(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        lines = [
            f"{method} {self._address.path}{path} HTTP/1.1",
            f"Host: {self._address.authority}",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
