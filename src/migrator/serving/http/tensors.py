"""Tensors of the protocol as JSON, bytes and numpy arrays."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from functools import cache
from itertools import chain
from math import isfinite
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Raw, defstruct
from numpy.typing import NDArray

from migrator.core.errors import HttpError
from migrator.core.tensors import DTYPES, TensorSpec, to_records
from migrator.learn.tokens import CHARACTERS
from migrator.serving.http.protocol import (
    CLASS_NAME,
    INPUT,
    LABEL,
    SCORES,
    TEXTS,
    InferRequest,
    InputTensor,
    WantedOutput,
    decode,
    read_parameters,
)
from migrator.serving.workers.messages import ModelInterface

_LONG_BYTES = 16 * 2**10
_BODY_BYTES = 2**20
"""Of a body beside its rows: names, parameters, spaces."""
_NUMBER_BYTES, _CHARACTER_BYTES = 16, 6
"""As JSON: the longest number with a comma and spaces, and an escaped character."""
_OUTPUTS = (SCORES, LABEL, CLASS_NAME)
_REAL_BYTES = 26
"""As JSON: the longest floating-point number with a comma and a space."""
_NESTED = re.compile(rb"\s*\[\s*\[")
_ENCODE = msgspec.json.Encoder().encode


def largest_body(model: ModelInterface, rows: int) -> int:
    """The most bytes that a request with `rows` rows can need, in any encoding."""
    if model.inputs:
        specs = (*model.inputs, *model.labels)
        return _BODY_BYTES + rows * _REAL_BYTES * sum(math.prod(spec.shape) for spec in specs)
    width = math.prod(model.shape)
    if model.encode is not None:
        return _BODY_BYTES + rows * width * CHARACTERS * _CHARACTER_BYTES
    return _BODY_BYTES + rows * width * _NUMBER_BYTES


def require_rows(tensor: InputTensor, most: int, model: ModelInterface) -> None:
    """Refuse a tensor with too many rows, before anything of it is decoded."""
    if tensor.shape[0] > most:
        raise HttpError(
            400,
            f"inputs: {tensor.shape[0]} rows where {model.name} takes 1 to {most} at a time; split "
            "them into several requests",
        )


def tensor_parts(
    tensors: Sequence[InputTensor], binary: memoryview
) -> list[tuple[InputTensor, memoryview]]:
    """Every tensor with its part of the binary data, in their order."""
    if len(tensors) == 1:
        return [(tensors[0], binary)]
    parts, at = [], 0
    for tensor in tensors:
        declared = tensor.parameters.binary_data_size if tensor.parameters else 0
        size = 0 if declared is UNSET else declared
        parts.append((tensor, binary[at : at + size]))
        at += size
    if at != len(binary):
        raise HttpError(
            400,
            f"inputs: {len(binary)} bytes of binary data where the tensors have {at}; correct "
            "binary_data_size or the body",
        )
    return parts


def label_specs(model: ModelInterface) -> tuple[TensorSpec, ...]:
    """The tensors of a label; those of a class are its number."""
    return model.labels or (TensorSpec(LABEL, "INT64"),)


def read_records(
    parts: Sequence[tuple[InputTensor, memoryview]], specs: Sequence[TensorSpec], name: str
) -> NDArray[Any]:
    """One record per row of these tensors, each checked against what the model `name` declares."""
    expected = ", ".join(spec.name for spec in specs)
    sent = {tensor.name: (tensor, binary) for tensor, binary in parts}
    if len(sent) < len(parts) or set(sent) != {spec.name for spec in specs}:
        names = ", ".join(tensor.name[:80] for tensor, _ in parts[:8])
        raise HttpError(
            400,
            f"inputs: {name} takes one tensor each named {expected}; not {names}"
            f"{', ...' if len(parts) > 8 else ''}",
        )
    counts = {tensor.shape[0] for tensor, _ in parts}
    if len(counts) > 1:
        raise HttpError(400, f"inputs: tensors of {sorted(counts)} rows; send equally many of each")
    return to_records({spec.name: _read_tensor(*sent[spec.name], spec, name) for spec in specs})


def _read_tensor(
    tensor: InputTensor, binary: memoryview, spec: TensorSpec, name: str
) -> NDArray[Any]:
    _refuse_shared_memory(tensor)
    if tensor.datatype != spec.datatype:
        raise HttpError(
            400,
            f"inputs: {spec.name} of {name} is {spec.datatype}; not {tensor.datatype[:80]}",
        )
    rows = _read_rows(tensor, binary, spec.datatype, spec.shape, f"{spec.name} of {name}")
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        raise HttpError(
            400, f"inputs: {spec.name} contains NaN or infinity; send finite {spec.datatype}"
        )
    return rows


def _read_rows(
    tensor: InputTensor, binary: memoryview, datatype: str, row: tuple[int, ...], name: str
) -> NDArray[Any]:
    """The tensor's values, which have this datatype and shape of a row."""
    if tuple(tensor.shape[1:]) != row or tensor.shape[0] < 1:
        expected = ", ".join(map(str, ("rows", *row)))
        raise HttpError(
            400,
            f"inputs: shape {tensor.shape} where {name} takes [{expected}]; send that shape",
        )
    shape, dtype, parameters = tensor.shape, DTYPES[datatype], tensor.parameters
    if not parameters or parameters.binary_data_size is UNSET:
        return _from_json(tensor, binary, datatype, row)
    size = math.prod(shape) * dtype.itemsize
    if parameters.binary_data_size != size or len(binary) != size:
        raise HttpError(
            400,
            f"inputs: {len(binary)} bytes of binary data where shape and datatype need {size}; "
            "correct binary_data_size or the body",
        )
    rows: NDArray[Any] = np.ndarray(shape, dtype, bytes(binary))
    # any byte may stand for true
    return rows.view(np.uint8) != 0 if dtype == np.bool_ else rows


def has_long_texts(tensor: InputTensor, binary: memoryview, model: ModelInterface) -> bool:
    """Whether reading it takes so long that other requests must not wait for it."""
    if tensor.datatype != TEXTS or tensor.name != INPUT or model.encode is None:
        return False
    texts = memoryview(tensor.data) if isinstance(tensor.data, Raw) else binary
    return len(texts) > _LONG_BYTES


def read_input(tensor: InputTensor, binary: memoryview, model: ModelInterface) -> NDArray[Any]:
    """The rows of a request, checked against the model; a copy, so that the body can be freed."""
    if tensor.datatype == TEXTS and tensor.name == INPUT and model.encode is not None:
        return model.encode(read_texts(tensor, binary, model.name))
    _refuse_shared_memory(tensor)
    if tensor.name != INPUT or tensor.datatype != model.datatype:
        raise HttpError(
            400,
            f"inputs: {model.name} takes one tensor named {INPUT} of "
            f"{model.datatype if model.encode is None else f'{model.datatype} or {TEXTS}'}; not "
            f"{tensor.name[:80]} of {tensor.datatype[:80]}",
        )
    rows = _read_rows(tensor, binary, model.datatype, model.shape, model.name)
    if model.datatype != "UINT8" and (rows.min() < 0 or rows.max() >= model.values):
        raise HttpError(
            400,
            f"inputs: a token outside 0 to {model.values - 1}; encode with the model's vocabulary",
        )
    return rows


def _refuse_shared_memory(tensor: InputTensor) -> None:
    if tensor.parameters and tensor.parameters.shared_memory_region is not UNSET:
        raise HttpError(400, "inputs: shared memory is not supported; send the data in the request")


def read_texts(tensor: InputTensor, binary: memoryview, name: str) -> list[str]:
    """The texts of a request, as JSON or as Triton's clients write them: each after its length."""
    _refuse_shared_memory(tensor)
    rows = tensor.shape[0]
    if tensor.shape not in ([rows], [rows, 1]) or rows < 1:
        raise HttpError(
            400, f"inputs: shape {tensor.shape} where texts of {name} have [rows]; send that shape"
        )
    parameters = tensor.parameters
    if parameters and parameters.binary_data_size is not UNSET:
        if parameters.binary_data_size != len(binary):
            raise HttpError(
                400, f"inputs: {len(binary)} bytes of binary data; correct binary_data_size"
            )
        texts = _unpacked(binary, rows)
    elif isinstance(tensor.data, Raw):
        _require_few_texts(bytes(tensor.data), rows)
        nested = decode(_TEXT_DECODER, tensor.data, "inputs: data")
        texts = [
            text for entry in nested for text in ([entry] if isinstance(entry, str) else entry)
        ]
    else:
        raise HttpError(400, "inputs: no texts; send them as data, or binary_data_size and bytes")
    if len(texts) != rows:
        raise HttpError(400, f"inputs: {len(texts)} texts for {rows} rows; send one per row")
    return texts


_TEXT_DECODER = msgspec.json.Decoder(list[str | list[str]])


def _require_few_texts(data: bytes, rows: int) -> None:
    """Refuse many more texts than rows before they are decoded.

    Each text has two quotes; a quote inside it follows a backslash. The count is too low where a
    text ends with a backslash, and never too high.
    """
    least = (data.count(b'"') - data.count(b'\\"')) // 2
    if least > rows:
        raise HttpError(400, f"inputs: {least} texts or more for {rows} rows; send one per row")


def _unpacked(binary: memoryview, rows: int) -> list[str]:
    texts: list[str] = []
    at = 0
    try:
        while at < len(binary):
            if len(texts) == rows:
                raise ValueError(f"more than {rows}")
            (size,) = struct.unpack_from("<I", binary, at)
            if at + 4 + size > len(binary):
                raise ValueError("a text is longer than the data")
            texts.append(str(binary[at + 4 : at + 4 + size], "utf-8"))
            at += 4 + size
    except (struct.error, ValueError) as error:
        raise HttpError(
            400, f"inputs: not texts in UTF-8 after their lengths ({error}); correct the data"
        ) from error
    return texts


def _packed(texts: list[str]) -> bytes:
    """Texts as Triton's clients read them: each after its length."""
    encoded = [text.encode() for text in texts]
    return b"".join(struct.pack("<I", len(text)) + text for text in encoded)


def _from_json(
    tensor: InputTensor, binary: memoryview, datatype: str, row: tuple[int, ...]
) -> NDArray[Any]:
    """Numbers in one flat list, or nested as the shape; the first other value ends the decoding."""
    if tensor.data is UNSET or len(binary):
        raise HttpError(400, "inputs: no data; send data, or binary_data_size and the bytes")
    dtype, size = DTYPES[datatype], math.prod(tensor.shape)
    if isinstance(tensor.data, list):
        values = tensor.data
    else:
        values = _decode_data(tensor.data, datatype, row, size)
    if len(values) != size:
        raise _wrong_count(len(values), size, datatype)
    # bytes() is six times faster for pixels
    if dtype == np.uint8:
        return np.ndarray(tensor.shape, dtype, bytes(values))
    try:
        with np.errstate(over="ignore"):  # the caller refuses infinity
            rows = np.array(values, dtype)
    except OverflowError as error:
        raise HttpError(
            400, f"inputs: data is not {size} {' '.join(_kind_of(datatype))}; correct it"
        ) from error
    rows.shape = tensor.shape  # not a view of the flat array
    return rows


def _decode_data(data: Raw, datatype: str, row: tuple[int, ...], size: int) -> list[Any]:
    row = row if _NESTED.match(memoryview(data)) else ()
    if (count := bytes(data).count(b",") + 1) > size:  # before memory is taken for them
        raise _wrong_count(count, size, datatype)
    try:
        values = _data_decoder(datatype, row).decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HttpError(
            400,
            f"inputs: data is not {size} {' '.join(_kind_of(datatype))} "
            f"({str(error).replace('`', '')}); send one per element, flat or nested as the shape",
        ) from error
    for _ in row:
        values = list(chain.from_iterable(values))
    return values


def _wrong_count(count: int, size: int, datatype: str) -> HttpError:
    what = _kind_of(datatype)[0]
    return HttpError(400, f"inputs: data is {count} and not {size} {what}; send one per element")


@cache
def _data_decoder(datatype: str, row: tuple[int, ...]) -> msgspec.json.Decoder[list[Any]]:
    """For rows of that shape, or for a flat list of any length."""
    kind: Any = _number(datatype)
    for size in reversed(row):
        kind = Annotated[list[kind], Meta(min_length=size, max_length=size)]
    return msgspec.json.Decoder(list[kind])


@cache
def flat_decoder(datatype: str) -> msgspec.json.Decoder[InferRequest]:
    """For a request whose data is one flat list of numbers, which is then read only once: half the
    time of a picture."""
    number: Any = _number(datatype)
    tensor: Any = defstruct(
        "_FlatTensor", [("data", list[number])], bases=(InputTensor,), kw_only=True
    )
    inputs = Annotated[list[tensor], Meta(min_length=1, max_length=1)]
    return msgspec.json.Decoder(
        defstruct("_FlatRequest", [("inputs", inputs)], bases=(InferRequest,), kw_only=True)
    )


def _number(datatype: str) -> Any:
    dtype = DTYPES[datatype]
    if dtype.kind in "bf":
        return bool if dtype.kind == "b" else float
    limits = np.iinfo(dtype)
    # msgspec compares with numbers of 64 bits with a sign, and reads larger ones
    if limits.max >= 2**63:
        return Annotated[int, Meta(ge=0)]
    return Annotated[int, Meta(ge=int(limits.min), le=int(limits.max))]


def _kind_of(datatype: str) -> tuple[str, ...]:
    """The elements of a tensor in words, and their limits."""
    dtype = DTYPES[datatype]
    if dtype.kind in "bf":
        return ("booleans",) if dtype.kind == "b" else ("numbers",)
    limits = np.iinfo(dtype)
    return ("whole numbers", f"from {limits.min} to {limits.max}")


def requested_outputs(
    outputs: list[WantedOutput], every_binary: bool, model: ModelInterface
) -> dict[str, bool]:
    """Output names, and whether each is sent as bytes; all outputs where none is named."""
    names = tuple(spec.name for spec in model.outputs) or _OUTPUTS
    if not outputs:
        return dict.fromkeys(names, every_binary)
    requested = {}
    for output in outputs:
        parameters = read_parameters(output)
        if output.name not in names or "classification" in parameters:
            *others, last = names
            raise HttpError(
                400,
                f"outputs: {output.name[:80]} is not available; request "
                f"{', '.join(others)}{' or ' if others else ''}{last}",
            )
        requested[output.name] = parameters.get("binary_data", every_binary) is True
    return requested


def finite_scores(scores: NDArray[np.float32]) -> tuple[NDArray[np.float32], list[int]]:
    """Scores as JSON can hold them, and the class with the highest one of each row.

    -inf (a class never learned) becomes the lowest number.
    """
    best = scores.argmax()
    # argmin and argmax find NaN first; an array of booleans would cost more for few scores
    if not isfinite(scores.item(best)) or not isfinite(scores.item(scores.argmin())):
        lowest = float(np.finfo(np.float32).min)
        scores = np.nan_to_num(scores, nan=lowest, neginf=lowest)
        best = scores.argmax()
    return scores, [int(best)] if len(scores) == 1 else scores.argmax(axis=1).tolist()


def encode_answer(
    model: ModelInterface,
    version: int,
    given_id: str,
    late: bool,
    scores: NDArray[Any],
    labels: list[int],
    requested: dict[str, bool],
) -> tuple[bytes, int | None]:
    """The body of an `InferAnswer`, and the length of its JSON where bytes follow.

    Made of dictionaries, which cost less than the structs that describe it. In JSON, NaN and
    infinity of a model's own outputs are null.
    """
    datatypes = {spec.name: spec.datatype for spec in model.outputs}
    tail: list[bytes] = []
    outputs: list[dict[str, Any]] = []
    for name, binary in requested.items():
        content: Any
        if name == CLASS_NAME and not datatypes:
            datatype, shape = TEXTS, (len(labels),)
            names = [model.class_names[label] for label in labels]
            content = _packed(names) if binary else names
        else:
            if datatypes:
                datatype, values = datatypes[name], scores[name]
            elif name == SCORES:
                datatype, values = "FP32", scores.astype(np.float32, copy=False)
            else:
                datatype, values = "INT64", np.array(labels, np.int64)
            shape = values.shape
            content = values.tobytes() if binary else values.ravel().tolist()
        output: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
        if binary:
            tail.append(content)
            output["parameters"] = {"binary_data_size": len(content)}
        else:
            output["data"] = content
        outputs.append(output)
    head = _ENCODE(
        {
            "model_name": model.name,
            "model_version": str(version),
            "id": given_id,
            "parameters": {"late": late},
            "outputs": outputs,
        }
    )
    return (head, None) if not tail else (b"".join((head, *tail)), len(head))
