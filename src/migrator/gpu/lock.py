"""One process at a time changes a GPU: a lock file per GPU that says who holds it.

The kernel gives it back when its holder dies, however it dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from datetime import datetime
from pathlib import Path
from weakref import WeakSet

from migrator.core.errors import GpuError

SIGNATURE_BYTES = 512
"""Always as long, so that a shorter one leaves nothing of the one before."""


class GpuLock:
    """The lock of the GPU `gpu_uuid`, in the journal's folder."""

    def __init__(self, folder: Path, gpu_uuid: str) -> None:
        self.path = folder / f"gpu-{gpu_uuid}.lock"
        self._gpu_uuid = gpu_uuid
        self._file: int | None = None

    def take(self) -> None:
        """Takes it now; GpuError where another process has it."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise GpuError(
                f"{self.path}: the lock cannot be made ({error.strerror}) and nothing was "
                "changed; make its folder writable, or name another one in MIGRATOR_STATE"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _in_words(os.pread(file, SIGNATURE_BYTES, 0))
            os.close(file)
            raise GpuError(
                f"GPU {self._gpu_uuid} is being changed by {holder}; try again when it has ended"
            ) from error
        self._file = file
        _held.add(self)
        # for whoever finds it taken; the lock holds without it, on a full disk too
        with contextlib.suppress(OSError):
            os.pwrite(file, _signature(), 0)

    def give_back(self) -> None:
        """Lets others have it."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self.drop()

    def drop(self) -> None:
        """Closes this process's end; what a fork has copied keeps the lock."""
        _held.discard(self)
        if self._file is not None:
            os.close(self._file)
            self._file = None


_held: WeakSet[GpuLock] = WeakSet()


def _drop_in_child() -> None:
    """A forked worker that outlives us must not keep the GPU locked."""
    for lock in tuple(_held):
        lock.drop()


os.register_at_fork(after_in_child=_drop_in_child)


def _signature() -> bytes:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200]
    words = {"pid": os.getpid(), "command": command, "since_s": time.time()}
    return json.dumps(words).encode()[:SIGNATURE_BYTES].ljust(SIGNATURE_BYTES)


def _in_words(signature: bytes) -> str:
    try:
        words = json.loads(signature)
        since = datetime.fromtimestamp(words["since_s"]).strftime("%H:%M:%S")
        return f"process {words['pid']} ({words['command']}) since {since}"
    except (ValueError, KeyError, TypeError):
        return "another process"
