"""The Open Inference Protocol, version 2: its messages as they are read and written.

The OpenAPI description takes its schemas from here, so that both say the same.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from migrator.serve.refusals import MalformedError

Identifier = Annotated[str, Meta(max_length=128)]
Size = Annotated[int, Meta(ge=0, le=2**31)]
Shape = Annotated[list[Size], Meta(min_length=1, max_length=8)]
Parameters = dict[str, Any]
SentParameters = Annotated[Raw, Meta(extra_json_schema={"type": "object"})] | UnsetType
"""As they came; see `parameters_of`."""
PARAMETERS_BYTES = 16 * 2**10
"""Of the JSON of a request's parameters."""


class InputTensor(Struct, kw_only=True):
    """A tensor as a client sends it: values in `data`, or `binary_data_size` bytes after JSON."""

    name: str
    shape: Shape
    datatype: str
    data: Raw | UnsetType = UNSET
    """As it came: what the model takes decides how it is decoded."""
    parameters: SentParameters = UNSET


class WantedOutput(Struct, kw_only=True):
    """An output to answer with; the parameter `binary_data` asks for bytes after the JSON."""

    name: str
    parameters: SentParameters = UNSET


class InferRequest(Struct, kw_only=True):
    """One tensor of inputs. Parameters: `timeout_ms` or `deadline_ms`, `binary_data_output`."""

    inputs: Annotated[list[InputTensor], Meta(min_length=1, max_length=1)]
    id: Identifier = ""
    outputs: Annotated[list[WantedOutput], Meta(max_length=8)] = []
    parameters: SentParameters = UNSET


class OutputTensor(Struct, kw_only=True, omit_defaults=True):
    """A tensor of an answer."""

    name: str
    datatype: str
    shape: list[int]
    data: list[float] | UnsetType = UNSET
    parameters: Parameters = {}


class InferAnswer(Struct, kw_only=True):
    """Scores and labels, and the version of the model that gave them."""

    model_name: str
    model_version: str
    id: str
    parameters: Parameters
    outputs: list[OutputTensor]


class FeedbackRequest(Struct, kw_only=True):
    """The true label of an answered request, or of an input sent along."""

    label: Annotated[int, Meta(ge=0, le=2**31)]
    id: Identifier = ""
    row: Annotated[int, Meta(ge=0, le=2**31)] = 0
    """Of a request with several rows of inputs: which one."""
    inputs: Annotated[list[InputTensor], Meta(max_length=1)] = []


class FeedbackAnswer(Struct, kw_only=True):
    """The label is on disk."""

    id: str
    stored: bool


class TensorMetadata(Struct, kw_only=True):
    """A tensor's name, type and shape; -1 is the number of rows."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(Struct, kw_only=True):
    """What a model takes and gives."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class WindowNow(Struct, frozen=True):
    """Which window it is, so that clients that replay traces keep in step."""

    number: int
    begin_s_ago: float
    window_s: float


class ServerMetadata(Struct, kw_only=True):
    """Who answers here."""

    name: str
    version: str
    extensions: list[str]
    window: WindowNow


class Readiness(Struct, kw_only=True):
    """Whether requests are taken; a model is named where one was asked about."""

    ready: bool
    name: str = ""


class IndexEntry(Struct, kw_only=True):
    """A model that can be asked for."""

    name: str
    version: str
    state: str
    reason: str = ""


class Problem(Struct, kw_only=True):
    """Why a request was not answered, and what to do next."""

    error: str


_PARAMETERS = msgspec.json.Decoder(dict[str, str | int | float | bool | None])


def parameters_of(message: InputTensor | WantedOutput | InferRequest) -> Parameters:
    """Parameters of a message: few, and texts, numbers or booleans each."""
    if message.parameters is UNSET:
        return {}
    if len(message.parameters) > PARAMETERS_BYTES:
        raise MalformedError(f"parameters: more than {PARAMETERS_BYTES} bytes; send fewer")
    return cast("Parameters", decoded(_PARAMETERS, message.parameters, "parameters"))


def decoder(kind: type[Struct]) -> msgspec.json.Decoder[Any]:
    """Made once per message: making one costs more than decoding."""
    return msgspec.json.Decoder(kind)


def decoded(
    reader: msgspec.json.Decoder[Any], text: bytes | memoryview | Raw, part: str = "body"
) -> Any:
    """A message, or what is wrong with it in one sentence."""
    try:
        return reader.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedError(
            f"{part}: {error}; send what /openapi.json describes".replace("`", "")
        ) from error
