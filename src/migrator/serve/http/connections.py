"""Protection against slow and hostile clients: limits on time and size in both directions.

uvicorn waits for ever for headers, bodies and clients that do not read, and accepts headers of any
length. This is the only module that depends on uvicorn's internals (its httptools protocol).
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

from migrator.serve.http.protocol import Problem
from migrator.serve.http.requests import Limits, cancel_on_disconnect

TOO_LARGE = "431 Request Header Fields Too Large"
_TOO_LARGE_REASON = "headers too large; send fewer or shorter ones"
_DISCARDED_BYTES, _ALL = 2**20, 2**62
"""Bytes that are read and discarded after a refusal: some of what is not HTTP, all of a body."""

_WRITE_BUFFER_BYTES = 16 * 2**10
"""Beyond it an answer waits for its client to read; the kernel has another buffer."""


class _Transport:
    """The transport that uvicorn gets; the connection decides how it is closed."""

    def __init__(self, connection: _GuardedConnection, real: asyncio.Transport) -> None:
        self._connection, self._real = connection, real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def write(self, data: bytes) -> None:
        if not self._real.is_closing():  # the client of pipelined requests may have left
            self._real.write(data)

    def close(self) -> None:
        self._connection.end()

    def is_closing(self) -> bool:
        return self._connection.ending or self._real.is_closing()


class _GuardedConnection(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits."""

    limits = Limits()

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._real: asyncio.Transport
        self.ending = False
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        """Runs while the client does not read."""
        self._discarding: int | None = None
        """Bytes that are still read and discarded; None: requests are read."""
        self._in_body = False
        self._header_bytes = 0
        """Bytes of complete header lines."""
        self._other_bytes = 0
        """Bytes since a message began or a part of a body arrived."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
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
        """Stop all timers, and cancel the request that waits."""
        self._stop_waiting()
        self._stop_waiting_for_reader()
        if self.scope is not None:
            cancel_on_disconnect(self.scope)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; count bytes that do not belong to a body."""
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
        super().on_message_begin()
        self._in_body, self._header_bytes, self._other_bytes = False, 0, 0
        self._wait_for_headers()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; trailers of a body count and are dropped."""
        self._count(len(name) + len(value))
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._in_body, self._header_bytes, self._other_bytes = True, 0, 0
        self._deadline = self.loop.call_later(self.limits.body_s, self._too_slow)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._other_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_waiting()
        self._other_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._header_bytes > self.limits.header_bytes:
            self._refuse(TOO_LARGE, _TOO_LARGE_REASON)
        else:
            self._refuse("400 Bad Request", f"{msg.rstrip('.')}; send HTTP/1.1")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        if not self.ending:
            self._stop_waiting_for_reader()
        super().resume_writing()

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self.limits.header_bytes:
            raise ValueError("headers too large")  # ends the parser

    def _wait_for_headers(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.header_s, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._refuse("408 Request Timeout", "the request did not arrive in time; send it faster")

    def _refuse(self, status: str, reason: str) -> None:
        """Answer outside of a request, unless another answer is under way, and close."""
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

        The rest of a body is read and discarded: after an immediate close the client would get a
        reset while it sends, and not the answer.
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
        self._deadline = self.loop.call_later(self.limits.body_s, self._real.abort)
        self._real.write_eof()
        self.flow.resume_reading()

    def _close(self) -> None:
        self.ending = True
        self._real.close()
        self._wait_for_reader()

    def _wait_for_reader(self) -> None:
        """Abort the connection if the client does not read what is written."""
        if self._unread is None and self._real.get_write_buffer_size():
            left = self._unsent_bytes()
            self._unread = self.loop.call_later(self.limits.write_s, self._require_reader, left)

    def _stop_waiting_for_reader(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _make_room(self) -> bool:
        """Abort the connection whose client has not read for longest; False where all read."""
        every = cast("set[_GuardedConnection]", self.connections)
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
        """Bytes that wait here and in the kernel; the client has acknowledged the rest."""
        buffered = self._real.get_write_buffer_size()
        number = self._real.get_extra_info("socket").fileno()
        if number < 0:  # closed
            return buffered
        return buffered + int(
            struct.unpack("i", fcntl.ioctl(number, termios.TIOCOUTQ, bytes(4)))[0]
        )


def guarded_connection(limits: Limits) -> type[asyncio.Protocol]:
    """A class of connections with these limits, for uvicorn's `http` setting."""
    return type("GuardedConnection", (_GuardedConnection,), {"limits": limits})
