"""The drivers by name, the default driver of a machine, and the GPUs that a driver can open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from migrator.core import catalogue
from migrator.core.errors import InputError, MigratorError
from migrator.core.registry import found_in, pick
from migrator.gpu.drivers.base import DriverEntry, DriverKind, DriverOptions, GpuDriver
from migrator.gpu.drivers.mig import gpu_count


@cache
def drivers() -> dict[str, DriverEntry]:
    """Every driver by name."""
    return found_in("migrator.gpu.drivers", "DRIVERS")


def _driver(name: str) -> DriverEntry:
    return pick("--driver", name, drivers())


@contextmanager
def open_driver(
    name: str, index: int, *, state: Path, board: str | None = None
) -> Iterator[GpuDriver]:
    """The driver called `name` on this GPU. Raises InputError if it cannot be used here.

    `board` is the model of an emulated GPU, stored in the `state` folder, or the board of shares
    into which MPS divides the GPU; by default MPS has the sizes of MIG's instances.
    """
    driver = _driver(name)
    if index < 0:
        raise InputError(f"--gpu: {index} is not a GPU's number; they begin with 0")
    model = None if board is None else catalogue.board(board)
    if model is not None and not driver.takes_board(model):
        raise InputError(
            f"--board: {name} divides the GPU that is there; leave --board out, or use "
            "--driver emulated"
        )
    with driver.open(index, DriverOptions(state, model)) as opened:
        yield opened


def default_driver() -> str:
    """The driver for this machine: `mig` where NVML finds a GPU, else `emulated`."""
    try:
        return DriverKind.MIG if gpu_count() else DriverKind.EMULATED
    except MigratorError:
        return DriverKind.EMULATED


def gpu_indices(driver: str, state: Path) -> tuple[int, ...]:
    """The indices of the GPUs that the driver can open; InputError if it cannot list them."""
    return _driver(driver).indices(state)
