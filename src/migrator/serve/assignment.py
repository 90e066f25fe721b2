"""What the daemon and its workers say of each other: models, assignments, answers, losses.

Plain data, so that the router and the executor's hands need neither sockets nor processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import MigratorError


class WorkerLostError(MigratorError):
    """A worker died, hung and was killed, or could not take its instance."""


class ModelFaultError(MigratorError):
    """The model raised on this batch; its worker lives and serves the next one."""


@dataclass(frozen=True)
class ModelSpec:
    """A tenant's model as the nursery builds it: a name of the zoo, or `package.module:Class`."""

    model: str
    classes: int
    pixels: int | None = None
    """For image models that can do with smaller images."""
    seed: int = 0


@dataclass(frozen=True)
class InputKind:
    """One row of a model's inputs, as the model built on the host showed it."""

    datatype: str
    """UINT8 for images, INT32 for texts as token numbers."""
    shape: tuple[int, ...]
    values: int
    """Numbers are from 0 to below this."""


@dataclass(frozen=True)
class Assignment:
    """What a worker takes for good."""

    tenant: str
    model: str
    weights: Path | None
    """None: as built, random from the seed."""
    version: int
    device: str
    """"cpu" or "cuda"."""
    environment: Mapping[str, str]
    """Of the instance, as its driver tells it."""
    batch: int
    """The largest batch it will be given; warm-up covers it."""
    latency_ms: Mapping[int, float] | None = None
    """Emulated: batch to the milliseconds it takes at least; None: as fast as it is."""
    limit_s: float | None = None
    """A batch that takes longer counts as hung; None: as the daemon has it for all."""


@dataclass(frozen=True)
class Taken:
    """How long a worker took from its assignment to its first answers."""

    parts_s: Mapping[str, float]
    """load_s (weights read), context_s, copy_s, first_s (warm-up), and their total."""

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.parts_s["total"]


@dataclass(frozen=True)
class Answered:
    """A batch's scores, one row per input, and the version of the model that gave them."""

    scores: NDArray[np.float32]
    version: int
    seconds: float
    """From the batch's arrival at the worker to its answer."""


class WorkerLink(Protocol):
    """A worker as the router sees it."""

    @property
    def name(self) -> str:
        """Unique in the life of a daemon."""
        ...

    @property
    def pid(self) -> int:
        """Its process."""
        ...

    async def infer(self, inputs: NDArray[Any], request_ids: str = "") -> Answered:
        """One batch; WorkerLostError if it dies or hangs, ModelFaultError, InputError.

        `request_ids`: whose they are, for the worker's own log.
        """
        ...
