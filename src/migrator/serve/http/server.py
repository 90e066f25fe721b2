"""The API on a port: uvicorn inside the daemon's event loop, its limits and its end."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

import uvicorn
from starlette.types import ASGIApp

from migrator.core.errors import InputError
from migrator.serve.http.authentication import Tokens, require_safe
from migrator.serve.http.connections import guarded_connection
from migrator.serve.http.requests import Limits

GRACE_S = 5
SEND_BUFFER_BYTES = 64 * 2**10
"""Per connection in the kernel, which would otherwise buffer megabytes for a slow client."""
FILES_RESERVED = 128
"""Open files beside connections: databases, sockets and handles of workers."""

if TYPE_CHECKING:
    from migrator.serve.grpc.server import GrpcServer

_log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """Leaves signals to the daemon."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ApiServer:
    """Serves an application from `start` to `stop`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: Tokens,
        host: str = "127.0.0.1",
        port: int = 8000,
        limits: Limits | None = None,
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        require_safe(host, tokens)
        self.app = app
        self._closing = closing
        limits = limits or Limits()
        self._socket = _bind(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._server = _Server(
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

    @property
    def url(self) -> str:
        """Its address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def start(self) -> None:
        """Returns when it listens."""
        self._task = asyncio.get_running_loop().create_task(self._server.serve([self._socket]))
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.001)
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """Accept nothing new; open requests are answered within some seconds."""
        self._closing()
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self._socket.close()


def require_address(host: str, port: int, tokens: Tokens, key: str = "port") -> None:
    """InputError if the API cannot listen there, before anything that takes time is started."""
    require_safe(host, tokens)
    _bind(host, port, key).close()


def new_grpc_server(app: ASGIApp, host: str, port: int, limits: Limits) -> GrpcServer:
    """The same application over gRPC; InputError if the extra is not installed."""
    try:
        server = import_module("migrator.serve.grpc.server")
    except ModuleNotFoundError as error:
        raise InputError(
            f"grpc_port: {error.name} is not installed; pip install 'migrator[grpc]', or leave it "
            "out"
        ) from error
    made: GrpcServer = server.GrpcServer(app, host=host, port=port, limits=limits)
    return made


def affordable(limits: Limits, files_each: int = 1) -> Limits:
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
