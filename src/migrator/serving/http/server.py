"""The API on a port: uvicorn inside the daemon's event loop, with limits on time and size.

uvicorn waits for ever for headers, bodies and clients that do not read, and accepts headers of any
length. This is the only module that depends on uvicorn's internals (its httptools protocol), which
may change with any version: `pyproject.toml` caps it at the last one that was tried.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

import msgspec
import uvicorn
from starlette.types import ASGIApp

# not part of uvicorn's documented API, so uvicorn is capped: it has no limit on the time in which
# headers, bodies and readers must make progress
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from migrator.core.errors import InputError
from migrator.io.tls import ServerCertificate
from migrator.serving.http.access import Tokens, is_loopback, require_safe
from migrator.serving.http.bodies import SLOW_S
from migrator.serving.http.protocol import ErrorAnswer
from migrator.serving.http.requests import ClientLimits, cancel_on_disconnect

TOO_LARGE = "431 Request Header Fields Too Large"
_TOO_LARGE_REASON = "headers too large; send fewer or shorter ones"
_DISCARDED_BYTES, _ALL = 2**20, 2**62
"""Bytes that are read and discarded after a refusal: some of what is not HTTP, all of a body."""

_HANDSHAKES = 32
"""That may be under way even when all connections are used; their files are of the reserve."""
_AGAIN_S = 1.0
"""Seconds until connections are accepted again."""
_WRITE_BUFFER_BYTES = 16 * 2**10
"""Beyond it an answer waits for its client to read; the kernel has another buffer."""
GRACE_S = 5
SEND_BUFFER_BYTES = 64 * 2**10
"""Per connection in the kernel, which would otherwise buffer megabytes for a slow client."""
FILES_RESERVED = 128
"""Open files beside connections: databases, sockets and handles of workers."""

if TYPE_CHECKING:
    from migrator.serving.grpc.server import GrpcServer

_log = logging.getLogger(__name__)


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

    limits = ClientLimits()

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._real: asyncio.Transport
        self.ending = False
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        """Runs while the client does not read."""
        self._since_s = self.loop.time()
        """When the connection was opened, its last response ended or the headers of its request
        were complete."""
        self._aborted = False
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
        self._since_s = self.loop.time()
        self._deadline = self.loop.call_later(self.limits.body_s, self._too_slow)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._other_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_waiting()
        self._other_bytes = 0
        super().on_message_complete()
        if not self.pipeline:
            self.flow.resume_reading()  # else a client that leaves is not noticed

    def on_response_complete(self) -> None:
        self._since_s = self.loop.time()
        super().on_response_complete()

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
        body = msgspec.json.encode(ErrorAnswer(error=reason))
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
        if self._real.can_write_eof():  # not with TLS
            self._real.write_eof()
        self.flow.resume_reading()

    def _close(self) -> None:
        self.ending = True
        self._real.close()
        self._wait_for_reader()

    def _wait_for_reader(self) -> None:
        """Abort the connection if the client does not read what is written."""
        unsent = self._real.get_write_buffer_size()
        if self._unread is None and unsent:
            self._unread = self.loop.call_later(self.limits.write_s, self._require_reader, unsent)

    def _stop_waiting_for_reader(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _make_room(self) -> bool:
        """Abort the connection that has waited for its client for longest; False where none does.

        An idle one goes at any time, one whose client reads or sends slowly after a second.
        """
        connections = cast("set[_GuardedConnection]", self.connections)
        waiting = [
            (since_s, connection)
            for connection in connections
            if connection is not self and (since_s := connection._waits_since_s()) is not None
        ]
        if not waiting:
            return False
        _, oldest = min(waiting, key=itemgetter(0))
        oldest._stop_waiting_for_reader()
        oldest._aborted = True
        oldest._real.abort()
        return True

    def _waits_since_s(self) -> float | None:
        """Since when nothing happens before the client sends or reads; None: it is being served."""
        if self._aborted:
            return None
        slow_s = self.loop.time() - min(SLOW_S, self.limits.write_s)
        if self._unread is not None:
            since_s = self._unread.when() - self.limits.write_s
            return since_s if since_s <= slow_s else None
        if self.cycle is None or self.cycle.response_complete:
            return self._since_s
        return self._since_s if self.cycle.more_body and self._since_s <= slow_s else None

    def _require_reader(self, before: int) -> None:
        self._unread = None
        least = self.limits.write_s * self.limits.write_bytes_s
        if before - self._real.get_write_buffer_size() < least:
            self._real.abort()
        else:
            self._wait_for_reader()


def guarded_connection(limits: ClientLimits) -> type[asyncio.Protocol]:
    """A class of connections with these limits, for uvicorn's `http` setting."""
    return type("GuardedConnection", (_GuardedConnection,), {"limits": limits})


class _UvicornServer(uvicorn.Server):
    """Leaves signals to the daemon."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _TlsListener:
    """Accepts connections with TLS, each with the newest certificate.

    A server of asyncio would accept any number of connections that never begin a handshake.
    """

    def __init__(
        self,
        bound: socket.socket,
        certificate: ServerCertificate,
        server: uvicorn.Server,
        limits: ClientLimits,
    ) -> None:
        self._socket, self._certificate = bound, certificate
        self._server, self._limits = server, limits
        self._protocol = guarded_connection(limits)
        self._handshakes: dict[asyncio.Task[None], None] = {}
        """Those under way, the oldest first."""
        bound.setblocking(False)
        bound.listen(server.config.backlog)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    client, _ = await loop.sock_accept(self._socket)
                except OSError as error:  # such as no file left, or the client has gone
                    _log.warning("a connection could not be accepted (%s)", error)
                    await asyncio.sleep(_AGAIN_S)
                    continue
                self._make_room()
                task = loop.create_task(self._shake_hands(client))
                self._handshakes[task] = None
                task.add_done_callback(lambda done: self._handshakes.pop(done, None))
        finally:
            for handshake in self._handshakes:
                handshake.cancel()

    def _make_room(self) -> None:
        """End the oldest handshake while there are too many."""
        connections = len(self._server.server_state.connections)
        if len(self._handshakes) >= max(self._limits.connections - connections, _HANDSHAKES):
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()

    async def _shake_hands(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # whatever is wrong with a handshake is the client's concern
            await loop.connect_accepted_socket(
                *(self._connection, client),
                ssl=self._certificate.current.context,
                ssl_handshake_timeout=self._limits.header_s,
                ssl_shutdown_timeout=self._limits.write_s,
            )

    def _connection(self) -> asyncio.Protocol:
        settings: dict[str, Any] = {
            "config": self._server.config,
            "server_state": self._server.server_state,
            "app_state": {},
        }
        return self._protocol(**settings)


class ApiServer:
    """Serves an application from `start` to `stop`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: Tokens,
        host: str = "127.0.0.1",
        port: int = 8000,
        limits: ClientLimits | None = None,
        closing: Callable[[], None] = lambda: None,
        certificate: ServerCertificate | None = None,
    ) -> None:
        """`certificate`: for TLS; it follows its files while this serves. None: in clear."""
        require_safe(host, tokens)
        if certificate is None and tokens.configured and not is_loopback(host):
            _log.warning(
                "host: tokens, inputs and answers are sent in clear to other machines; give a "
                "certificate and its key, or put a proxy with TLS in front"
            )
        self.app = app
        self._closing, self._certificate = closing, certificate
        self._limits = limits = limits or ClientLimits()
        self._socket = _bind(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._server = _UvicornServer(
            uvicorn.Config(
                app,
                interface="asgi3",
                http=guarded_connection(limits),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=limits.keep_alive_s,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._task: asyncio.Task[None] | None = None
        self._tls: list[asyncio.Task[None]] = []

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._certificate is None else 'https'}://{host}:{self.port}"

    async def start(self) -> None:
        loop, certificate = asyncio.get_running_loop(), self._certificate
        sockets = [self._socket] if certificate is None else []
        self._task = loop.create_task(self._server.serve(sockets))
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.001)
        if self._task.done():
            self._task.result()
        if certificate is not None:
            listener = _TlsListener(self._socket, certificate, self._server, self._limits)
            self._tls += map(loop.create_task, (certificate.follow(), listener.run()))

    async def stop(self) -> None:
        self._closing()
        self._server.should_exit = True
        for task in self._tls:
            task.cancel()
        if self._task is not None:
            await self._task
        self._socket.close()


def require_address(host: str, port: int, tokens: Tokens, key: str = "port") -> None:
    """InputError if the API cannot listen there, before anything that takes time is started."""
    require_safe(host, tokens)
    _bind(host, port, key).close()


def new_grpc_server(
    app: ASGIApp,
    host: str,
    port: int,
    limits: ClientLimits,
    tokens: Tokens,
    certificate: ServerCertificate | None = None,
) -> GrpcServer:
    """The same application over gRPC; InputError if the extra is not installed."""
    try:
        server = import_module("migrator.serving.grpc.server")
    except ModuleNotFoundError as error:
        raise InputError(
            f"grpc_port: {error.name} is not installed; pip install 'migrator-gpu[grpc]', or leave "
            "it out"
        ) from error
    grpc_server: GrpcServer = server.GrpcServer(
        app, host=host, port=port, limits=limits, tokens=tokens, certificate=certificate
    )
    return grpc_server


def affordable(limits: ClientLimits, files_each: int = 1) -> ClientLimits:
    """The limits with no more connections than this process may open files.

    Raises the soft limit of open files as far as needed and permitted. `files_each`: open files
    per connection. InputError where too few are left for any.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections * files_each + FILES_RESERVED
    if 0 <= soft < wanted:
        with suppress(OSError, ValueError):
            raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not 0 <= soft < wanted:
        return limits
    connections = (soft - FILES_RESERVED) // files_each
    if connections < 1:
        raise InputError(
            f"open files: the limit of this process is {soft}, too low to serve; raise it to "
            f"{wanted} (`ulimit -n {wanted}`, LimitNOFILE= of systemd)"
        )
    _log.warning(
        "the limit of open files is %d: %d connections are served at a time instead of %d; raise "
        "it to %d (`ulimit -n`), or set connections lower",
        soft,
        connections,
        limits.connections,
        wanted,
    )
    return replace(limits, connections=connections)


def _bind(host: str, port: int, key: str = "port") -> socket.socket:
    """Bound here, as uvicorn would exit the process where it cannot."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise InputError(
            f"host: {host} cannot be resolved ({error}); use another address"
        ) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise InputError(
            f"{key}: cannot listen on {host}:{port} ({error.strerror}); use another port, or 0 "
            "for any free one"
        ) from error
    return bound
