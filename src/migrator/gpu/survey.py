"""Which GPUs there are for a driver, which driver serves by default, where their journal is."""

from __future__ import annotations

import re
from pathlib import Path

from migrator.core.errors import MigratorError
from migrator.gpu.emulated import EmulatedDriver
from migrator.gpu.mig import MigDriver, gpu_count


def usual_driver() -> str:
    """The driver for this machine: `mig` where NVML finds a GPU, else `emulated`."""
    try:
        return MigDriver.name if gpu_count() else EmulatedDriver.name
    except MigratorError:
        return EmulatedDriver.name


def indices(driver: str, state: Path) -> tuple[int, ...]:
    """The GPUs that the driver can be opened on; InputError where it cannot be asked."""
    if driver == EmulatedDriver.name:
        return _emulated(state)
    try:
        return tuple(range(gpu_count()))
    except MigratorError:
        if driver == MigDriver.name:
            raise
        return (0,)  # MPS needs no NVML, and says itself what it misses


def _emulated(state: Path) -> tuple[int, ...]:
    """Those that were ever used, and the first one."""
    names = [each.name for each in (state / "emulated").glob("gpu-*.json")]
    found = {int(each[1]) for each in map(re.compile(r"gpu-(\d+)\.json").fullmatch, names) if each}
    return tuple(sorted(found | {0}))


def journal_path(state: Path) -> Path:
    """The one journal of a machine, in its state folder."""
    return state / "journal.db"
