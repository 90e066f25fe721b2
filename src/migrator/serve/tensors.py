"""Tensors between the wire and numpy: JSON values or raw bytes in, scores and labels out."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from migrator.serve.protocol import (
    InferAnswer,
    InputTensor,
    ModelMetadata,
    OutputTensor,
    TensorMetadata,
    WantedOutput,
)
from migrator.serve.refusals import MalformedError

INPUT = "input"
SCORES, LABEL = "scores", "label"
DTYPES: dict[str, np.dtype[Any]] = {
    "UINT8": np.dtype(np.uint8),
    "INT32": np.dtype("<i4"),
}


@dataclass(frozen=True)
class Offered:
    """A tenant's model as its clients see it."""

    name: str
    datatype: str
    """UINT8 for images, INT32 for tokens."""
    shape: tuple[int, ...]
    """Of one row of inputs."""
    classes: int
    values: int = 256
    """Inputs are numbers from 0 to below this."""

    @classmethod
    def images(cls, name: str, side: int, classes: int) -> Offered:
        """A model of square images with three colours."""
        return cls(name, "UINT8", (3, side, side), classes)

    @classmethod
    def tokens(cls, name: str, length: int, classes: int, vocabulary: int) -> Offered:
        """A model of texts as token numbers."""
        return cls(name, "INT32", (length,), classes, vocabulary)

    def metadata(self, version: int | None) -> ModelMetadata:
        """As the protocol describes a model."""
        shape = [-1, *self.shape]
        return ModelMetadata(
            name=self.name,
            versions=[] if version is None else [str(version)],
            platform="migrator",
            inputs=[TensorMetadata(name=INPUT, datatype=self.datatype, shape=shape)],
            outputs=[
                TensorMetadata(name=SCORES, datatype="FP32", shape=[-1, self.classes]),
                TensorMetadata(name=LABEL, datatype="INT64", shape=[-1]),
            ],
        )


def read_input(tensor: InputTensor, binary: memoryview, offered: Offered) -> NDArray[Any]:
    """The rows of a request, checked against what the model takes."""
    _require_kind(tensor, offered)
    shape, dtype = tuple(tensor.shape), DTYPES[offered.datatype]
    if "shared_memory_region" in tensor.parameters:
        raise MalformedError("inputs: shared memory is not read here; send the data in the request")
    if "binary_data_size" in tensor.parameters:
        size = math.prod(shape) * dtype.itemsize
        if tensor.parameters["binary_data_size"] != size or len(binary) != size:
            raise MalformedError(
                f"inputs: {len(binary)} bytes of binary data where shape and datatype need {size}; "
                "make binary_data_size and the body fit"
            )
        found = np.frombuffer(binary, dtype)
    else:
        found = _from_json(tensor, binary, dtype)
    _require_values(found, offered)
    return found.reshape(shape)


def _require_kind(tensor: InputTensor, offered: Offered) -> None:
    if tensor.name != INPUT or tensor.datatype != offered.datatype:
        raise MalformedError(
            f"inputs: {offered.name} takes one tensor named {INPUT} of {offered.datatype}; not "
            f"{tensor.name[:80]} of {tensor.datatype[:80]}"
        )
    if tuple(tensor.shape[1:]) != offered.shape or tensor.shape[0] < 1:
        wanted = ["rows", *offered.shape]
        raise MalformedError(
            f"inputs: shape {tensor.shape} where {offered.name} takes "
            f"[{', '.join(map(str, wanted))}]; send that shape"
        )


def _from_json(tensor: InputTensor, binary: memoryview, dtype: np.dtype[Any]) -> NDArray[Any]:
    if tensor.data is UNSET or len(binary):
        raise MalformedError("inputs: no data; send data, or binary_data_size and the bytes")
    if dtype == np.uint8 and type(tensor.data) is list:
        with suppress(TypeError, ValueError):  # the usual flat list of pixels, six times faster
            return _sized(np.frombuffer(bytes(tensor.data), dtype), tensor)
    try:
        found = np.asarray(tensor.data)
    except ValueError as error:
        raise MalformedError("inputs: data is ragged; send one number per element") from error
    found, limits = _sized(found, tensor), np.iinfo(dtype)
    if found.min() < limits.min or found.max() > limits.max:
        raise MalformedError(f"inputs: data outside {limits.min} to {limits.max}; send it within")
    return found.astype(dtype).ravel()


def _sized(found: NDArray[Any], tensor: InputTensor) -> NDArray[Any]:
    if found.dtype.kind not in "iu" or found.size != math.prod(tensor.shape):
        raise MalformedError(
            f"inputs: data is not {math.prod(tensor.shape)} whole numbers; send one per element"
        )
    return found


def _require_values(found: NDArray[Any], offered: Offered) -> None:
    if offered.datatype == "UINT8":
        return
    if found.min() < 0 or found.max() >= offered.values:
        raise MalformedError(
            f"inputs: a token outside 0 to {offered.values - 1}; encode with the model's vocabulary"
        )


def wanted_outputs(outputs: list[WantedOutput], every_binary: bool) -> dict[str, bool]:
    """Output names to whether they go out as bytes; all of them where none is named."""
    if not outputs:
        return {SCORES: every_binary, LABEL: every_binary}
    wanted = {}
    for each in outputs:
        if each.name not in (SCORES, LABEL) or "classification" in each.parameters:
            raise MalformedError(
                f"outputs: {each.name[:80]} as asked is not given here; ask for {SCORES} or {LABEL}"
            )
        wanted[each.name] = each.parameters.get("binary_data", every_binary) is True
    return wanted


def written(
    answer: InferAnswer, scores: NDArray[np.float32], wanted: dict[str, bool]
) -> tuple[bytes, int | None]:
    """The body of an answer, and how much of it is JSON where bytes follow."""
    tail: list[bytes] = []
    for name, binary in wanted.items():
        values = scores if name == SCORES else scores.argmax(axis=1)
        typed = values.astype("<f4" if name == SCORES else "<i8", copy=False)
        output = OutputTensor(
            name=name, datatype="FP32" if name == SCORES else "INT64", shape=list(values.shape)
        )
        if binary:
            tail.append(typed.tobytes())
            output.parameters = {"binary_data_size": len(tail[-1])}
        else:
            output.data = typed.ravel().tolist()
        answer.outputs.append(output)
    head = msgspec.json.encode(answer)
    return (head, None) if not tail else (b"".join((head, *tail)), len(head))
