"""The messages of the sockets: daemon and worker, daemon and nursery."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from migrator.serve.assignment import Assignment, InputKind, ModelSpec


class Kind(StrEnum):
    """Whose fault it is."""

    INPUT = "input"
    """What was given cannot be used."""
    MODEL = "model"
    """The model raised; the process goes on."""
    PROCESS = "process"
    """The process cannot go on and ends."""


class Take(Struct, tag=True, frozen=True):
    """Take an instance."""

    number: int
    assignment: Assignment


class Infer(Struct, tag=True, frozen=True):
    """Answer the batch that comes along."""

    number: int
    shape: tuple[int, ...]
    dtype: str
    request_ids: str = ""
    """Whose they are, for the worker's log."""


class Swap(Struct, tag=True, frozen=True):
    """Serve other weights from now on."""

    number: int
    weights: Path
    version: int


class Release(Struct, tag=True, frozen=True):
    """Let go of the instance and end."""


class Took(Struct, tag=True, frozen=True):
    """It serves."""

    number: int
    parts_s: dict[str, float]


class Scores(Struct, tag=True, frozen=True):
    """The answer to a batch; the scores come along, as single precision."""

    number: int
    shape: tuple[int, ...]
    version: int
    seconds: float


class Swapped(Struct, tag=True, frozen=True):
    """The other weights serve."""

    number: int
    seconds: float


class Fault(Struct, tag=True, frozen=True):
    """It could not be done."""

    number: int
    kind: Kind
    said: str


class Build(Struct, tag=True, frozen=True):
    """Import and build these tenants' models, beside those that are there."""

    models: dict[str, ModelSpec]
    ahead: tuple[str, ...] = ()
    """Models that tenants to come will have: imported, not built."""


class Fork(Struct, tag=True, frozen=True):
    """A worker for that tenant; its end of the line comes along."""

    tenant: str
    worker: str


class Reap(Struct, tag=True, frozen=True):
    """Tell how that worker ended."""

    pid: int


class Built(Struct, tag=True, frozen=True):
    """Ready to fork."""

    seconds: float
    inputs: dict[str, InputKind]
    """By tenant."""


class Forked(Struct, tag=True, frozen=True):
    """There it is; a handle on its process comes along."""

    pid: int


class Reaped(Struct, tag=True, frozen=True):
    """In words, such as "was killed by SIGKILL"."""

    how: str


ToWorker = Take | Infer | Swap | Release
FromWorker = Took | Scores | Swapped | Fault
ToNursery = Build | Fork | Reap
FromNursery = Built | Forked | Reaped | Fault
