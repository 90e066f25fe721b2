"""The Open Inference Protocol, version 2, as a client writes and reads it: raw tensors out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError

HEADER_LENGTH = "inference-header-content-length"
_DATATYPES = {"UINT8": "uint8", "INT32": "int32", "INT64": "int64", "FP32": "float32"}
_LABEL, _SCORES = "label", "scores"


class _Tensor(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    data: list[float] | None = None
    parameters: dict[str, Any] = {}


class _Metadata(msgspec.Struct):
    inputs: list[_Tensor]


class _Answer(msgspec.Struct):
    outputs: list[_Tensor]
    model_version: str = ""


class _Problem(msgspec.Struct):
    error: str


_ANSWERS = msgspec.json.Decoder(_Answer)


@dataclass(frozen=True)
class Taken:
    """The tensor that a model takes."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    """Of one sample; -1: any."""

    def fits(self, sample: NDArray[Any]) -> bool:
        """Whether it takes samples like this one."""
        sides = zip(self.shape, sample.shape, strict=False)
        return (
            _DATATYPES.get(self.datatype) == sample.dtype.name
            and len(self.shape) == sample.ndim
            and all(takes in (-1, has) for takes, has in sides)
        )


@dataclass(frozen=True)
class Said:
    """What a model answered to one sample."""

    label: int
    version: str


def taken_by(tenant: str, body: bytes) -> Taken:
    """What a model takes, from its metadata."""
    try:
        found = msgspec.json.decode(body, type=_Metadata).inputs[0]
    except (msgspec.MsgspecError, IndexError) as error:
        raise InputError(
            f"--url: what the server says of {tenant} is no metadata of a model; name a server "
            "that speaks the Open Inference Protocol, version 2"
        ) from error
    return Taken(found.name, found.datatype, tuple(found.shape[1:]))


def question(taken: Taken, sample: NDArray[Any], request_id: str) -> tuple[bytes, dict[str, str]]:
    """The body that asks for one sample's label, and its headers."""
    raw = sample.tobytes()
    head = msgspec.json.encode(
        {
            "id": request_id,
            "inputs": [
                {
                    "name": taken.name,
                    "datatype": taken.datatype,
                    "shape": [1, *sample.shape],
                    "parameters": {"binary_data_size": len(raw)},
                }
            ],
            "outputs": [{"name": _LABEL, "parameters": {"binary_data": False}}],
        }
    )
    headers = {HEADER_LENGTH: str(len(head)), "content-type": "application/octet-stream"}
    return head + raw, headers


def feedback(request_id: str, label: int) -> bytes:
    """The body that tells the true label of a request."""
    return msgspec.json.encode({"id": request_id, "label": label})


def said(body: bytes, headers: Mapping[str, str]) -> Said | None:
    """The label in an answer; None where there is none."""
    try:
        length = int(headers.get(HEADER_LENGTH, len(body)))
        answer = _ANSWERS.decode(body[:length])
        values = _values(answer.outputs, body[length:])
    except (msgspec.MsgspecError, ValueError, TypeError):
        return None
    if len(values.get(_LABEL, ())):
        return Said(int(values[_LABEL][0]), answer.model_version)
    if len(values.get(_SCORES, ())):
        return Said(int(np.argmax(values[_SCORES])), answer.model_version)
    return None


def _values(outputs: list[_Tensor], raw: bytes) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for each in outputs:
        size = each.parameters.get("binary_data_size")
        if size is None:
            found[each.name] = np.asarray(each.data if each.data is not None else [])
            continue
        found[each.name] = np.frombuffer(raw[:size], _DATATYPES.get(each.datatype, "uint8"))
        raw = raw[size:]
    return found


def problem(body: bytes) -> str:
    """Why a server did not answer, in its words; empty where it has none."""
    try:
        words = msgspec.json.decode(body, type=_Problem).error
    except msgspec.MsgspecError:
        return ""
    return " ".join(words.split())[:200]
