"""One process at a time changes a GPU: a lock file per GPU that says who holds it.

The kernel gives it back when its holder dies, however it dies. The lock of a real GPU is in one
place for all users of the machine, whatever their state folders are.
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
from migrator.gpu.driver import Gpu
from migrator.gpu.names import Driver
from migrator.gpu.processes import PROC, called

SIGNATURE_BYTES = 512
"""Always as long, so that a shorter one leaves nothing of the one before."""
MACHINE_WIDE = (Path("/run/lock"), Path("/var/lock"))
"""Where every user of a machine looks; the first one that can be written."""
NVIDIA_DEVICE = Path("/dev/nvidiactl")
"""There where the machine has a GPU that several users could mean."""
MODE = 0o644
"""Everybody may take the lock, which reading rights suffice for; only the owner writes into it."""
SIGNED_AFTER_S = 0.02
"""A new holder has the lock a moment before its name is in the file."""


class GpuLock:
    """The lock of the GPU `gpu_uuid`; `folder` has it where it is nobody else's concern."""

    def __init__(self, folder: Path, gpu_uuid: str, *, machine_wide: bool = True) -> None:
        """`machine_wide`: not for emulated GPUs, which every state folder has its own of."""
        wide = _machine_wide() if machine_wide else None
        prefix = "" if wide is None else "migrator-"
        self.path = (wide or folder) / f"{prefix}gpu-{gpu_uuid}.lock"
        self._gpu_uuid, self._for_all = gpu_uuid, wide is not None
        self._file: int | None = None

    @classmethod
    def of(cls, gpu: Gpu, folder: Path) -> GpuLock:
        """The lock of a GPU whose journal is in `folder`."""
        return cls(folder, gpu.uuid, machine_wide=gpu.driver != Driver.EMULATED)

    def take(self) -> None:
        """Takes it now; GpuError where another process has it."""
        try:
            file = self._opened()
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            time.sleep(SIGNED_AFTER_S)
            inode, signature = os.fstat(file).st_ino, os.pread(file, SIGNATURE_BYTES, 0)
            os.close(file)
            raise GpuError(
                f"GPU {self._gpu_uuid} is being changed by {_in_words(_pid(inode), signature)}; "
                "try again when it has ended"
            ) from error
        except OSError as error:
            os.close(file)
            raise self._unusable(error) from error
        self._file = file
        _held.add(self)
        # for messages only: the lock holds without it, on a full disk and in another user's file
        with contextlib.suppress(OSError):
            os.pwrite(file, _signature(), 0)

    def holder(self) -> str | None:
        """Who has it, asked without taking it; None where nobody has, or nobody can tell."""
        try:
            pid = _pid(self.path.stat().st_ino)
            signature = self.path.read_bytes()[:SIGNATURE_BYTES]
        except OSError:
            return None
        return None if pid is None else _in_words(pid, signature)

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

    def _opened(self) -> int:
        how = os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            # without O_CREAT first: the kernel refuses it on other users' files in such folders
            return self._existing(how)
        except FileNotFoundError:
            file = os.open(self.path, how | os.O_RDWR | os.O_CREAT, MODE)
        if self._for_all and os.fstat(file).st_uid == os.geteuid():
            os.fchmod(file, MODE)
        return file

    def _existing(self, how: int) -> int:
        try:
            file = os.open(self.path, how | os.O_RDWR)
        except PermissionError:
            return os.open(self.path, how | os.O_RDONLY)
        status = os.fstat(file)
        if status.st_mode & 0o022 and status.st_uid == os.geteuid():
            os.fchmod(file, status.st_mode & 0o755)  # earlier versions made it writable for all
        return file

    def _unusable(self, error: OSError) -> GpuError:
        return GpuError(
            f"{self.path}: the lock cannot be made ({error.strerror}) and nothing was changed; "
            "make it readable and its folder writable, or name another state folder in "
            "MIGRATOR_STATE"
        )


_held: WeakSet[GpuLock] = WeakSet()


def _drop_in_child() -> None:
    """A forked worker that outlives us must not keep the GPU locked."""
    for lock in tuple(_held):
        lock.drop()


os.register_at_fork(after_in_child=_drop_in_child)


def _machine_wide() -> Path | None:
    """A folder for all users; None where there is no GPU they could share, or no such folder."""
    if not NVIDIA_DEVICE.exists() or os.environ.get("MIGRATOR_FAKE_NVML"):
        return None
    writable = (each for each in MACHINE_WIDE if os.access(each, os.W_OK | os.X_OK))
    return next(writable, None)


def _pid(inode: int) -> int | None:
    """The process that has a whole-file lock on that inode, as the kernel says."""
    try:
        lines = (PROC / "locks").read_text("ascii", errors="replace").splitlines()
    except OSError:
        return None
    for _, kind, _, _, pid, where, *_ in (each.split() for each in lines if " FLOCK " in each):
        # a line of a process that waits has one word more and is skipped
        if kind == "FLOCK" and where.rpartition(":")[2] == str(inode):
            return int(pid)
    return None


def _signature() -> bytes:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200]
    words = {"pid": os.getpid(), "command": command, "since_s": time.time()}
    return json.dumps(words).encode()[:SIGNATURE_BYTES].ljust(SIGNATURE_BYTES)


def _in_words(pid: int | None, signature: bytes) -> str:
    """The holder by its signature; by the kernel's word where the file has another's or none."""
    try:
        words = json.loads(signature)
        if pid is None or words["pid"] == pid:
            since = datetime.fromtimestamp(words["since_s"]).strftime("%H:%M:%S")
            return f"process {words['pid']} ({words['command']}) since {since}"
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
        pass  # any user may have written the file: it need not make sense
    return "another process" if pid is None else f"process {pid} ({called(pid)})"
