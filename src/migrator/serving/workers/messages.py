"""What the daemon, the forkserver and the workers send each other.

Plain data: the router and the live daemon use the types without sockets or processes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from msgspec import Struct
from numpy.typing import NDArray

from migrator.core.errors import MigratorError
from migrator.core.tensors import TensorSpec
from migrator.io.child_process import Fault, Release
from migrator.io.spawn import ChildLostError
from migrator.learn.tokens import TextEncoder, text_encoder


class WorkerLostError(ChildLostError):
    """A worker exited, was killed because it did not answer, or could not take its instance."""


class ModelFaultError(MigratorError):
    """The model raised on this batch; its worker goes on with the next one."""


@dataclass(frozen=True)
class ModelSpec:
    """How to build a tenant's model: a name that `migrator retrain --model` accepts."""

    model: str
    classes: int
    pixels: int | None = None
    """For image models that accept smaller images."""
    seed: int = 0
    input_pixels: int | None = None
    """Side of the images that clients send, if the model resizes them."""
    weights: Path | None = None
    """Loaded in place of those that the name stands for, so that unfit ones are refused at once."""
    class_names: tuple[str, ...] = ()
    """In the order of the classes; those without a name are called by their number."""


@dataclass(frozen=True)
class ModelInterface:
    """Inputs and outputs of a tenant's model, as its clients use it.

    A classifier has one input tensor, of `datatype` and `shape`. A model with named tensors of its
    own has `inputs`, `outputs` and, unless its labels are classes, `labels`.
    """

    name: str
    """Of the tenant."""
    datatype: str
    """UINT8 for images, INT32 for texts as token numbers."""
    shape: tuple[int, ...]
    """One row of inputs, as in an example of the built model."""
    classes: int
    values: int = 256
    """Inputs are numbers from 0 to below this."""
    tokenizer: str | None = None
    """Of texts: what `text_encoder` needs to encode them; None: clients send tokens."""
    padding: int = 0
    """Of texts: the token that fills up short ones."""
    given_names: tuple[str, ...] = ()
    """Names of the first classes."""
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    labels: tuple[TensorSpec, ...] = ()
    judges: bool = False
    """Whether the model itself decides which outputs are correct, on its workers."""

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """One name per class: those given, and for the other classes their number as text."""
        names = self.given_names[: self.classes]
        return (*names, *map(str, range(len(names), self.classes)))

    def class_number(self, label: int | str) -> int | None:
        """The number of a class that is given by its name or number; None if there is none."""
        if isinstance(label, str):
            return self._numbers.get(label)
        return label if 0 <= label < self.classes else None

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in reversed([*enumerate(self.class_names)])}

    @cached_property
    def encode(self) -> TextEncoder | None:
        """From texts (datatype BYTES) to rows of tokens; None: clients send numbers."""
        if self.tokenizer is None:
            return None
        return text_encoder(self.tokenizer, math.prod(self.shape), self.padding)


class Assignment(Struct, tag=True, frozen=True):
    """The instance and the model version that a worker serves until it exits."""

    tenant: str
    model: str
    weights: Path | None
    """None: those that the model was built with."""
    version: int
    device: str
    """"cpu" or "cuda"."""
    environment: Mapping[str, str]
    """Variables that select the instance, from its driver."""
    batch: int
    """The largest batch it will get; warm-up covers it."""
    latency_ms: Mapping[int, float] | None = None
    """Emulated: batch size to the milliseconds it takes at least; None: as fast as it is."""
    limit_s: float | None = None
    """A batch that takes longer counts as hung; None: the pool's limit."""
    emulated_mib: tuple[float, float] = (0.0, 0.0)
    """Memory that it takes of an emulated GPU: at least, and where that is left."""


class WorkerReady(Struct, tag=True, frozen=True):
    """The worker has taken its instance and serves."""

    parts_s: dict[str, float]
    """load_s (weights read), context_s, copy_s, first_s (warm-up), and their total."""
    held_mib: float = 0.0
    """GPU memory that it holds; 0 without a GPU."""


class Answered(NamedTuple):
    """Scores of a batch, one row per input, and the model version that computed them."""

    scores: NDArray[Any]
    """Records of the outputs where a model names them."""
    version: int
    began_s: float = 0.0
    """When the worker had received the batch, on the monotonic clock; 0: it does not say."""
    ended_s: float = 0.0


class WorkerLink(Protocol):
    """A worker as the router uses it."""

    @property
    def name(self) -> str:
        """Unique within one run of the daemon."""
        ...

    async def infer(
        self,
        inputs: NDArray[Any],
        request_ids: str = "",
        trace_context: Mapping[str, str] | None = None,
    ) -> Answered:
        """One batch; `request_ids` are for the log of the worker."""
        ...

    async def judge(self, answers: NDArray[Any]) -> tuple[bool, ...]:
        """Which of the answers, records of `outputs` and `label`, are correct."""
        ...


class Infer(Struct, tag=True, frozen=True):
    """Compute the scores of the array in the payload."""

    shape: tuple[int, ...]
    dtype: str
    request_ids: str = ""
    """For the worker's log."""
    trace_context: dict[str, str] | None = None
    """Headers of the W3C's trace context; None: it is not traced."""


class Scores(Struct, tag=True, frozen=True):
    """The scores of a batch, or records of its outputs, are in the payload."""

    shape: tuple[int, ...]
    version: int
    began_s: float
    """On the monotonic clock, which all processes share."""
    ended_s: float
    dtype: str = "<f4"


class Judge(Struct, tag=True, frozen=True):
    """Decide which of the answers in the payload, records of `outputs` and `label`, are correct."""

    shape: tuple[int, ...]
    dtype: str


class Judged(Struct, tag=True, frozen=True):
    """Whether each answer is correct."""

    correct: tuple[bool, ...]


class Swap(Struct, tag=True, frozen=True):
    """Serve other weights from now on."""

    weights: Path
    version: int


class Swapped(Struct, tag=True, frozen=True):
    """The other weights serve."""

    seconds: float


class Build(Struct, tag=True, frozen=True):
    """Import and build these models, by tenant, in addition to those built already."""

    models: dict[str, ModelSpec]
    ahead: tuple[str, ...] = ()
    """Models of tenants that may be added later: imported, not built."""
    prepare: tuple[str, ...] = ()
    """Functions, as package.module:function, that are called after the models are built."""


class Built(Struct, tag=True, frozen=True):
    """The models are ready to be forked."""

    interfaces: dict[str, ModelInterface]
    """By tenant."""


class Fork(Struct, tag=True, frozen=True):
    """Fork a process with that tenant's model; its end of the connection is sent beside."""

    tenant: str
    name: str
    runs: str | None = None
    """The function, as package.module:function, that the process calls with its end of the
    connection, the model and the name; None: it is a worker."""
    log: Path | None = None
    """The file that the process appends its output to; None: that of the forkserver."""


class Duplicate(Struct, tag=True, frozen=True):
    """Fork another forkserver with the same models; its ends of both sockets are sent beside."""


class Forked(Struct, tag=True, frozen=True):
    """The forked process."""

    pid: int


class Reap(Struct, tag=True, frozen=True):
    """Collect the exit status of a forked process."""

    pid: int


class Reaped(Struct, tag=True, frozen=True):
    """The exit status in words, such as "was killed by SIGKILL"."""

    status: str


ToWorker = Assignment | Infer | Judge | Swap | Release
FromWorker = WorkerReady | Scores | Judged | Swapped | Fault
ToForkserver = Build | Fork | Duplicate | Reap | Release
FromForkserver = Built | Forked | Reaped | Fault
