"""What a connection may do: few enough, fast enough, small enough, in both directions.

uvicorn itself waits for ever for headers, bodies and clients that do not read, and takes headers of
any length.
"""

from __future__ import annotations

import asyncio
import fcntl
import math
import struct
import termios
from operator import itemgetter
from typing import Any, cast

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from migrator.serve.leaving import client_left
from migrator.serve.limits import Limits
from migrator.serve.protocol import Problem

TOO_LARGE = "431 Request Header Fields Too Large"
_TOO_LARGE_REASON = "headers too large; send fewer or shorter ones"
_DISCARDED_BYTES, _ALL = 2**20, 2**62
"""What is taken and thrown away after a refusal: some of what is no HTTP, all of a body."""

_WRITE_BUFFER_BYTES = 16 * 2**10
"""Beyond it an answer waits for its client to read; the kernel has a buffer of its own."""


class _Transport:
    """The transport as uvicorn sees it; the connection decides how it ends."""

    def __init__(self, connection: GuardedConnection, real: asyncio.Transport) -> None:
        self._connection, self._real = connection, real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def close(self) -> None:
        """End the connection."""
        self._connection.end()

    def is_closing(self) -> bool:
        """Whether it is ending."""
        return self._connection.ending or self._real.is_closing()


class GuardedConnection(HttpToolsProtocol):
    """One connection with its limits."""

    limits = Limits()

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._real: asyncio.Transport
        self.ending = False
        self._patience: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        """Waits for a client that does not read."""
        self._discarding: int | None = None
        """Bytes that are still taken and thrown away; None: requests are read."""
        self._in_body = False
        self._header_bytes = 0
        """Of complete header lines."""
        self._other_bytes = 0
        """That came since anything began or part of a body came."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Refuse it where there are too many."""
        self._real = cast("asyncio.Transport", transport)
        super().connection_made(cast("asyncio.Transport", _Transport(self, self._real)))
        self._real.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
        if len(self.connections) > self.limits.connections and not self._make_room():
            self._write_refusal(
                "503 Service Unavailable", "too many connections; try again later, or use fewer"
            )
            self._real.close()
        else:
            self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more is waited for, by us or by the client."""
        self._stop_waiting()
        self._stop_waiting_for_reader()
        if self.scope is not None:
            client_left(self.scope)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; bytes that belong to no body are counted while they come."""
        if self._discarding is not None:
            self._discarding -= len(data)
            if self._discarding < 0:
                self._real.abort()
            return
        self._other_bytes += len(data)
        super().data_received(data)
        if self._other_bytes > self.limits.header_bytes + len(data):
            self._refuse(TOO_LARGE, _TOO_LARGE_REASON)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_body, self._header_bytes, self._other_bytes = False, 0, 0
        self._wait_for_headers()

    def on_url(self, url: bytes) -> None:
        """Part of its address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers; trailers of a body count and are dropped."""
        self._count(len(name) + len(value))
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Now its body is waited for."""
        self._stop_waiting()
        self._in_body, self._header_bytes, self._other_bytes = True, 0, 0
        self._patience = self.loop.call_later(self.limits.body_s, self._too_slow)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Part of its body."""
        self._other_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """It is whole."""
        self._stop_waiting()
        self._other_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP."""
        if self._header_bytes > self.limits.header_bytes:
            self._refuse(TOO_LARGE, _TOO_LARGE_REASON)
        else:
            self._refuse("400 Bad Request", f"{msg.rstrip('.')}; send HTTP/1.1")

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """It has read."""
        if not self.ending:
            self._stop_waiting_for_reader()
        super().resume_writing()

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self.limits.header_bytes:
            raise ValueError("headers too large")  # the parser gives up

    def _wait_for_headers(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(self.limits.header_s, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _too_slow(self) -> None:
        self._refuse("408 Request Timeout", "the request did not come in time; send it at once")

    def _refuse(self, status: str, reason: str) -> None:
        """Answer what is not a request, unless another answer is under way, and end."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        idle = cycle is None or cycle.response_complete
        if not idle and (not cycle.more_body or cycle.response_started or self.pipeline):
            self._close()
            return
        self._write_refusal(status, reason)
        self._discard(_DISCARDED_BYTES)
        if not idle:
            cycle.disconnected = True
            cycle.message_event.set()

    def _write_refusal(self, status: str, reason: str) -> None:
        body = msgspec.json.encode(Problem(error=reason))
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self._real.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    def end(self) -> None:
        """Close the connection once everything is written.

        While a body still comes, it is taken and thrown away: closed at once, the client would
        get a reset while it sends, and not the answer.
        """
        if self.ending:
            self._real.close()
        elif self.cycle is not None and self.cycle.more_body and self.cycle.response_complete:
            self._discard(_ALL)
        else:
            self._close()

    def _discard(self, most: int) -> None:
        self.ending, self._discarding = True, most
        self._stop_waiting()
        self._patience = self.loop.call_later(self.limits.body_s, self._real.abort)
        self._real.write_eof()
        self.flow.resume_reading()

    def _close(self) -> None:
        self.ending = True
        self._real.close()
        self._wait_for_reader()

    def _wait_for_reader(self) -> None:
        """End the connection where the client does not read what is written."""
        if self._unread is None and self._real.get_write_buffer_size():
            left = self._unsent_bytes()
            self._unread = self.loop.call_later(self.limits.write_s, self._require_reader, left)

    def _stop_waiting_for_reader(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _make_room(self) -> bool:
        """Whether a client that does not read had to leave for this one."""
        every = cast("set[GuardedConnection]", self.connections)
        unread = [(each._unread.when(), each) for each in every if each._unread]
        until_s, oldest = min(unread, key=itemgetter(0), default=(math.inf, self))
        if until_s - self.limits.write_s > self.loop.time() - min(1.0, self.limits.write_s):
            return False
        oldest._stop_waiting_for_reader()
        oldest._real.abort()
        return True

    def _require_reader(self, before: int) -> None:
        self._unread = None
        least = self.limits.write_s * self.limits.write_bytes_s
        if before - self._unsent_bytes() < least:
            self._real.abort()
        else:
            self._wait_for_reader()

    def _unsent_bytes(self) -> int:
        """What waits here and in the kernel; the client has acknowledged the rest."""
        waits = self._real.get_write_buffer_size()
        number = self._real.get_extra_info("socket").fileno()
        if number < 0:  # closed
            return waits
        return waits + int(struct.unpack("i", fcntl.ioctl(number, termios.TIOCOUTQ, bytes(4)))[0])


def guarded(limits: Limits) -> type[asyncio.Protocol]:
    """The class of connections with these limits."""
    return type("GuardedConnection", (GuardedConnection,), {"limits": limits})
