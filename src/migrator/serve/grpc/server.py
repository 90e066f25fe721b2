"""The Open Inference Protocol over gRPC, in front of the HTTP application of a daemon or gateway.

Every call becomes a request to that application inside this process, so that tokens, limits,
deadlines, counters and refusals are the same whichever way a client comes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import grpc
import numpy as np
from google.protobuf.json_format import ParseDict
from starlette.types import ASGIApp, Message

from migrator.core.errors import InputError
from migrator.serve.grpc.messages import SERVICE, message_classes
from migrator.serve.http.inference import (
    CALL_TIMEOUT_HEADER,
    TIMEOUT_HEADER,
    TIMEOUT_PARAMETERS,
)
from migrator.serve.http.requests import JSON_LENGTH_HEADER, REQUEST_ID_HEADER, Limits
from migrator.serve.http.tensors import DTYPES, TEXTS

_PASSED_HEADERS = ("authorization", REQUEST_ID_HEADER, TIMEOUT_HEADER)
_ENVELOPE_BYTES = 64 * 2**10
"""Of a message beside its tensors."""
_GRACE_S = 5.0
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_CONTENTS = {"UINT8": "uint_contents", "INT32": "int_contents"}
"""Datatype -> the list in which a client may send its values."""

_log = logging.getLogger(__name__)


class GrpcServer:
    """Serves an application over gRPC from `start` to `stop`."""

    def __init__(self, app: ASGIApp, *, host: str, port: int, limits: Limits) -> None:
        """Listens at once, so that a port in use is found early; calls wait for `start`."""
        self._app = app
        self._messages = message_classes()
        largest = limits.body_bytes + _ENVELOPE_BYTES
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=limits.connections,
            options=[
                ("grpc.max_receive_message_length", largest),
                ("grpc.max_metadata_size", limits.header_bytes),
                ("grpc.so_reuseport", 0),
            ],
        )
        handlers = {name: self._handler(name, each) for name, each in self._calls().items()}
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self._server.add_generic_rpc_handlers((generic,))
        name = f"[{host}]" if ":" in host else host
        try:
            self.port = self._server.add_insecure_port(f"{name}:{port}")
        except RuntimeError:
            self.port = 0
        if self.port == 0:
            raise InputError(
                f"grpc_port: cannot listen on {host}:{port}; use another port, or 0 for any free "
                "one"
            )
        self.address = f"{name}:{self.port}"

    async def start(self) -> None:
        """Returns when calls are answered."""
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
            "ModelInfer": self._infer,
        }

    def _handler(self, name: str, call: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            call,
            request_deserializer=self._messages[f"{name}Request"].FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )

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
            found = await self._json("GET", path(request), context)
            return ParseDict(found, self._messages[answer](), ignore_unknown_fields=True)

        return call

    async def _model_config(self, request: Any, context: Any) -> Any:
        found = await self._json("GET", f"{_model_path(request)}/config", context)
        answer = self._messages["ModelConfigResponse"]()
        return ParseDict({"config": found}, answer, ignore_unknown_fields=True)

    async def _index(self, _request: Any, context: Any) -> Any:
        found = await self._json("POST", "/v2/repository/index", context)
        return ParseDict({"models": found}, self._messages["RepositoryIndexResponse"]())

    # Inference.

    async def _infer(self, request: Any, context: Any) -> Any:
        headers, body = await self._infer_request(request, context)
        path = f"{_path_of(request.model_name, request.model_version)}/infer"
        status, sent, answer = await self._ask("POST", path, context, headers, body)
        if status != 200:
            await _abort(context, status, answer)
        length = int(sent.get(JSON_LENGTH_HEADER, len(answer)))
        return self._infer_response(json.loads(answer[:length]), answer[length:])

    async def _infer_request(self, request: Any, context: Any) -> tuple[dict[str, str], bytes]:
        parameters = {key: _value(each) for key, each in request.parameters.items()}
        raw = list(request.raw_input_contents)
        tensors: list[bytes] = []
        inputs = []
        for at, each in enumerate(request.inputs):
            try:
                tensors.append(raw[at] if raw else _typed(each))
            except (IndexError, ValueError, OverflowError) as error:
                await context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"inputs: the contents of {each.name[:80]} are not {each.datatype[:80]} "
                    f"({error}); send raw_input_contents, or the list of that datatype",
                )
            own = {key: _value(value) for key, value in each.parameters.items()}
            own["binary_data_size"] = len(tensors[-1])
            shape = list(each.shape)
            inputs.append(
                {"name": each.name, "datatype": each.datatype, "shape": shape, "parameters": own}
            )
        outputs = [
            {"name": each.name, "parameters": {"binary_data": True}} for each in request.outputs
        ]
        head = json.dumps(
            {
                "id": request.id,
                "inputs": inputs,
                "outputs": outputs,
                "parameters": {**parameters, "binary_data_output": True},
            }
        ).encode()
        headers = {
            "content-type": "application/octet-stream",
            JSON_LENGTH_HEADER: str(len(head)),
        }
        if not TIMEOUT_PARAMETERS.keys() & parameters.keys():
            left_s = context.time_remaining()
            if left_s is not None:
                headers[CALL_TIMEOUT_HEADER] = repr(max(1e-3, left_s * 1e3))
        return headers, b"".join([head, *tensors])

    def _infer_response(self, found: Mapping[str, Any], tensors: bytes) -> Any:
        answer = self._messages["ModelInferResponse"](
            model_name=found["model_name"], model_version=found["model_version"], id=found["id"]
        )
        for key, value in found["parameters"].items():
            answer.parameters[key].bool_param = bool(value)
        at = 0
        for each in found["outputs"]:
            size = each["parameters"]["binary_data_size"]
            answer.outputs.add(name=each["name"], datatype=each["datatype"], shape=each["shape"])
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
        body: bytes = b"",
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the application's answer."""
        given = {str(key): value for key, value in context.invocation_metadata() or ()}
        passed = {key: str(given[key]) for key in _PASSED_HEADERS if key in given}
        both = {"content-length": str(len(body)), **passed, **(headers or {})}
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
            "headers": [(key.encode(), value.encode()) for key, value in both.items()],
            "client": None,
            "server": None,
        }
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Message] = []

        async def receive() -> Message:
            if waiting:
                return waiting.pop()
            await asyncio.Event().wait()  # the call is cancelled when its client leaves
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        answered = {str(k, "latin-1"): str(v, "latin-1") for k, v in sent[0]["headers"]}
        return sent[0]["status"], answered, b"".join(each.get("body", b"") for each in sent[1:])


async def _abort(context: Any, status: int, body: bytes) -> None:
    try:
        words = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        words = f"status {status}"
    await context.abort(_CODES.get(status, grpc.StatusCode.INTERNAL), words)


def _path_of(name: str, version: str) -> str:
    return f"/v2/models/{name}" + (f"/versions/{version}" if version else "")


def _model_path(request: Any) -> str:
    return _path_of(request.name, request.version)


def _statistics_path(request: Any) -> str:
    return f"{_model_path(request)}/stats" if request.name else "/v2/models/stats"


def _value(parameter: Any) -> Any:
    chosen = parameter.WhichOneof("choice")
    return None if chosen is None else getattr(parameter, chosen)


def _typed(tensor: Any) -> bytes:
    """The bytes of values that were sent as a list of numbers or of texts."""
    if tensor.datatype == TEXTS:
        texts = tensor.contents.bytes_contents
        return b"".join(len(each).to_bytes(4, "little") + each for each in texts)
    values: Sequence[int] = getattr(tensor.contents, _CONTENTS.get(tensor.datatype, ""), ())
    dtype = DTYPES.get(tensor.datatype, np.dtype(np.uint8))
    return np.array(list(values), dtype).tobytes()
