"""The drivers by name, the default driver of a machine, and the GPUs that a driver can open."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from migrator.core import catalogue
from migrator.core.errors import InputError, MigratorError
from migrator.core.registry import pick
from migrator.gpu.drivers.base import DriverKind, GpuDriver
from migrator.gpu.drivers.mig import gpu_count, open_mig
from migrator.gpu.drivers.mps import MpsDriver
from migrator.gpu.drivers.virtual_board import EmulatedDriver

PACE = "MIGRATOR_EMULATED_PACE"
"""Environment variable: factor on the duration of emulated operations; 0 disables the delays."""
_KINDS = {kind.value: kind for kind in DriverKind}


@contextmanager
def open_driver(
    name: str, index: int, *, state: Path, board: str | None = None, limit_memory: bool = False
) -> Iterator[GpuDriver]:
    """The driver called `name` on this GPU. Raises InputError if it cannot be used here.

    `board` is the model of an emulated GPU, stored in the `state` folder, or the board of shares
    into which MPS divides the GPU; by default MPS has the sizes of MIG's instances. `limit_memory`
    limits the memory of an MPS share to that of the instance, as MIG always does.
    """
    kind = pick("--driver", name, _KINDS)
    if index < 0:
        raise InputError(f"--gpu: {index} is not a GPU's number; they begin with 0")
    model = None if board is None else catalogue.board(board)
    divided = kind is DriverKind.MPS and model is not None and model.is_of_shares
    if model is not None and kind is not DriverKind.EMULATED and not divided:
        raise InputError(
            f"--board: {name} divides the GPU that is there; leave --board out, or use "
            "--driver emulated"
        )
    if kind is DriverKind.MIG:
        with open_mig(index) as driver:
            yield driver
    elif kind is DriverKind.MPS:
        with closing(MpsDriver.open(index, state, limit_memory=limit_memory, board=model)) as mps:
            yield mps
    else:
        yield EmulatedDriver(state, index, model, pace=_pace())


def default_driver() -> str:
    """The driver for this machine: `mig` where NVML finds a GPU, else `emulated`."""
    try:
        return DriverKind.MIG if gpu_count() else DriverKind.EMULATED
    except MigratorError:
        return DriverKind.EMULATED


def gpu_indices(driver: str, state: Path) -> tuple[int, ...]:
    """The indices of the GPUs that the driver can open.

    Raises InputError if it cannot list them.
    """
    if driver == DriverKind.EMULATED:
        return _emulated_indices(state)
    try:
        return tuple(range(gpu_count()))
    except MigratorError:
        if driver == DriverKind.MIG:
            raise
        return (0,)  # MPS needs no NVML, and itself reports what is missing


def _emulated_indices(state: Path) -> tuple[int, ...]:
    """The indices of all emulated GPUs that were ever used, and 0."""
    names = [path.name for path in (state / "emulated").glob("gpu-*.json")]
    indices = {
        int(match[1]) for match in map(re.compile(r"gpu-(\d+)\.json").fullmatch, names) if match
    }
    return tuple(sorted(indices | {0}))


def _pace() -> float:
    text = os.environ.get(PACE, "1")
    try:
        pace = float(text)
    except ValueError:
        pace = -1.0
    if not 0 <= pace <= 100:
        raise InputError(f"{PACE}: {text[:50]!r} is not a factor; use a number from 0 to 100")
    return pace
