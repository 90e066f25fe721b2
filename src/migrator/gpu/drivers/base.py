"""The protocol that every GPU driver implements, its data types and its errors.

A driver acts immediately and keeps no history. The journal records which owner created which
instance and which operations are unfinished. All drivers follow MIG's placement rules, so a plan
for one driver is valid for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from migrator.core.catalogue import Board, Place
from migrator.core.errors import GpuError


@dataclass(frozen=True, order=True)
class Holder:
    """A process that uses an instance."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid})"


@dataclass(frozen=True)
class GpuInstance:
    """An instance that exists on the board, created by MIGRator or by another program."""

    place: Place
    number: int
    """Number assigned by the driver. A later instance at the same place may get the same number."""
    uuid: str | None
    """UUID for CUDA; None if the compute instance is missing, which makes the instance unusable."""
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True)
class Gpu:
    """The GPU that a driver divides, in the current boot of the machine."""

    index: int
    uuid: str
    name: str
    board: Board
    boot_id: str
    """Boot of the machine; instances do not survive a reboot."""
    driver_version: str
    divides: bool
    """Whether instances can be created; False if MIG mode is off."""
    driver: str
    """Kind of the driver. A driver does not see the instances that another driver created."""


class GpuDriver(Protocol):
    """Interface to one GPU and its instances.

    Each call returns after the board has completed it.
    """

    name: str

    def gpu(self) -> Gpu: ...

    def instances(self) -> tuple[GpuInstance, ...]:
        """All instances, ordered by start, including those without a compute instance."""
        ...

    def create(self, place: Place) -> GpuInstance:
        """Create a GPU instance with its compute instance, or neither.

        Raises RefusedError, NotPermittedError or HalfMadeError.
        """
        ...

    def destroy(self, instance: GpuInstance) -> None:
        """Destroy the compute instances, then the GPU instance.

        Raises InUseError or TransientError.
        """
        ...

    def environment(self, instance: GpuInstance) -> Mapping[str, str]:
        """Environment variables that make a worker run on the instance."""
        ...


@dataclass(frozen=True)
class DriverOptions:
    """What a driver is opened with."""

    state: Path
    board: Board | None = None
    """The board to divide the GPU like; None: the driver's choice."""


@dataclass(frozen=True)
class DriverEntry:
    """A driver by name. A module of this package lists its own in `DRIVERS`."""

    name: str
    open: Callable[[int, DriverOptions], AbstractContextManager[GpuDriver]]
    """Opens the GPU with an index. Raises InputError if the driver cannot be used here."""
    indices: Callable[[Path], tuple[int, ...]]
    """The indices of the GPUs that it can open, with the state folder."""
    takes_board: Callable[[Board], bool] = lambda _: False
    """Whether the user may choose this board."""


class InUseError(GpuError):
    """A process or a handle uses the instance. MIGRator never kills it."""


class RefusedError(GpuError):
    """The board has no space for the instance at this place, or does not support it."""


class HalfMadeError(RefusedError):
    """An instance could not be completed, and its incomplete part could not be removed."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number
        """Driver's number of the incomplete instance."""


class TransientError(GpuError):
    """Temporary failure; the same call may succeed soon."""


class NotPermittedError(GpuError):
    """The user lacks the permission to change this GPU."""


class DriverKind(StrEnum):
    """Name of the mechanism that divides the GPU."""

    MIG = "mig"
    MPS = "mps"
    EMULATED = "emulated"
