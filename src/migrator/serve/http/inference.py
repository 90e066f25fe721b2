"""POST .../infer, .../feedback and .../samples: a tenant's requests, the true labels of them, and
labelled samples for which no answer is wanted."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import msgspec
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from migrator.core.errors import HttpError
from migrator.serve.http.operations import (
    ApiState,
    EncodedResponse,
    Feedback,
    json_response,
    state_of,
)
from migrator.serve.http.protocol import (
    FeedbackAnswer,
    FeedbackRequest,
    InferRequest,
    InputTensor,
    SamplesAnswer,
    SamplesRequest,
    encode_answer,
    finite_scores,
    flat_decoder,
    has_long_texts,
    read_input,
    read_parameters,
    requested_outputs,
)
from migrator.serve.http.requests import (
    JSON_LENGTH_HEADER,
    MEDIA_TYPES,
    cancel_at_disconnect,
    headers_of,
    is_disconnected,
    new_id,
    read_message,
    request_id,
    require_media_type,
    require_own_page,
)
from migrator.serve.workers.messages import ModelInterface

TIMEOUT_HEADER = "timeout-ms"
TIMEOUT_PARAMETERS = {"timeout_ms": 1e-3, "deadline_ms": 1e-3, "timeout": 1e-6}
"""Request parameters and their unit in seconds; `timeout` is in microseconds, as in Triton."""
CALL_TIMEOUT_HEADER = "call-timeout-ms"
"""What is left of a gRPC call: it counts where it is shorter than the tenant's objective."""
MAX_TIMEOUT_S = 600.0

_INFER_DECODER = msgspec.json.Decoder(InferRequest)
_FEEDBACK_DECODER = msgspec.json.Decoder(FeedbackRequest)
_SAMPLES_DECODER = msgspec.json.Decoder(SamplesRequest)
_JSON, _BINARY = (
    (b"content-type", b"application/json"),
    (b"content-type", b"application/octet-stream"),
)
_JSON_LENGTH, _TIMEOUT = JSON_LENGTH_HEADER.encode(), TIMEOUT_HEADER.encode()
_CALL_TIMEOUT = CALL_TIMEOUT_HEADER.encode()
_ROWS_AT_ONCE = 128
"""Rows of an upload that are stored before other requests have their turn."""


def model_of(request: Request) -> ModelInterface:
    """The model and version in the path; HttpError 404 where they do not exist."""
    backend, parameters = state_of(request).backend, request.path_params
    name = parameters["name"]
    model = backend.models.get(name)
    if model is None:
        raise HttpError(
            404, f"model: there is no {name[:80]}; use one of {', '.join(backend.models)}"
        )
    wanted = parameters.get("version")
    if wanted is not None and wanted != str(serving := backend.version(name)):
        raise HttpError(
            404,
            f"version: {name} has version {serving} now, not {wanted[:80]}; leave the version out",
        )
    return model


async def infer(request: Request) -> Response:
    """Scores and labels of one tensor of inputs."""
    state, model = state_of(request), model_of(request)
    flat = flat_decoder(model.datatype)
    message, binary = await read_message(request, state.limits, _INFER_DECODER, flat)
    parameters = read_parameters(message)
    # feedback finds requests by this id: a header that a client repeats would not do
    own_id = message.id or new_id()
    log_id = request_id(request, own_id)
    inputs = await _read_input(message.inputs[0], binary, model)
    outputs = requested_outputs(message.outputs, parameters.get("binary_data_output") is True)
    router, name = state.backend.router, model.name
    timeout_s = _timeout_s(request, parameters, router.settings(name).slo_s)
    del message, binary  # they refer to the whole body, which must not wait with the request
    deadline_s = None if timeout_s is None else router.clock() + timeout_s
    queued = router.submit(name, inputs, deadline_s, log_id)
    cancel_at_disconnect(request, queued.answer)
    try:
        routed = await queued.answer
    except asyncio.CancelledError:
        router.withdraw(name, queued)
        if is_disconnected(request):
            raise ClientDisconnect from None
        raise
    if routed.late:
        state.access_log.late(request, name, routed.waited_s, routed.served_s)
    scores, labels = finite_scores(routed.scores)
    state.recent[name].add(own_id, inputs, labels)
    body, json_length = encode_answer(
        name, routed.version, own_id, routed.late, scores, labels, outputs
    )
    if json_length is None:
        return EncodedResponse(body, _JSON)
    return EncodedResponse(body, _BINARY, (_JSON_LENGTH, str(json_length).encode()))


async def feedback(request: Request) -> Response:
    """The true label of an answered request, or of an input sent along; kept on disk."""
    state, model = state_of(request), model_of(request)
    message, binary = await _read_labels(request, state, _FEEDBACK_DECODER)
    _require_class("label", message.label, model)
    if message.inputs:
        given = await _label_of_inputs(state, message, binary, model)
    else:
        given = _label_of_request(state, message, model)
    await state.backend.feedback(given)
    return json_response(FeedbackAnswer(id=given.request_id, stored=True))


async def samples(request: Request) -> Response:
    """Labelled samples to learn from in the next window; no answer is computed. Kept on disk."""
    state, model = state_of(request), model_of(request)
    message, binary = await _read_labels(request, state, _SAMPLES_DECODER)
    inputs = await _read_input(message.inputs[0], binary, model)
    labels, given_id = message.labels, message.id or uuid4().hex
    del message, binary  # they refer to the whole body
    if len(labels) != len(inputs):
        raise HttpError(
            400, f"labels: {len(labels)} for {len(inputs)} rows of inputs; send one per row"
        )
    _require_class("labels", max(labels), model)
    stored = 0
    for first in range(0, len(labels), _ROWS_AT_ONCE):
        rows = range(first, min(first + _ROWS_AT_ONCE, len(labels)))
        # a window may begin during an upload, and then learns only what is already stored
        window = state.backend.window().of_labels
        stored += sum(
            await asyncio.gather(
                *(
                    state.backend.feedback(
                        Feedback(
                            model.name,
                            window,
                            inputs[row],
                            labels[row],
                            None,
                            _sample_id(given_id, row, inputs[row], labels[row]),
                        )
                    )
                    for row in rows
                )
            )
        )
    repeated = len(labels) - stored
    return json_response(SamplesAnswer(id=given_id, stored=stored, repeated=repeated))


async def _read_input(
    tensor: InputTensor, binary: memoryview, model: ModelInterface
) -> NDArray[Any]:
    """The rows of a request; long texts are encoded beside other requests."""
    if has_long_texts(tensor, binary):
        return await asyncio.to_thread(read_input, tensor, binary, model)
    return read_input(tensor, binary, model)


def _sample_id(upload_id: str, row: int, inputs: NDArray[Any], label: int) -> str:
    """The id of a row of an upload. It depends on the content: another upload with the same id
    must not count as stored."""
    content = hashlib.blake2b(inputs.tobytes(), digest_size=8, salt=str(label).encode())
    return f"{upload_id}/{row}/{content.hexdigest()}"


async def _read_labels(
    request: Request, state: ApiState, decoder: msgspec.json.Decoder[Any]
) -> tuple[Any, memoryview]:
    """A message with labels, which a page of another site must not send."""
    require_own_page(request, state.tokens)
    if not state.tokens.configured:
        require_media_type(request, *MEDIA_TYPES)
    message, binary = await read_message(request, state.limits, decoder)
    request_id(request, message.id)
    return message, binary


def _require_class(key: str, label: int, model: ModelInterface) -> None:
    if label >= model.classes:
        raise HttpError(
            400, f"{key}: {label} is not a class of {model.name}; send 0 to {model.classes - 1}"
        )


async def _label_of_inputs(
    state: ApiState, message: FeedbackRequest, binary: memoryview, model: ModelInterface
) -> Feedback:
    inputs = await _read_input(message.inputs[0], binary, model)
    if len(inputs) != 1:
        raise HttpError(400, f"inputs: {len(inputs)} rows for one label; send one row")
    window, given_id = state.backend.window().of_labels, message.id or uuid4().hex
    return Feedback(model.name, window, inputs[0], message.label, None, given_id)


def _label_of_request(state: ApiState, message: FeedbackRequest, model: ModelInterface) -> Feedback:
    found = state.recent[model.name].find(message.id)
    if found is None:
        raise HttpError(
            404, "id: not among the recently answered requests; send the inputs with the label"
        )
    row = message.row
    if row >= len(found.inputs):
        raise HttpError(400, f"row: the request has {len(found.inputs)}; send one below that")
    return Feedback(
        model.name,
        state.backend.window().of_labels,
        found.inputs[row],
        message.label,
        found.predicted[row],
        message.id if len(found.inputs) == 1 else f"{message.id}/{row}",
    )


def _timeout_s(request: Request, parameters: Mapping[str, Any], slo_s: float) -> float | None:
    """The time that the client allows; None: the tenant's objective."""
    headers = headers_of(request)
    if _TIMEOUT in headers:
        return _seconds(TIMEOUT_HEADER, _number(headers[_TIMEOUT]), 1e-3)
    if parameters:
        for key, unit_s in TIMEOUT_PARAMETERS.items():
            if key in parameters:
                return _seconds(key, parameters[key], unit_s)
    if _CALL_TIMEOUT in headers:
        left_s = min(_number(headers[_CALL_TIMEOUT]) or 0.0, MAX_TIMEOUT_S * 1e3)
        left_s = _seconds(CALL_TIMEOUT_HEADER, left_s, 1e-3)
        return left_s if left_s < slo_s else None
    return None


def _number(header: bytes) -> float | None:
    try:
        return float(header)
    except ValueError:
        return None


def _seconds(key: str, given: object, unit_s: float) -> float:
    number = given if isinstance(given, int | float) and not isinstance(given, bool) else 0
    # compared before it is multiplied: an integer may be too large for a float
    if 0 < number <= MAX_TIMEOUT_S / unit_s:
        return number * unit_s
    raise HttpError(400, f"{key}: not a time between 0 and {MAX_TIMEOUT_S:g} s; send a number")
