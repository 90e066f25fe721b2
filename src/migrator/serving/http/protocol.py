"""The messages of the Open Inference Protocol, version 2.

The OpenAPI description takes its schemas from them.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from migrator.core.errors import HttpError

Identifier = Annotated[str, Meta(max_length=128)]
Size = Annotated[int, Meta(ge=0, le=2**31)]
Shape = Annotated[list[Size], Meta(min_length=1, max_length=8)]
Label = Annotated[int, Meta(ge=0, le=2**31)] | Annotated[str, Meta(max_length=256)]
"""A class by its number, or by its name in the model's metadata."""
Parameters = dict[str, Any]
SentParameters = Annotated[Raw, Meta(extra_json_schema={"type": "object"})] | UnsetType
"""Not decoded yet; see `read_parameters`."""
PARAMETERS_BYTES = 16 * 2**10
"""Of the JSON of a request's parameters."""
MAX_SAMPLES = 2**16
"""Rows of one upload; its bytes are limited as those of every request."""
MAX_TENSORS = 64
"""Of one request."""
INPUT = "input"
SCORES, LABEL, CLASS_NAME = "scores", "label", "class_name"
TEXTS = "BYTES"


class TensorParameters(Struct, kw_only=True):
    """Parameters of an input; others are ignored."""

    binary_data_size: Annotated[int, Meta(ge=0, le=2**40)] | UnsetType = UNSET
    """Bytes of this tensor after the JSON."""
    shared_memory_region: str | UnsetType = UNSET
    """Refused."""


class InputTensor(Struct, kw_only=True):
    """A tensor as a client sends it: values in `data`, or `binary_data_size` bytes after JSON."""

    name: str
    shape: Shape
    datatype: str
    data: Raw | UnsetType = UNSET
    """Not decoded yet: the model's datatype decides how; see `flat_decoder`."""
    parameters: TensorParameters | UnsetType = UNSET


class WantedOutput(Struct, kw_only=True):
    """A requested output; the parameter `binary_data` requests bytes after the JSON."""

    name: str
    parameters: SentParameters = UNSET


Tensors = Annotated[list[InputTensor], Meta(min_length=1, max_length=MAX_TENSORS)]


class InferRequest(Struct, kw_only=True):
    """The tensors of inputs. Parameters: `timeout_ms`, `binary_data_output`."""

    inputs: Tensors
    id: Identifier = ""
    outputs: Annotated[list[WantedOutput], Meta(max_length=MAX_TENSORS)] = []
    parameters: SentParameters = UNSET


class OutputTensor(Struct, kw_only=True, omit_defaults=True):
    """A tensor of an answer."""

    name: str
    datatype: str
    shape: list[int]
    data: list[float | str] | UnsetType = UNSET
    parameters: Parameters = {}


class InferAnswer(Struct, kw_only=True):
    """Scores, labels and names of classes, and the version of the model that computed them."""

    model_name: str
    model_version: str
    id: str
    parameters: Parameters
    outputs: list[OutputTensor]


class FeedbackRequest(Struct, kw_only=True):
    """The true label of an answered request, or of an input sent along.

    A label that consists of tensors is among the inputs.
    """

    label: Label | UnsetType = UNSET
    id: Identifier = ""
    row: Annotated[int, Meta(ge=0, le=2**31)] = 0
    """The row of a request with several."""
    inputs: Annotated[list[InputTensor], Meta(max_length=MAX_TENSORS)] = []


class FeedbackAnswer(Struct, kw_only=True):
    """The label is on disk."""

    id: str
    stored: bool


class SamplesRequest(Struct, kw_only=True):
    """Labelled samples: tensors of inputs and the true label of each row.

    Labels that consist of tensors are among the inputs.
    """

    inputs: Tensors
    labels: Annotated[list[Label], Meta(max_length=MAX_SAMPLES)] = []
    id: Identifier = ""
    """Samples that are sent twice with the same id count once; other samples with the same id are
    stored as well."""


class SamplesAnswer(Struct, kw_only=True):
    """Every sample is on disk: `stored` new ones, and `repeated` ones that were there before."""

    id: str
    stored: int
    repeated: int


class TensorMetadata(Struct, kw_only=True):
    """A tensor's name, type and shape; -1 is the number of rows."""

    name: str
    datatype: str
    shape: list[int]


class ModelParameters(Struct, kw_only=True, omit_defaults=True):
    """Parameters of a model."""

    class_names: tuple[str, ...] = ()
    """The name of every class; its place is the label."""
    labels: list[TensorMetadata] = []
    """The tensors of a label, where it is no class."""


class ModelMetadata(Struct, kw_only=True):
    """Inputs and outputs of a model, and what its labels are."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
    parameters: ModelParameters


class WindowNow(Struct, frozen=True):
    """The current window; clients that replay traces synchronise with it."""

    number: int
    begin_s_ago: float
    window_s: float
    begun: bool = True
    """False: it is the first one, and begins with the first request."""

    @property
    def of_labels(self) -> int:
        """The window to which labels that arrive now belong; the next to begin learns them."""
        return self.number if self.begun else self.number - 1


class ServerMetadata(Struct, kw_only=True):
    """Name and version of the server, and the current window."""

    name: str
    version: str
    extensions: list[str]
    window: WindowNow


class Readiness(Struct, kw_only=True):
    """Whether requests are accepted; `name` where the question was about one model."""

    ready: bool
    name: str = ""


class IndexEntry(Struct, kw_only=True):
    """A model and its state."""

    name: str
    version: str
    state: str
    reason: str = ""


class ErrorAnswer(Struct, kw_only=True):
    """Why a request was refused, and what to do next."""

    error: str


_PARAMETERS = msgspec.json.Decoder(dict[str, str | int | float | bool | None])


def read_parameters(message: WantedOutput | InferRequest) -> Parameters:
    """Parameters of a message: texts, numbers or booleans, within a limit."""
    if message.parameters is UNSET:
        return {}
    if len(message.parameters) > PARAMETERS_BYTES:
        raise HttpError(400, f"parameters: more than {PARAMETERS_BYTES} bytes; send fewer")
    parameters: Parameters = decode(_PARAMETERS, message.parameters, "parameters")
    return parameters


def decode(
    decoder: msgspec.json.Decoder[Any], text: bytes | memoryview | Raw, part: str = "body"
) -> Any:
    """A message; HttpError 400 says what is wrong with it."""
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise HttpError(
            400, f"{part}: {error}; send what /openapi.json describes".replace("`", "")
        ) from error
