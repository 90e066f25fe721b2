"""Tensors between the wire and numpy: JSON values or raw bytes in, scores and labels out."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import UNSET, Meta
from numpy.typing import NDArray

from migrator.serve.protocol import (
    InferAnswer,
    InputTensor,
    ModelMetadata,
    OutputTensor,
    TensorMetadata,
    WantedOutput,
    parameters_of,
)
from migrator.serve.refusals import MalformedError

INPUT = "input"
SCORES, LABEL = "scores", "label"
DTYPES: dict[str, np.dtype[Any]] = {
    "UINT8": np.dtype(np.uint8),
    "INT32": np.dtype("<i4"),
}

_NESTED = re.compile(rb"\s*\[\s*\[")


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
    """The rows of a request, checked against what the model takes; a copy, so that the request's
    body can be freed."""
    _require_kind(tensor, offered)
    shape, dtype = tuple(tensor.shape), DTYPES[offered.datatype]
    parameters = parameters_of(tensor)
    if "shared_memory_region" in parameters:
        raise MalformedError("inputs: shared memory is not read here; send the data in the request")
    if "binary_data_size" in parameters:
        size = math.prod(shape) * dtype.itemsize
        if parameters["binary_data_size"] != size or len(binary) != size:
            raise MalformedError(
                f"inputs: {len(binary)} bytes of binary data where shape and datatype need {size}; "
                "make binary_data_size and the body fit"
            )
        found = np.frombuffer(binary, dtype)
    else:
        found = _from_json(tensor, binary, offered)
    _require_values(found, offered)
    return found.reshape(shape).copy()


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


def _from_json(tensor: InputTensor, binary: memoryview, offered: Offered) -> NDArray[Any]:
    """Numbers are decoded as such: the first value of another kind ends it, before numpy sees any.

    They are one flat list, or nested as the shape is.
    """
    if tensor.data is UNSET or len(binary):
        raise MalformedError("inputs: no data; send data, or binary_data_size and the bytes")
    dtype, size = DTYPES[offered.datatype], math.prod(tensor.shape)
    nested = _NESTED.match(memoryview(tensor.data)) is not None
    reader = _data_decoder(offered.datatype, offered.shape if nested else ())
    try:
        values = reader.decode(tensor.data)
    except (msgspec.MsgspecError, RecursionError) as error:
        limits = np.iinfo(dtype)
        raise MalformedError(
            f"inputs: data is not {size} whole numbers from {limits.min} to {limits.max} "
            f"({str(error).replace('`', '')}); send one per element, flat or nested as the shape"
        ) from error
    for _ in offered.shape if nested else ():
        values = list(chain.from_iterable(values))
    if len(values) != size:
        raise MalformedError(
            f"inputs: data is {len(values)} and not {size} whole numbers; send one per element"
        )
    # bytes() is six times faster for pixels
    return np.frombuffer(bytes(values), dtype) if dtype == np.uint8 else np.array(values, dtype)


@cache
def _data_decoder(datatype: str, row: tuple[int, ...]) -> msgspec.json.Decoder[list[Any]]:
    """Reads rows of that shape; without one a flat list of any length."""
    limits = np.iinfo(DTYPES[datatype])
    kind: Any = Annotated[int, Meta(ge=int(limits.min), le=int(limits.max))]
    for size in reversed(row):
        kind = Annotated[list[kind], Meta(min_length=size, max_length=size)]
    return msgspec.json.Decoder(list[kind])


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
        parameters = parameters_of(each)
        if each.name not in (SCORES, LABEL) or "classification" in parameters:
            raise MalformedError(
                f"outputs: {each.name[:80]} as asked is not given here; ask for {SCORES} or {LABEL}"
            )
        wanted[each.name] = parameters.get("binary_data", every_binary) is True
    return wanted


def finite(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scores that JSON can carry: -inf, as of classes never learned, is the lowest number."""
    if np.isfinite(scores).all():
        return scores
    lowest = float(np.finfo(np.float32).min)
    return np.nan_to_num(scores, nan=lowest, neginf=lowest)


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
