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
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass
from starlette.types import ASGIApp, Message

from migrator.core.errors import InputError
from migrator.serve.http.inference import CALL_TIMEOUT_HEADER, TIMEOUT_HEADER, TIMEOUT_PARAMETERS
from migrator.serve.http.protocol import DTYPES, TEXTS
from migrator.serve.http.requests import JSON_LENGTH_HEADER, REQUEST_ID_HEADER, Limits

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

_MESSAGES = """
ServerLiveRequest:
ServerLiveResponse: bool live 1
ServerReadyRequest:
ServerReadyResponse: bool ready 1
ServerMetadataRequest:
ServerMetadataResponse: string name 1, string version 2, repeated string extensions 3
ModelReadyRequest: string name 1, string version 2
ModelReadyResponse: bool ready 1
ModelMetadataRequest: string name 1, string version 2
ModelMetadataResponse: string name 1, repeated string versions 2, string platform 3, \
repeated TensorMetadata inputs 4, repeated TensorMetadata outputs 5
TensorMetadata: string name 1, string datatype 2, repeated int64 shape 3
InferParameter: oneof bool bool_param 1, oneof int64 int64_param 2, oneof string string_param 3, \
oneof double double_param 4, oneof uint64 uint64_param 5
InferTensorContents: repeated bool bool_contents 1, repeated int32 int_contents 2, \
repeated int64 int64_contents 3, repeated uint32 uint_contents 4, \
repeated uint64 uint64_contents 5, repeated float fp32_contents 6, \
repeated double fp64_contents 7, repeated bytes bytes_contents 8
InferInputTensor: string name 1, string datatype 2, repeated int64 shape 3, \
map InferParameter parameters 4, InferTensorContents contents 5
InferRequestedOutputTensor: string name 1, map InferParameter parameters 2
ModelInferRequest: string model_name 1, string model_version 2, string id 3, \
map InferParameter parameters 4, repeated InferInputTensor inputs 5, \
repeated InferRequestedOutputTensor outputs 6, repeated bytes raw_input_contents 7
InferOutputTensor: string name 1, string datatype 2, repeated int64 shape 3, \
map InferParameter parameters 4, InferTensorContents contents 5
ModelInferResponse: string model_name 1, string model_version 2, string id 3, \
map InferParameter parameters 4, repeated InferOutputTensor outputs 5, \
repeated bytes raw_output_contents 6
ModelConfigRequest: string name 1, string version 2
ModelConfigResponse: ModelConfig config 1
ModelConfig: string name 1, string platform 2, string backend 17, int32 max_batch_size 4, \
repeated ModelInput input 5, repeated ModelOutput output 6, \
ModelDynamicBatching dynamic_batching 11, ModelTransactionPolicy model_transaction_policy 19
ModelInput: string name 1, DataType data_type 2, repeated int64 dims 4
ModelOutput: string name 1, DataType data_type 2, repeated int64 dims 3
ModelDynamicBatching: repeated int32 preferred_batch_size 1, uint64 max_queue_delay_microseconds 2
ModelTransactionPolicy: bool decoupled 1
ModelStatisticsRequest: string name 1, string version 2
ModelStatisticsResponse: repeated ModelStatistics model_stats 1
ModelStatistics: string name 1, string version 2, uint64 last_inference 3, \
uint64 inference_count 4, uint64 execution_count 5, InferStatistics inference_stats 6
InferStatistics: StatisticDuration success 1, StatisticDuration fail 2, \
StatisticDuration queue 3, StatisticDuration compute_input 4, StatisticDuration compute_infer 5, \
StatisticDuration compute_output 6, StatisticDuration cache_hit 7, StatisticDuration cache_miss 8
StatisticDuration: uint64 count 1, uint64 ns 2
RepositoryIndexRequest: string repository_name 1, bool ready 2
RepositoryIndexResponse: repeated ModelIndex models 1
ModelIndex: string name 1, string version 2, string state 3, string reason 4
"""
"""Per line a message and its fields: [repeated|map|oneof] type name number.

The field numbers are those of the public protocol. The classes are made when the server starts, in
a pool of their own: generated code would be tied to one version of protobuf, and its names would
collide with those of a client library in the same process.
"""
_DATA_TYPES = (
    *("INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "FP32", "FP64", "STRING", "BF16"),
)
_SCALARS = ("bool", "string", "bytes", "int32", "int64", "uint32", "uint64", "float", "double")
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


def message_classes() -> dict[str, Any]:
    """Name of a message -> its class."""
    file = FileDescriptorProto(name="open_inference.proto", package=PACKAGE, syntax="proto3")
    types = EnumDescriptorProto(name="DataType")
    for number, name in enumerate(_DATA_TYPES):
        types.value.add(name=f"TYPE_{name}", number=number)
    file.enum_type.append(types)
    file.message_type.extend(map(_message, _MESSAGES.strip().splitlines()))
    pool = DescriptorPool()
    pool.Add(file)
    return {
        each.name: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{each.name}"))
        for each in file.message_type
    }


def _message(line: str) -> DescriptorProto:
    name, _, fields = line.partition(":")
    made = DescriptorProto(name=name)
    for text in filter(None, map(str.strip, fields.split(","))):
        *label, kind, field_name, number = text.split()
        field = made.field.add(
            name=field_name,
            number=int(number),
            label=FieldDescriptorProto.LABEL_REPEATED
            if label in (["repeated"], ["map"])
            else FieldDescriptorProto.LABEL_OPTIONAL,
        )
        if label == ["map"]:
            _set_type(field, _map_entry(made, field_name, kind))
        else:
            _set_type(field, kind)
        if label == ["oneof"]:
            if not made.oneof_decl:
                made.oneof_decl.add(name="choice")
            field.oneof_index = 0
    return made


def _map_entry(made: DescriptorProto, field: str, kind: str) -> str:
    """A map is a list of messages with a key and a value."""
    entry = made.nested_type.add(name=f"{field.title()}Entry")
    entry.options.map_entry = True
    for number, (name, each) in enumerate((("key", "string"), ("value", kind)), 1):
        part = entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        _set_type(part, each)
    return f"{made.name}.{entry.name}"


def _set_type(field: FieldDescriptorProto, kind: str) -> None:
    if kind in _SCALARS:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
        return
    field.type_name = f".{PACKAGE}.{kind}"
    field.type = (
        FieldDescriptorProto.TYPE_ENUM if kind == "DataType" else FieldDescriptorProto.TYPE_MESSAGE
    )


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
        if raw and len(raw) != len(request.inputs):
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"raw_input_contents: {len(raw)} for {len(request.inputs)} inputs; send one for "
                "each input, in the same order",
            )
        tensors: list[bytes] = []
        inputs = []
        for at, each in enumerate(request.inputs):
            try:
                tensors.append(raw[at] if raw else _typed(each))
            except (ValueError, OverflowError) as error:
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
    if tensor.datatype == TEXTS:
        texts = tensor.contents.bytes_contents
        return b"".join(len(each).to_bytes(4, "little") + each for each in texts)
    values: Sequence[int] = getattr(tensor.contents, _CONTENTS.get(tensor.datatype, ""), ())
    dtype = DTYPES.get(tensor.datatype, np.dtype(np.uint8))
    return np.array(list(values), dtype).tobytes()
