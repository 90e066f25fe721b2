"""What divides a GPU: the protocol of the drivers, and what they tell and refuse.

A driver acts at once and remembers nothing; who created what, and what was begun and never
finished, is the journal's. All drivers keep MIG's rules of placement, so that a plan for one is
a plan for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from migrator.core.catalogue import Board
from migrator.core.errors import GpuError


@dataclass(frozen=True, order=True)
class Place:
    """Where an instance sits or is wanted: its first memory slice and its MIG profile's name."""

    start: int
    profile: str

    def __str__(self) -> str:
        return f"{self.profile} at {self.start}"


@dataclass(frozen=True, order=True)
class Holder:
    """A process that uses an instance."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid})"


@dataclass(frozen=True)
class GpuInstance:
    """An instance that exists on the board, whoever made it."""

    place: Place
    number: int
    """The driver's own; another life of the same place may have another or the same."""
    uuid: str | None
    """What CUDA is told; None: the compute instance is missing, nobody can use it."""
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True)
class Gpu:
    """The GPU a driver divides, in this boot of the machine."""

    index: int
    uuid: str
    name: str
    board: Board
    boot_id: str
    """Instances never survive another boot."""
    driver_version: str
    divides: bool
    """Whether instances can be created now; False: MIG mode is off."""
    driver: str
    """What divides it: what one driver makes on a GPU is unknown to the others."""


class GpuDriver(Protocol):
    """One GPU and what it is divided into. Calls wait until the board has done them."""

    name: str

    def gpu(self) -> Gpu:
        """The GPU."""
        ...

    def instances(self) -> tuple[GpuInstance, ...]:
        """Every instance on the board, by start; those without compute instance too."""
        ...

    def create(self, place: Place) -> GpuInstance:
        """GPU and compute instance, or neither; RefusedError, NotPermittedError, HalfMadeError."""
        ...

    def destroy(self, instance: GpuInstance) -> None:
        """Compute instances, then the GPU instance; InUseError, TransientError."""
        ...

    def environment(self, instance: GpuInstance) -> Mapping[str, str]:
        """What a worker must find in its environment to run there."""
        ...


class InUseError(GpuError):
    """A process or a handle holds the instance; it is never killed."""


class RefusedError(GpuError):
    """The board has no room for the instance there, or cannot make it."""


class HalfMadeError(RefusedError):
    """An instance could not be made whole, and what was made of it could not be removed."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number
        """The driver's own, of what it left."""


class TransientError(GpuError):
    """Failed for a moment; the same call may succeed soon."""


class NotPermittedError(GpuError):
    """The rights to change this GPU are missing."""
