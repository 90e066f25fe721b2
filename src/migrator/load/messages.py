"""Messages of the Open Inference Protocol, version 2, with inputs as raw tensors."""

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
_LABEL = "label"


class _Tensor(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]


class _Metadata(msgspec.Struct):
    inputs: list[_Tensor]


class _Output(msgspec.Struct):
    name: str
    data: list[float | str] = []


class _InferReply(msgspec.Struct):
    outputs: list[_Output]
    model_version: str = ""


class _ErrorReply(msgspec.Struct):
    error: str


_ANSWERS = msgspec.json.Decoder(_InferReply)


@dataclass(frozen=True)
class ModelInput:
    """The input tensor of a model."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    """Shape of one sample; -1 for any length."""

    @property
    def pixels(self) -> int | None:
        """The side of the images that the model takes; None if it takes no square images."""
        square = len(self.shape) == 3 and self.shape[1] == self.shape[2] > 0
        return self.shape[2] if square else None

    def fits(self, sample: NDArray[Any]) -> bool:
        sides = zip(self.shape, sample.shape, strict=False)
        return (
            _DATATYPES.get(self.datatype) == sample.dtype.name
            and len(self.shape) == sample.ndim
            and all(takes in (-1, has) for takes, has in sides)
        )


@dataclass(frozen=True)
class LabelAnswer:
    """A model's answer to one sample."""

    label: int
    version: str


def read_metadata(tenant: str, body: bytes) -> ModelInput:
    """Parse the input tensor from a model's metadata."""
    try:
        tensor = msgspec.json.decode(body, type=_Metadata).inputs[0]
    except (msgspec.MsgspecError, IndexError) as error:
        raise InputError(
            f"--url: what the server says of {tenant} is no metadata of a model; name a server "
            "that speaks the Open Inference Protocol, version 2"
        ) from error
    return ModelInput(tensor.name, tensor.datatype, tuple(tensor.shape[1:]))


def encode_request(
    model: ModelInput, sample: NDArray[Any], request_id: str
) -> tuple[bytes, dict[str, str]]:
    """The body and headers of a request for one sample's label."""
    outputs = [{"name": _LABEL, "parameters": {"binary_data": False}}]
    return _encode(model, sample[np.newaxis], {"id": request_id, "outputs": outputs})


def encode_samples(
    model: ModelInput, inputs: NDArray[Any], labels: NDArray[np.int64], upload_id: str
) -> tuple[bytes, dict[str, str]]:
    """The body and headers of an upload of labelled samples."""
    return _encode(model, inputs, {"id": upload_id, "labels": labels.tolist()})


def _encode(
    model: ModelInput, inputs: NDArray[Any], rest: Mapping[str, Any]
) -> tuple[bytes, dict[str, str]]:
    """A message with one tensor of inputs, whose bytes follow the JSON."""
    raw = inputs.tobytes()
    tensor = {
        "name": model.name,
        "datatype": model.datatype,
        "shape": inputs.shape,
        "parameters": {"binary_data_size": len(raw)},
    }
    head = msgspec.json.encode({**rest, "inputs": [tensor]})
    headers = {HEADER_LENGTH: str(len(head)), "content-type": "application/octet-stream"}
    return head + raw, headers


def encode_label(request_id: str, label: int) -> bytes:
    """The body that reports the true label of a request."""
    return msgspec.json.encode({"id": request_id, "label": label})


def read_answer(body: bytes) -> LabelAnswer | None:
    """The label in a response; None if there is none."""
    try:
        answer = _ANSWERS.decode(body)
        labels = [output.data for output in answer.outputs if output.name == _LABEL]
        return LabelAnswer(int(labels[0][0]), answer.model_version)
    except (msgspec.MsgspecError, IndexError, ValueError):
        return None


def error_in(body: bytes) -> str:
    """The error message in a response; empty if there is none."""
    try:
        message = msgspec.json.decode(body, type=_ErrorReply).error
    except msgspec.MsgspecError:
        return ""
    return " ".join(message.split())[:200]
