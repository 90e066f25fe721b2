"""POST .../infer, .../feedback and .../samples: a tenant's requests, the true labels of them, and
labelled samples for which no answer is wanted."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from migrator.core.errors import HttpError
from migrator.serving.http.bodies import (
    JSON_LENGTH_HEADER,
    MEDIA_TYPES,
    HeldBody,
    read_message,
    require_media_type,
)
from migrator.serving.http.operations import ApiState, Feedback, json_response, state_of
from migrator.serving.http.protocol import (
    LABEL,
    MAX_SAMPLES,
    FeedbackAnswer,
    FeedbackRequest,
    InferRequest,
    InputTensor,
    SamplesAnswer,
    SamplesRequest,
    read_parameters,
)
from migrator.serving.http.requests import DisconnectGuard, headers_of, new_id, request_id
from migrator.serving.http.tensors import (
    encode_answer,
    finite_scores,
    flat_decoder,
    has_long_texts,
    label_specs,
    largest_body,
    read_input,
    read_records,
    requested_outputs,
    require_rows,
    tensor_parts,
)
from migrator.serving.workers.messages import ModelInterface

TIMEOUT_HEADER = "timeout-ms"
TIMEOUT_PARAMETERS = {"timeout_ms": 1e-3, "timeout": 1e-6}
"""Request parameters and their unit in seconds; `timeout` is in microseconds, as in Triton."""
CALL_TIMEOUT_HEADER = "call-timeout-ms"
"""What is left of a gRPC call: it counts where it is shorter than the tenant's objective."""
MAX_TIMEOUT_S = 600.0

_INFER_DECODER = msgspec.json.Decoder(InferRequest)
_FEEDBACK_DECODER = msgspec.json.Decoder(FeedbackRequest)
_SAMPLES_DECODER = msgspec.json.Decoder(SamplesRequest)
_TIMEOUT, _CALL_TIMEOUT = TIMEOUT_HEADER.encode(), CALL_TIMEOUT_HEADER.encode()
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
    """The outputs of a model: of a classifier scores, labels and names of classes."""
    state, model = state_of(request), model_of(request)
    flat = None if model.inputs else flat_decoder(model.datatype)
    router, name = state.backend.router, model.name
    settings = router.settings(name)
    limit_bytes = _body_bytes(state, model, settings.batch)
    with state.bodies.hold() as held:
        message, binary = await read_message(request, held, limit_bytes, _INFER_DECODER, flat)
        parameters = read_parameters(message)
        # feedback finds requests by this id: a header that a client repeats would not do
        own_id = message.id or new_id()
        log_id = request_id(request, own_id)
        every_binary = parameters.get("binary_data_output") is True
        outputs = requested_outputs(message.outputs, every_binary, model)
        timeout_s = _timeout_s(request, parameters, settings.slo_s)
        deadline_s = router.clock() + timeout_s
        require_rows(message.inputs[0], settings.batch, model)
        inputs = await _read_inputs(
            request, held, tensor_parts(message.inputs, binary), model, timeout_s
        )
        # they refer to the whole body, which must not wait with the request
        del message, binary
    queued = router.submit(name, inputs, deadline_s, log_id)
    try:
        with DisconnectGuard(request):
            routed = await queued.answer
    except (asyncio.CancelledError, ClientDisconnect):
        router.withdraw(name, queued)
        raise
    if routed.late:
        state.access_log.late(request, name, routed.waited_s, routed.served_s)
    scores, labels = (routed.scores, []) if model.outputs else finite_scores(routed.scores)
    second = None if routed.late else queued.second
    if model.judges:
        state.recent[name].add(own_id, inputs, None, second, routed.scores)
    else:
        state.recent[name].add(own_id, inputs, labels, second)
    body, json_length = encode_answer(
        model, routed.version, own_id, routed.late, scores, labels, outputs
    )
    if json_length is None:
        return Response(body, media_type="application/json")
    length = {JSON_LENGTH_HEADER: str(json_length)}
    return Response(body, headers=length, media_type="application/octet-stream")


async def feedback(request: Request) -> Response:
    """The true label of an answered request, or of an input sent along; kept on disk."""
    state, model = state_of(request), model_of(request)
    limit_bytes = _body_bytes(state, model, 1)
    with state.bodies.hold() as held:
        message, binary = await _read_labels(request, held, limit_bytes, _FEEDBACK_DECODER)
        parts = tensor_parts(message.inputs, binary) if message.inputs else []
        given_label = [] if message.label is UNSET else [message.label]
        labels, parts = _take_labels("label", given_label, parts, model)
        if len(labels) != 1:
            raise HttpError(400, f"label: {len(labels)} labels; send one")
        label = labels[0, ...] if isinstance(labels, np.ndarray) else labels[0]
        if parts:
            given = await _label_of_inputs(request, held, message, label, parts, model)
        else:
            given = _label_of_request(state, message, label, model)
    await state.backend.feedback(given)
    return json_response(FeedbackAnswer(id=given.request_id, stored=True))


async def samples(request: Request) -> Response:
    """Labelled samples to learn from in the next window; no answer is computed. Kept on disk."""
    state, model = state_of(request), model_of(request)
    with state.bodies.hold() as held:
        limit_bytes = state.limits.body_bytes
        message, binary = await _read_labels(request, held, limit_bytes, _SAMPLES_DECODER)
        given_id = message.id or uuid4().hex
        labels, parts = _take_labels(
            "labels", message.labels, tensor_parts(message.inputs, binary), model
        )
        if not parts:
            raise HttpError(400, "inputs: labels without inputs; send those of the samples")
        rows = parts[0][0].shape[0]
        if len(labels) != rows or rows > MAX_SAMPLES:
            raise HttpError(
                400,
                f"labels: {len(labels)} for {rows} rows of inputs; send one per row, and at most "
                f"{MAX_SAMPLES} at a time",
            )
        inputs = await _read_inputs(request, held, parts, model)
        del message, binary, parts  # they refer to the whole body
        stored = await _store_samples(state, model, inputs, labels, given_id)
    repeated = len(labels) - stored
    return json_response(SamplesAnswer(id=given_id, stored=stored, repeated=repeated))


async def _store_samples(
    state: ApiState,
    model: ModelInterface,
    inputs: NDArray[Any],
    labels: list[int] | NDArray[Any],
    given_id: str,
) -> int:
    """Store all rows of an upload; how many are new."""
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
                            inputs[row, ...],
                            labels[row, ...] if isinstance(labels, np.ndarray) else labels[row],
                            None,
                            _sample_id(given_id, row, inputs[row, ...]),
                        )
                    )
                    for row in rows
                )
            )
        )
    return stored


def _body_bytes(state: ApiState, model: ModelInterface, rows: int) -> int:
    return min(state.limits.body_bytes, largest_body(model, rows))


def _take_labels(
    key: str,
    given: Sequence[int | str],
    parts: Sequence[tuple[InputTensor, memoryview]],
    model: ModelInterface,
) -> tuple[list[int] | NDArray[Any], list[tuple[InputTensor, memoryview]]]:
    """The labels of a request, under their own key or among its tensors, and the other tensors.

    Labels are classes, or records where the model has tensors as labels.
    """
    specs = label_specs(model)
    names = {spec.name for spec in specs}
    of_labels = [part for part in parts if part[0].name in names]
    others = [part for part in parts if part[0].name not in names]
    if given and (model.labels or of_labels):
        where = f"the tensors {', '.join(sorted(names))} among the inputs"
        raise HttpError(400, f"{key}: not beside or in place of tensors; send {where} alone")
    if model.labels:
        return read_records(of_labels, specs, f"a label of {model.name}"), others
    if of_labels:
        numbers = read_records(of_labels, specs, f"a label of {model.name}")[LABEL].tolist()
        return [_class_number(key, number, model) for number in numbers], others
    return [_class_number(key, label, model) for label in given], others


async def _read_inputs(
    request: Request,
    held: HeldBody,
    parts: Sequence[tuple[InputTensor, memoryview]],
    model: ModelInterface,
    timeout_s: float | None = None,
) -> NDArray[Any]:
    """The rows of a request; long texts are encoded beside other requests."""
    if model.inputs:
        return read_records(parts, model.inputs, model.name)
    if len(parts) != 1:
        raise HttpError(400, f"inputs: {len(parts)} tensors where {model.name} takes one; send one")
    tensor, binary = parts[0]
    if not has_long_texts(tensor, binary, model):
        return read_input(tensor, binary, model)
    try:
        async with asyncio.timeout(timeout_s):
            return await state_of(request).encoding.encode(request, held, tensor, binary, model)
    except TimeoutError:
        raise HttpError(
            504,
            f"{model.name}: the deadline passed while its texts were encoded; send fewer or "
            "shorter texts, or a longer timeout_ms",
        ) from None


def _sample_id(upload_id: str, row: int, inputs: NDArray[Any]) -> str:
    """The id of a row of an upload. It depends on the inputs: other samples with the same id must
    not count as stored. It does not depend on the label: another one for the same sample is a
    conflict, as it is for the same request."""
    content = hashlib.blake2b(inputs.tobytes(), digest_size=8)
    return f"{upload_id}/{row}/{content.hexdigest()}"


async def _read_labels(
    request: Request, held: HeldBody, limit_bytes: int, decoder: msgspec.json.Decoder[Any]
) -> tuple[Any, memoryview]:
    """A message with labels, which a page of another site must not send."""
    if not state_of(request).tokens.configured:
        require_media_type(request, *MEDIA_TYPES)
    message, binary = await read_message(request, held, limit_bytes, decoder)
    request_id(request, message.id)
    return message, binary


def _class_number(key: str, label: int | str, model: ModelInterface) -> int:
    """The class of a label; HttpError 400 if the model has none with that number or name."""
    number = model.class_number(label)
    if number is None:
        raise HttpError(
            400,
            f"{key}: {str(label)[:80]} is not a class of {model.name}; send 0 to "
            f"{model.classes - 1}, or a name of class_names in its metadata",
        )
    return number


async def _label_of_inputs(
    request: Request,
    held: HeldBody,
    message: FeedbackRequest,
    label: int | NDArray[Any],
    parts: Sequence[tuple[InputTensor, memoryview]],
    model: ModelInterface,
) -> Feedback:
    rows = parts[0][0].shape[0]
    if rows != 1:
        raise HttpError(400, f"inputs: {rows} rows for one label; send one row")
    inputs = await _read_inputs(request, held, parts, model)
    state = state_of(request)
    window, given_id = state.backend.window().of_labels, message.id or uuid4().hex
    return Feedback(model.name, window, inputs[0, ...], label, None, given_id)


def _label_of_request(
    state: ApiState, message: FeedbackRequest, label: int | NDArray[Any], model: ModelInterface
) -> Feedback:
    if not message.id:
        raise HttpError(400, "id: missing; send that of the answered request, or send its inputs")
    request = state.recent[model.name].find(message.id)
    if request is None:
        raise HttpError(
            404, "id: not among the recently answered requests; send the inputs with the label"
        )
    row = message.row
    if row >= len(request.inputs):
        raise HttpError(400, f"row: the request has {len(request.inputs)}; send one below that")
    return Feedback(
        model.name,
        state.backend.window().of_labels,
        request.inputs[row, ...],
        label,
        None if request.predicted is None else request.predicted[row],
        message.id if len(request.inputs) == 1 else f"{message.id}/{row}",
        request.second,
        None if request.outputs is None else request.outputs[row, ...],
    )


def _timeout_s(request: Request, parameters: Mapping[str, Any], slo_s: float) -> float:
    """The time that the client allows, else the tenant's objective."""
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
        return min(left_s, slo_s)
    return slo_s


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
