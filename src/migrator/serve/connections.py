"""What a connection may do before it is a request: few enough, fast enough, small enough.

The server itself waits for headers and bodies for ever and takes headers of any length.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from migrator.serve.leaving import client_left
from migrator.serve.limits import Limits
from migrator.serve.protocol import Problem


class GuardedConnection(HttpToolsProtocol):
    """One connection with its limits."""

    limits = Limits()

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._patience: asyncio.TimerHandle | None = None
        self._header_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Refuse it where there are too many."""
        super().connection_made(cast("asyncio.Transport", transport))
        if len(self.connections) > self.limits.connections:
            self._end(
                "503 Service Unavailable", "too many connections; try again later, or use fewer"
            )
        else:
            self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more is waited for, by us or by the client."""
        self._stop_waiting()
        if self.scope is not None:
            client_left(self.scope)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._header_bytes = 0
        self._wait_for_headers()

    def on_url(self, url: bytes) -> None:
        """Part of its address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Now its body is waited for."""
        self._stop_waiting()
        self._patience = self.loop.call_later(self.limits.body_s, self._too_slow)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """It is whole."""
        self._stop_waiting()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP."""
        self._end(
            "400 Bad Request", f"{msg.rstrip('.')}; send HTTP/1.1 with headers of modest size"
        )

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self.limits.header_bytes:
            raise ValueError("headers too large")  # the parser turns it into a 400

    def _wait_for_headers(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(self.limits.header_s, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _too_slow(self) -> None:
        cycle = self.cycle
        idle = cycle is None or cycle.response_complete
        if idle or (cycle.more_body and not cycle.response_started and not self.pipeline):
            self._end("408 Request Timeout", "the request did not come in time; send it at once")
        else:
            self.transport.close()  # something is being answered: nothing may go between

    def _end(self, status: str, reason: str) -> None:
        body = msgspec.json.encode(Problem(error=reason))
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()


def guarded(limits: Limits) -> type[asyncio.Protocol]:
    """The class of connections with these limits."""
    return type("GuardedConnection", (GuardedConnection,), {"limits": limits})
