"""The Open Inference Protocol over gRPC, in front of the HTTP application of a daemon or gateway.

Every call becomes a request to that application inside this process, so that tokens, limits,
deadlines, counters and refusals are the same whichever way a client comes.

gRPC would receive and decode the whole message of a call before it calls a handler. Here each
handler is one of a stream, which is the same to a client: it checks the token, waits for its turn
to receive, receives one message within a time limit, and decodes it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict
from starlette.requests import Request
from starlette.types import ASGIApp

from migrator.core.errors import HttpError, InputError
from migrator.io.tls import LoadedCertificate, ServerCertificate
from migrator.serving.grpc.application import (
    CODES,
    ApplicationClient,
    abort,
    passed_headers,
    path_of,
)
from migrator.serving.grpc.inference import infer
from migrator.serving.grpc.messages import PACKAGE, message_classes
from migrator.serving.grpc.receiving import ENVELOPE_BYTES, Receiver
from migrator.serving.http.access import Tokens
from migrator.serving.http.operations import MAX_REASON
from migrator.serving.http.requests import ClientLimits
from migrator.serving.logs import LineLimiter

SERVICE = f"{PACKAGE}.GRPCInferenceService"
HEALTH_SERVICE = "grpc.health.v1.Health"
SERVING, NOT_SERVING = 1, 2
"""Statuses of the health checking protocol."""
_OPEN_CALLS = ("ServerLive", "ServerReady", "ServerMetadata")
"""They need no token. Their messages are empty, and not received."""
_OPEN_PLACES = 4
"""Health checks that are received at a time."""
_GRACE_S = 5.0
_log = logging.getLogger(__name__)


class GrpcServer:
    """Serves an application over gRPC from `start` to `stop`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        port: int,
        limits: ClientLimits,
        tokens: Tokens,
        certificate: ServerCertificate | None = None,
    ) -> None:
        """Listens at once, so that a port in use is found early; calls wait for `start`.

        `tokens`: checked before a message is received; the application checks them once more.
        `certificate`: for TLS, which the HTTP server beside it keeps up to date.
        """
        self._app, self._tokens = ApplicationClient(app), tokens
        self._messages = message_classes()
        self._lines = LineLimiter()
        largest = limits.body_bytes + ENVELOPE_BYTES
        # a message is there twice while gRPC hands it over
        self._receiver = Receiver(max(1, limits.bodies_bytes // (2 * largest)), limits.body_s)
        self._open_receiver = Receiver(_OPEN_PLACES, limits.body_s)
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=limits.connections,
            options=[
                ("grpc.max_receive_message_length", largest),
                ("grpc.max_metadata_size", limits.header_bytes),
                ("grpc.so_reuseport", 0),
                ("grpc.max_allowed_incoming_connections", limits.connections),
                ("grpc.server_handshake_timeout_ms", round(limits.header_s * 1e3)),
                ("grpc.max_connection_idle_ms", limits.keep_alive_s * 1000),
                # a call that waits to be received is buffered up to 64 KiB, and not to megabytes
                ("grpc.http2.bdp_probe", 0),
                # a compressed message may be a thousand times larger: without compression only
                ("grpc.compression_enabled_algorithms_bitset", 1),
            ],
        )
        handlers = {name: self._handler(name, call) for name, call in self._calls().items()}
        health = {"Check": self._handler("HealthCheck", self._check)}
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, handlers),
                grpc.method_handlers_generic_handler(HEALTH_SERVICE, health),
            )
        )
        name = f"[{host}]" if ":" in host else host
        try:
            if certificate is None:
                self.port = self._server.add_insecure_port(f"{name}:{port}")
            else:
                self.port = self._server.add_secure_port(
                    f"{name}:{port}", _credentials(certificate)
                )
        except RuntimeError:
            self.port = 0
        if self.port == 0:
            raise InputError(
                f"grpc_port: cannot listen on {host}:{port}; use another port, or 0 for any free "
                "one"
            )
        self.address = f"{name}:{self.port}"

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(_GRACE_S)

    def _calls(self) -> dict[str, Callable[[Any, Any], Awaitable[Any]]]:
        return {
            "ServerLive": self._health("live", "live"),
            "ServerReady": self._health("ready", "ready"),
            "ModelReady": self._model_ready,
            "ServerMetadata": self._get("ServerMetadataResponse", lambda _: "/v2"),
            "ModelMetadata": self._get("ModelMetadataResponse", _model_path),
            "ModelConfig": self._model_config,
            "ModelStatistics": self._get("ModelStatisticsResponse", _statistics_path),
            "RepositoryIndex": self._repository_index,
            "RepositoryModelLoad": self._change_repository("Load"),
            "RepositoryModelUnload": self._change_repository("Unload"),
            "ModelInfer": partial(infer, self._app, self._messages["ModelInferResponse"]),
        }

    def _handler(self, name: str, call: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        async def respond(_messages: Any, context: Any) -> Any:
            try:
                return await call(await self._request(name, context), context)
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                await self._refuse(name, error, context)

        return grpc.stream_unary_rpc_method_handler(respond, response_serializer=_serialize)

    async def _request(self, name: str, context: Any) -> Any:
        kind = self._messages[f"{name}Request"]
        if name in _OPEN_CALLS:
            return kind()
        if name == "HealthCheck":
            return await self._open_receiver.receive(context, kind)
        self._tokens.holder(Request({"type": "http", "headers": passed_headers(context)}))
        return await self._receiver.receive(context, kind)

    async def _refuse(self, name: str, error: Exception, context: Any) -> None:
        """End a call with the status of the error; log lines are limited."""
        if isinstance(error, HttpError):
            status, message = error.status, str(error)
        else:
            status, message = 500, "internal error; see the server's log, or try again"
        self._lines.log(
            _log,
            logging.INFO if status != 500 else logging.ERROR,
            (name, status),
            f"gRPC call {name} refused with {status}: "
            f"{message if status != 500 else repr(error)[:MAX_REASON]}",
            status=status,
        )
        # the frames hold the message, which must not wait for the client to read the answer
        error.__traceback__ = error.__cause__ = error.__context__ = None
        await context.abort(CODES.get(status, grpc.StatusCode.INTERNAL), message)

    # Health, as load balancers and Kubernetes ask for it.

    async def _check(self, request: Any, context: Any) -> Any:
        if request.service not in ("", SERVICE, HEALTH_SERVICE):
            raise HttpError(
                404, f"service: there is no {request.service[:80]}; leave it out, or use {SERVICE}"
            )
        status, _, _ = await self._app.ask("GET", "/v2/health/ready", context)
        return self._messages["HealthCheckResponse"](
            status=SERVING if status == 200 else NOT_SERVING
        )

    # Calls without tensors.

    def _health(self, path: str, field: str) -> Callable[[Any, Any], Awaitable[Any]]:
        async def call(_request: Any, context: Any) -> Any:
            status, _, _ = await self._app.ask("GET", f"/v2/health/{path}", context)
            return self._messages[f"Server{path.title()}Response"](**{field: status == 200})

        return call

    async def _model_ready(self, request: Any, context: Any) -> Any:
        status, _, body = await self._app.ask("GET", f"{_model_path(request)}/ready", context)
        if status not in (200, 503):
            await abort(context, status, body)
        return self._messages["ModelReadyResponse"](ready=status == 200)

    def _get(self, answer: str, path: Callable[[Any], str]) -> Callable[[Any, Any], Awaitable[Any]]:
        async def call(request: Any, context: Any) -> Any:
            content = await self._app.json("GET", path(request), context)
            return ParseDict(content, self._messages[answer](), ignore_unknown_fields=True)

        return call

    async def _model_config(self, request: Any, context: Any) -> Any:
        content = await self._app.json("GET", f"{_model_path(request)}/config", context)
        answer = self._messages["ModelConfigResponse"]()
        return ParseDict({"config": content}, answer, ignore_unknown_fields=True)

    async def _repository_index(self, _request: Any, context: Any) -> Any:
        """All models with their state."""
        content = await self._app.json("POST", "/v2/repository/index", context)
        return ParseDict({"models": content}, self._messages["RepositoryIndexResponse"]())

    def _change_repository(self, verb: str) -> Callable[[Any, Any], Awaitable[Any]]:
        """Load or unload a model."""

        async def call(request: Any, context: Any) -> Any:
            texts = {
                key: parameter.string_param
                for key, parameter in request.parameters.items()
                if parameter.WhichOneof("choice") == "string_param"
            }
            path = f"/v2/repository/models/{request.model_name}/{verb.lower()}"
            body = json.dumps({"parameters": texts}).encode()
            status, _, answer = await self._app.ask("POST", path, context, parts=[body])
            if status != 200:
                await abort(context, status, answer)
            return self._messages[f"RepositoryModel{verb}Response"]()

        return call


def _credentials(certificate: ServerCertificate) -> Any:
    """gRPC asks for the newest certificate before every handshake."""
    given = certificate.current

    def newest() -> Any:
        nonlocal given
        if certificate.current is given:
            return None
        given = certificate.current
        return _configuration(given)

    return grpc.dynamic_ssl_server_credentials(_configuration(given), newest)


def _configuration(loaded: LoadedCertificate) -> Any:
    pair = loaded.pair
    return grpc.ssl_server_certificate_configuration([(pair.key, pair.certificate)])


def _serialize(answer: Any) -> bytes:
    serialized: bytes = answer.SerializeToString()
    return serialized


def _model_path(request: Any) -> str:
    return path_of(request.name, request.version)


def _statistics_path(request: Any) -> str:
    return f"{_model_path(request)}/stats" if request.name else "/v2/models/stats"
