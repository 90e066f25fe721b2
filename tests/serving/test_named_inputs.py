"""Named tensors of a request: every datatype as JSON and as bytes, and wrong ones."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from migrator.core.errors import HttpError
from migrator.core.tensors import DTYPES, TensorSpec, record_dtype
from migrator.io.child_process import FrameError, decode_array, encode_array
from migrator.serving.http.protocol import InferRequest
from migrator.serving.http.tensors import encode_answer, read_records, tensor_parts
from migrator.serving.workers.messages import ModelInterface

SPECS = tuple(TensorSpec(f"of_{name}", name, (2, 3)) for name in DTYPES)
ROWS = 2


def _values(spec: TensorSpec) -> NDArray[Any]:
    """The extremes of a datatype, and numbers between."""
    if spec.dtype.kind == "b":
        corners: list[Any] = [True, False]
    elif spec.dtype.kind == "f":
        corners = [float(np.finfo(spec.dtype).max), float(np.finfo(spec.dtype).min), 0.1]
    else:
        limits = np.iinfo(spec.dtype)
        corners = [limits.min, limits.max, 1]
    return np.resize(np.array(corners, spec.dtype), (ROWS, *spec.shape))


def _tensor(spec: TensorSpec, form: str) -> dict[str, Any]:
    values = _values(spec)
    tensor = {"name": spec.name, "datatype": spec.datatype, "shape": list(values.shape)}
    if form == "bytes":
        return tensor | {"parameters": {"binary_data_size": values.nbytes}}
    return tensor | {"data": (values.ravel() if form == "flat" else values).tolist()}


def _read(tensors: list[dict[str, Any]], binary: bytes = b"") -> NDArray[Any]:
    request = msgspec.json.decode(json.dumps({"inputs": tensors}), type=InferRequest)
    return read_records(tensor_parts(request.inputs, memoryview(binary)), SPECS, "model")


@pytest.mark.parametrize("forms", [("flat",), ("nested",), ("bytes",), ("bytes", "nested")])
def test_every_datatype_arrives_as_it_was_sent(forms: tuple[str, ...]) -> None:
    chosen = [(spec, forms[number % len(forms)]) for number, spec in enumerate(SPECS)]
    chosen.reverse()  # the order of tensors does not matter
    binary = b"".join(_values(spec).tobytes() for spec, form in chosen if form == "bytes")
    records = _read([_tensor(*pair) for pair in chosen], binary)
    for spec in SPECS:
        assert records[spec.name].dtype == spec.dtype
        assert (records[spec.name] == _values(spec)).all(), spec.name
    shape, dtype, payload = encode_array(records)
    assert (decode_array(shape, dtype, payload) == records).all()
    _read_back(records)


def _read_back(records: NDArray[Any]) -> None:
    """As an answer, in JSON and as bytes."""
    model = ModelInterface("model", "", (), 1, inputs=SPECS, outputs=SPECS)
    for binary in (False, True):
        requested = dict.fromkeys((spec.name for spec in SPECS), binary)
        body, length = encode_answer(model, 1, "id", False, records, [], requested)
        head = json.loads(body[:length])
        at = len(body) if length is None else length
        for spec, output in zip(SPECS, head["outputs"], strict=True):
            assert (output["name"], output["datatype"]) == (spec.name, spec.datatype)
            assert output["shape"] == [ROWS, *spec.shape]
            if binary:
                size = output["parameters"]["binary_data_size"]
                data = np.frombuffer(body[at : at + size], spec.dtype)
                at += size
            else:
                data = np.array(output["data"], spec.dtype)
            assert (data == _values(spec).ravel()).all(), spec.name
        assert at == len(body)


@pytest.mark.parametrize(
    ("datatype", "data", "reason"),
    [
        ("UINT64", [2**64] * 12, "data is not 12 whole numbers from 0 to 18446744073709551615"),
        ("INT8", [128] * 12, "whole numbers from -128 to 127"),
        ("INT64", [1.5] * 12, "whole numbers"),
        ("FP16", [1e6] * 12, "contains NaN or infinity; send finite FP16"),
        ("FP64", [None] * 12, "data is not 12 numbers"),
        ("FP64", ["NaN"] * 12, "data is not 12 numbers"),
        ("BOOL", [2] * 12, "data is not 12 booleans"),
        ("FP32", [[1.0] * 6] * 2, "data is not 12 numbers"),
        ("FP32", [0.0] * 13, "data is 13 and not 12 numbers"),
    ],
)
def test_values_that_do_not_fit_are_refused(datatype: str, data: list[Any], reason: str) -> None:
    tensors = [_tensor(spec, "flat") for spec in SPECS]
    wrong = next(tensor for tensor in tensors if tensor["datatype"] == datatype)
    wrong["data"] = data
    with pytest.raises(HttpError, match=reason) as refused:
        _read(tensors)
    assert refused.value.status == 400


@pytest.mark.parametrize("size", [0, 1, 7, 10**12 % 2**31])
def test_bytes_of_another_length_are_refused(size: int) -> None:
    tensors = [_tensor(spec, "flat") for spec in SPECS]
    del tensors[0]["data"]
    tensors[0]["parameters"] = {"binary_data_size": size}
    with pytest.raises(HttpError, match="bytes of binary data"):
        _read(tensors, b"\0" * 8)


def test_any_byte_but_zero_is_true() -> None:
    tensors = [_tensor(spec, "flat") for spec in SPECS]
    tensors[0] = _tensor(SPECS[0], "bytes")
    assert _read(tensors, bytes([0, 1, 2, 255] * 3))["of_BOOL"].ravel().tolist() == (
        [False, True, True, True] * 3
    )


def test_a_frame_of_records_that_are_no_numbers_is_refused() -> None:
    dtype = record_dtype(SPECS[:1])
    for text in ('[["x", "|O"]]', '[["x", "|S4"]]', "[", '[["x"]]', '[["x", [["y", "|V8"]]]]'):
        with pytest.raises(FrameError):
            decode_array((0,), text, memoryview(b""))
    with pytest.raises(TypeError):
        encode_array(np.zeros(2, np.dtype([("x", dtype), ("y", "S4")])))
