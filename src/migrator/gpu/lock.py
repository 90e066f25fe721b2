"""A lock file per GPU. It allows one process at a time to change the GPU, and names that process.

The lock of a real GPU has one location for all users of the machine, independent of their state
folders.
"""

from __future__ import annotations

import os
from pathlib import Path

from migrator.core.errors import GpuError
from migrator.gpu.drivers.base import DriverKind, Gpu
from migrator.io.lock import LockHeldError, SignedLock

MACHINE_WIDE = (Path("/run/lock"), Path("/var/lock"))
"""Folders for locks that all users of a machine share. The first writable one is used."""
NVIDIA_DEVICE = Path("/dev/nvidiactl")
"""Exists if the machine has a GPU that several users may share."""


class GpuLock(SignedLock):
    """The lock of the GPU `gpu_uuid`."""

    def __init__(self, folder: Path, gpu_uuid: str, *, machine_wide: bool = True) -> None:
        """`folder` contains the lock unless it is `machine_wide`.

        Locks of emulated GPUs are not.
        """
        shared = _machine_wide_folder() if machine_wide else None
        prefix = "" if shared is None else "migrator-"
        path = (shared or folder) / f"{prefix}gpu-{gpu_uuid}.lock"
        super().__init__(path, for_all_users=shared is not None)
        self._gpu_uuid = gpu_uuid

    @classmethod
    def of(cls, gpu: Gpu, folder: Path) -> GpuLock:
        """The lock of a GPU whose journal is in `folder`."""
        return cls(folder, gpu.uuid, machine_wide=gpu.driver != DriverKind.EMULATED)

    def acquire(self) -> None:
        """Take the lock without waiting. Raises GpuError if another process holds it."""
        try:
            super().acquire()
        except LockHeldError as error:
            raise GpuError(
                f"GPU {self._gpu_uuid} is being changed by {error}; try again when it has ended"
            ) from error
        except OSError as error:
            raise GpuError(
                f"{self.path}: the lock cannot be made ({error.strerror}) and nothing was changed; "
                "make it readable and its folder writable, or name another state folder in "
                "MIGRATOR_STATE"
            ) from error


def _machine_wide_folder() -> Path | None:
    """A folder for all users; None without a shared GPU or without such a folder."""
    if not NVIDIA_DEVICE.exists() or os.environ.get("MIGRATOR_FAKE_NVML"):
        return None
    writable = (each for each in MACHINE_WIDE if os.access(each, os.W_OK | os.X_OK))
    return next(writable, None)
