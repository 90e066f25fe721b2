"""ModelInfer over gRPC: its message as a request of the HTTP API, and the answer as a message."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from migrator.core.errors import HttpError
from migrator.core.tensors import DTYPES
from migrator.serving.grpc.application import ApplicationClient, abort, path_of
from migrator.serving.http.bodies import JSON_LENGTH_HEADER
from migrator.serving.http.inference import CALL_TIMEOUT_HEADER, TIMEOUT_PARAMETERS
from migrator.serving.http.protocol import MAX_TENSORS, TEXTS

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


async def infer(application: ApplicationClient, response: Any, request: Any, context: Any) -> Any:
    """The answer to a ModelInfer, of the class `response`."""
    name, version = request.model_name, request.model_version
    route, headers, parts = _infer_request(request, context.time_remaining())
    path = f"{path_of(name, version)}/{route}"
    del request  # its tensors must not wait with the call
    status, sent, answer = await application.ask("POST", path, context, headers, parts)
    parts.clear()  # where it was refused unread
    if status != 200:
        await abort(context, status, answer)
    length = int(sent.get(JSON_LENGTH_HEADER, len(answer)))
    content = json.loads(answer[:length])
    if route != _INFER:
        content = {"id": content.pop("id"), "parameters": content}
        content |= {"model_name": name, "model_version": version, "outputs": []}
    return _infer_response(response, content, answer[length:])


def _infer_response(response: Any, content: Mapping[str, Any], tensors: bytes) -> Any:
    answer = response(
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
        answer.outputs.add(name=output["name"], datatype=output["datatype"], shape=output["shape"])
        answer.raw_output_contents.append(tensors[at : at + size])
        at += size
    return answer


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
