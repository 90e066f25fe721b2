"""The Open Inference Protocol over gRPC, in front of the HTTP application of a daemon or gateway.

Every call becomes a request to that application inside this process, so that tokens, limits,
deadlines, counters and refusals are the same whichever way a client comes.

gRPC would receive and decode the whole message of a call before it calls a handler. Here each
handler is one of a stream, which is the same to a client: it checks the token, waits for its turn
to receive, receives one message within a time limit, and decodes it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import grpc
import numpy as np
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError
from starlette.requests import Request
from starlette.types import ASGIApp, Message

from migrator.core.errors import HttpError, InputError
from migrator.core.tensors import DTYPES
from migrator.io.tls import LoadedCertificate, ServerCertificate
from migrator.serving.grpc_messages import PACKAGE, message_classes
from migrator.serving.http.access import Tokens
from migrator.serving.http.bodies import JSON_LENGTH_HEADER, SLOW_S
from migrator.serving.http.inference import CALL_TIMEOUT_HEADER, TIMEOUT_HEADER, TIMEOUT_PARAMETERS
from migrator.serving.http.operations import MAX_REASON
from migrator.serving.http.protocol import MAX_TENSORS, TEXTS
from migrator.serving.http.requests import REQUEST_ID_HEADER, ClientLimits
from migrator.serving.logs import LineLimiter
from migrator.serving.tracing import HEADERS as TRACE_HEADERS

SERVICE = f"{PACKAGE}.GRPCInferenceService"
HEALTH_SERVICE = "grpc.health.v1.Health"
SERVING, NOT_SERVING = 1, 2
"""Statuses of the health checking protocol."""
_PASSED_HEADERS = ("authorization", REQUEST_ID_HEADER, TIMEOUT_HEADER, *TRACE_HEADERS)
_ENVELOPE_BYTES = 64 * 2**10
"""Of a message beside its tensors."""
_MAX_FIELDS = 2**13
"""Of a message with its tensors: an empty field of two bytes takes a hundred once it is decoded."""
_NUMBERS_BYTES = 512 * 2**10
"""Of typed numbers, which take 0.2 s per MiB to convert: a picture of 299 pixels, whole."""
_LARGE_BYTES = 256 * 2**10
"""A message of more than that takes milliseconds to decode."""
_OPEN_CALLS = ("ServerLive", "ServerReady", "ServerMetadata")
"""They need no token. Their messages are empty, and not received."""
_OPEN_PLACES = 4
"""Health checks that are received at a time."""
_MAX_WATCHERS = 64
_WATCH_S = 1.0
"""Seconds between two looks at the state for clients that watch it."""
_NESTED_FIELD, _RAW_FIELD, _TEXTS_FIELD = 5, 7, 8
"""The numbers of `inputs` in a request and of `contents` in an input, of `raw_input_contents` in a
request, and of `bytes_contents` in contents."""
_GRACE_S = 5.0
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    **{name: f"{name.lower()}_contents" for name in ("INT64", "UINT64", "FP32", "FP64")},
}
"""Datatype -> the list in which a client may send its values."""
_OPERATION, _INFER = "operation", "infer"
"""The parameter of ModelInfer by which clients send labels instead, and its default."""
_ROUTES = (_INFER, "feedback", "samples")
_log = logging.getLogger(__name__)


class _Receiver:
    """Receives and decodes messages of calls, a few at a time: each may be as large as the limit.

    A client that has not sent its message after a second gives way when another one waits.
    """

    def __init__(self, places: int, limit_s: float) -> None:
        self._places, self._limit_s = asyncio.Semaphore(places), limit_s
        self._arriving: dict[asyncio.Timeout, float] = {}
        """When each message began to arrive, the oldest first; without those that give way."""
        self._waiting = 0
        self._decoding = asyncio.Lock()
        """Large messages are decoded one after the other, and other events handled in between."""

    async def receive(self, context: Any, kind: Any) -> Any:
        """The first message of a call, decoded; HttpError where none arrives in time."""
        await self._wait_for_place()
        try:
            message = await self._arrived(context)
            if message is grpc.aio.EOF:  # also where it is larger than the limit
                raise HttpError(400, "the call has no message; send one")
            if len(message) <= _LARGE_BYTES:
                return _decoded(kind, message)
            async with self._decoding:
                await asyncio.sleep(0)
                return _decoded(kind, message)
        finally:
            self._places.release()

    async def _arrived(self, context: Any) -> Any:
        limit_s = SLOW_S if self._waiting else self._limit_s
        try:
            async with asyncio.timeout(limit_s) as scope:
                self._arriving[scope] = asyncio.get_running_loop().time()
                return await context.read()
        except TimeoutError:
            raise HttpError(408, "the message did not arrive in time; send it faster") from None
        finally:
            self._arriving.pop(scope, None)

    async def _wait_for_place(self) -> None:
        if self._places.locked() and self._arriving:
            oldest = next(iter(self._arriving))
            oldest.reschedule(self._arriving.pop(oldest) + SLOW_S)
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1


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
        self._app, self._tokens = app, tokens
        self._messages = message_classes()
        self._lines = LineLimiter()
        self._watchers = 0
        largest = limits.body_bytes + _ENVELOPE_BYTES
        # a message is there twice while gRPC hands it over
        self._receiver = _Receiver(max(1, limits.bodies_bytes // (2 * largest)), limits.body_s)
        self._open_receiver = _Receiver(_OPEN_PLACES, limits.body_s)
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
        health = {
            "Check": self._handler("HealthCheck", self._check),
            "Watch": self._watch_handler(),
        }
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
        """Accept nothing new; open calls are answered within some seconds."""
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
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._control("load"),
            "RepositoryModelUnload": self._control("unload"),
            "ModelInfer": self._infer,
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
        """The message of a call, once the token is checked."""
        kind = self._messages[f"{name}Request"]
        if name in _OPEN_CALLS:
            return kind()
        if name == "HealthCheck":
            return await self._open_receiver.receive(context, kind)
        self._tokens.holder(Request({"type": "http", "headers": _passed_headers(context)}))
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
        await context.abort(_CODES.get(status, grpc.StatusCode.INTERNAL), message)

    # Health, as load balancers and Kubernetes ask for it.

    async def _check(self, request: Any, context: Any) -> Any:
        if request.service not in ("", SERVICE, HEALTH_SERVICE):
            raise HttpError(
                404, f"service: there is no {request.service[:80]}; leave it out, or use {SERVICE}"
            )
        status, _, _ = await self._ask("GET", "/v2/health/ready", context)
        return self._messages["HealthCheckResponse"](
            status=SERVING if status == 200 else NOT_SERVING
        )

    def _watch_handler(self) -> Any:
        async def watch(_messages: Any, context: Any) -> AsyncIterator[Any]:
            self._watchers += 1
            try:
                if self._watchers > _MAX_WATCHERS:
                    raise HttpError(
                        429, f"more than {_MAX_WATCHERS} clients watch; call Check instead"
                    )
                request, last = await self._request("HealthCheck", context), None
                while True:
                    now = await self._check(request, context)
                    if now != last:
                        yield now
                    last = now
                    await asyncio.sleep(_WATCH_S)
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                await self._refuse("HealthWatch", error, context)
            finally:
                self._watchers -= 1

        return grpc.stream_stream_rpc_method_handler(watch, response_serializer=_serialize)

    # Calls without tensors.

    def _health(self, path: str, field: str) -> Callable[[Any, Any], Awaitable[Any]]:
        async def call(_request: Any, context: Any) -> Any:
            status, _, _ = await self._ask("GET", f"/v2/health/{path}", context)
            return self._messages[f"Server{path.title()}Response"](**{field: status == 200})

        return call

    async def _model_ready(self, request: Any, context: Any) -> Any:
        status, _, body = await self._ask("GET", f"{_model_path(request)}/ready", context)
        if status not in (200, 503):
            await _abort(context, status, body)
        return self._messages["ModelReadyResponse"](ready=status == 200)

    def _get(self, answer: str, path: Callable[[Any], str]) -> Callable[[Any, Any], Awaitable[Any]]:
        async def call(request: Any, context: Any) -> Any:
            content = await self._json("GET", path(request), context)
            return ParseDict(content, self._messages[answer](), ignore_unknown_fields=True)

        return call

    async def _model_config(self, request: Any, context: Any) -> Any:
        content = await self._json("GET", f"{_model_path(request)}/config", context)
        answer = self._messages["ModelConfigResponse"]()
        return ParseDict({"config": content}, answer, ignore_unknown_fields=True)

    async def _index(self, _request: Any, context: Any) -> Any:
        content = await self._json("POST", "/v2/repository/index", context)
        return ParseDict({"models": content}, self._messages["RepositoryIndexResponse"]())

    def _control(self, verb: str) -> Callable[[Any, Any], Awaitable[Any]]:
        async def call(request: Any, context: Any) -> Any:
            texts = {
                key: parameter.string_param
                for key, parameter in request.parameters.items()
                if parameter.WhichOneof("choice") == "string_param"
            }
            path = f"/v2/repository/models/{request.model_name}/{verb}"
            body = json.dumps({"parameters": texts}).encode()
            status, _, answer = await self._ask("POST", path, context, parts=[body])
            if status != 200:
                await _abort(context, status, answer)
            return self._messages[f"RepositoryModel{verb.title()}Response"]()

        return call

    # Inference.

    async def _infer(self, request: Any, context: Any) -> Any:
        name, version = request.model_name, request.model_version
        route, headers, parts = _infer_request(request, context.time_remaining())
        path = f"{_path_of(name, version)}/{route}"
        del request  # its tensors must not wait with the call
        status, sent, answer = await self._ask("POST", path, context, headers, parts)
        parts.clear()  # where it was refused unread
        if status != 200:
            await _abort(context, status, answer)
        length = int(sent.get(JSON_LENGTH_HEADER, len(answer)))
        content = json.loads(answer[:length])
        if route != _INFER:
            content = {"id": content.pop("id"), "parameters": content}
            content |= {"model_name": name, "model_version": version, "outputs": []}
        return self._infer_response(content, answer[length:])

    def _infer_response(self, content: Mapping[str, Any], tensors: bytes) -> Any:
        answer = self._messages["ModelInferResponse"](
            model_name=content["model_name"],
            model_version=content["model_version"],
            id=content["id"],
        )
        for key, value in content["parameters"].items():
            if isinstance(value, bool):
                answer.parameters[key].bool_param = value
            else:
                answer.parameters[key].int64_param = value
        at = 0
        for output in content["outputs"]:
            size = output["parameters"]["binary_data_size"]
            answer.outputs.add(
                name=output["name"], datatype=output["datatype"], shape=output["shape"]
            )
            answer.raw_output_contents.append(tensors[at : at + size])
            at += size
        return answer

    # The application.

    async def _json(self, method: str, path: str, context: Any) -> Any:
        status, _, body = await self._ask(method, path, context)
        if status != 200:
            await _abort(context, status, body)
        return json.loads(body)

    async def _ask(
        self,
        method: str,
        path: str,
        context: Any,
        headers: Mapping[str, str] | None = None,
        parts: list[bytes] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the application's answer.

        `parts`: of the body, joined only if the application reads it, and emptied.
        """
        unread = [parts or []]
        all_headers = {"content-length": str(sum(map(len, unread[0]))), **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "2",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [
                # no page in a browser can call gRPC without TLS
                (b"host", b"localhost"),
                *_passed_headers(context),
                *((key.encode(), value.encode()) for key, value in all_headers.items()),
            ],
            "client": None,
            "server": None,
        }
        sent: list[Message] = []

        async def receive() -> Message:
            if unread:
                body = b"".join(unread[0])
                unread.pop().clear()
                return {"type": "http.request", "body": body, "more_body": False}
            await asyncio.Event().wait()  # the call is cancelled when its client leaves
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        answered = {str(k, "latin-1"): str(v, "latin-1") for k, v in sent[0]["headers"]}
        return (
            sent[0]["status"],
            answered,
            b"".join(message.get("body", b"") for message in sent[1:]),
        )


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


def _passed_headers(context: Any) -> list[tuple[bytes, bytes]]:
    """Metadata of a call that the application reads."""
    metadata = {str(key): value for key, value in context.invocation_metadata() or ()}
    return [
        (key.encode(), str(metadata[key]).encode()) for key in _PASSED_HEADERS if key in metadata
    ]


def _decoded(kind: Any, message: bytes) -> Any:
    """A message of that kind; HttpError 400 where it is none."""
    name = kind.DESCRIPTOR.name
    if len(message) > _MAX_FIELDS:
        _require_cheap(name, message)
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise HttpError(
            400, f"{name}: not a message of the protocol ({error}); send one of that type"
        ) from error


def _require_cheap(name: str, message: bytes) -> None:
    """Refuse a message that takes much longer to decode than to receive, before it is decoded.

    What is malformed otherwise ends the look at it: decoding it fails.
    """
    fields, tensors, numbers = 0, 0, 0
    waiting = [(0, len(message), 0)]
    try:
        while waiting:
            at, end, depth = waiting.pop()
            while at < end:
                fields += 1
                if fields > _MAX_FIELDS:
                    raise HttpError(
                        400, f"{name}: more than {_MAX_FIELDS} fields; send raw_input_contents"
                    )
                tag, at = _varint(message, at)
                number, wire = tag >> 3, tag & 7
                if wire in (3, 4):  # decoding would ignore them, and read on
                    raise HttpError(400, f"{name}: not a message of the protocol (it has a group)")
                size, at = _varint(message, at) if wire in (0, 2) else ({1: 8, 5: 4}[wire], at)
                if wire == 0:
                    continue
                if wire == 2 and number == _NESTED_FIELD and depth < 2:
                    waiting.append((at, min(end, at + size), depth + 1))
                if (depth, number) in ((0, _RAW_FIELD), (1, _NESTED_FIELD)):
                    tensors += size
                if depth == 2 and number != _TEXTS_FIELD:
                    numbers += size
                at += size
    except (IndexError, KeyError):
        return
    if numbers > _NUMBERS_BYTES:
        raise HttpError(
            400, f"{name}: more than {_NUMBERS_BYTES} bytes of numbers; send raw_input_contents"
        )
    if len(message) - tensors > _ENVELOPE_BYTES:
        raise HttpError(
            400, f"{name}: more than {_ENVELOPE_BYTES} bytes beside its tensors; send shorter ones"
        )


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number at that place, and the place after it."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80 or shift > 63:
            return value, at
        shift += 7


def _infer_request(request: Any, left_s: float | None) -> tuple[str, dict[str, str], list[bytes]]:
    """Route, headers and parts of the body for the HTTP API; `left_s`: until the call's
    deadline."""
    parameters = {key: _value(value) for key, value in request.parameters.items()}
    route = parameters.pop(_OPERATION, _INFER)
    if route not in _ROUTES:
        raise HttpError(
            400, f"{_OPERATION}: there is no {str(route)[:80]}; use {' or '.join(_ROUTES)}"
        )
    raw = list(request.raw_input_contents)
    if not 0 < len(request.inputs) <= MAX_TENSORS:
        raise HttpError(
            400, f"inputs: {len(request.inputs)} tensors; send 1 to {MAX_TENSORS} of them"
        )
    if raw and len(raw) != len(request.inputs):
        raise HttpError(
            400,
            f"raw_input_contents: {len(raw)} for {len(request.inputs)} inputs; send one for each",
        )
    inputs: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for number, tensor in enumerate(request.inputs):
        tensor_parts = [raw[number]] if raw else _typed(tensor)
        tensor_parameters = {key: _value(value) for key, value in tensor.parameters.items()}
        inputs.append(
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": list(tensor.shape),
                "parameters": tensor_parameters | {"binary_data_size": sum(map(len, tensor_parts))},
            }
        )
        parts += tensor_parts
    body: dict[str, Any] = {"id": request.id, "inputs": inputs}
    if route == _INFER:
        body["outputs"] = [
            {"name": output.name, "parameters": {"binary_data": True}} for output in request.outputs
        ]
        body["parameters"] = {**parameters, "binary_data_output": True}
    elif "row" in parameters:
        body["row"] = parameters["row"]
    head = json.dumps(body).encode()
    headers = {"content-type": "application/octet-stream", JSON_LENGTH_HEADER: str(len(head))}
    if left_s is not None and not TIMEOUT_PARAMETERS.keys() & parameters.keys():
        headers[CALL_TIMEOUT_HEADER] = repr(max(1e-3, left_s * 1e3))
    return route, headers, [head, *parts]


async def _abort(context: Any, status: int, body: bytes) -> None:
    try:
        reason = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        reason = f"status {status}"
    await context.abort(_CODES.get(status, grpc.StatusCode.INTERNAL), reason)


def _path_of(name: str, version: str) -> str:
    return f"/v2/models/{name}" + (f"/versions/{version}" if version else "")


def _model_path(request: Any) -> str:
    return _path_of(request.name, request.version)


def _statistics_path(request: Any) -> str:
    return f"{_model_path(request)}/stats" if request.name else "/v2/models/stats"


def _value(parameter: Any) -> Any:
    chosen = parameter.WhichOneof("choice")
    return None if chosen is None else getattr(parameter, chosen)


def _typed(tensor: Any) -> list[bytes]:
    """The bytes of a tensor's contents; HttpError 400 where they are of another datatype."""
    if tensor.datatype == TEXTS:
        texts = tensor.contents.bytes_contents
        return [part for text in texts for part in (len(text).to_bytes(4, "little"), text)]
    values: Sequence[int] = getattr(tensor.contents, _CONTENTS.get(tensor.datatype, ""), ())
    dtype = DTYPES.get(tensor.datatype, np.dtype(np.uint8))
    try:
        return [np.fromiter(values, dtype, len(values)).tobytes()]
    except (ValueError, OverflowError) as error:
        raise HttpError(
            400,
            f"inputs: the contents of {tensor.name[:80]} are not {tensor.datatype[:80]} "
            f"({error}); send raw_input_contents, or the list of that datatype",
        ) from error
