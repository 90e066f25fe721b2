"""Processes: what /proc knows of them, and the locks on files that they hold.

The kernel releases a lock when its process ends for any reason. Tests pass another folder as
`proc`. Uses only the standard library, because it also runs on hosts
that have nothing but torch.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from migrator.core.errors import InputError

PROC = Path("/proc")
_BOOT_ID = PROC / "sys/kernel/random/boot_id"
SIGNATURE_BYTES = 512
"""Fixed size in bytes, so that a shorter signature fully replaces the previous one."""
SIGNED_AFTER_S = 0.02
"""Seconds that a new holder may need to write its signature after it has taken the lock."""


@dataclass(frozen=True)
class Process:
    """A process and its start time, which distinguishes it from a later one with the same id."""

    pid: int
    name: str
    began: int | None
    """Clock ticks since the boot; None if it is unknown."""

    @classmethod
    def of(cls, pid: int, name: str | None = None) -> Process:
        """The process that has this id now. The name defaults to that of its program."""
        return cls(pid, name or process_name(pid), _began(pid))

    @property
    def alive(self) -> bool:
        """Whether the process still runs. A zombie does not."""
        if not is_running(self.pid):
            return False
        now = _began(self.pid)
        return now is None or self.began is None or now == self.began


def boot_id() -> str:
    """Id of the current boot of the machine; "unknown" if the kernel does not provide it."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def process_name(pid: int, proc: Path = PROC) -> str:
    """The name of the process's program, of which the kernel keeps 15 characters."""
    try:
        text = (proc / str(pid) / "comm").read_text(encoding="utf-8", errors="replace")
        return text.strip()
    except OSError:
        return "unknown"


def command_words(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """The process's command line, with paths reduced to their last part; empty after its end."""
    try:
        text = (proc / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(each.rpartition("/")[2] for each in text.split("\0") if each)


def process_ids(proc: Path = PROC) -> Iterator[int]:
    """The ids of all visible processes."""
    with suppress(FileNotFoundError):
        yield from (int(each.name) for each in proc.iterdir() if each.name.isdigit())


def open_files(pid: int, proc: Path = PROC) -> set[str]:
    """The files that a process has open. Raises PermissionError for another user's process."""
    found = set()
    with suppress(FileNotFoundError):  # the process has ended
        for each in (proc / str(pid) / "fd").iterdir():
            with suppress(FileNotFoundError):  # the file was closed
                found.add(str(each.readlink()))
    return found


def is_running(pid: int) -> bool:
    """Whether a process with this id exists and is not a zombie."""
    fields = _stat(pid)
    if fields:
        return fields[0] not in "ZX"
    try:
        os.kill(pid, 0)  # /proc may hide other users' processes
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return not (PROC / "self/stat").exists()


def process_environment(pid: int, proc: Path = PROC) -> dict[str, str]:
    """The environment that a process was started with; empty if it may not be read."""
    try:
        text = (proc / str(pid) / "environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return {}
    found = (each.partition("=") for each in text.split("\0") if "=" in each)
    return {name: value for name, _, value in found}


def _began(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _stat(pid: int) -> list[str]:
    """The fields after the program's name, which itself may contain spaces and parentheses."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Wait for the lock on a folder, or on a file that is created if it is missing. Raises OSError.

    Opens the file each time, because a forked process shares the lock of an inherited descriptor.
    Not reentrant.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class FolderLock:
    """Exclusive use of a folder by one run, until it releases or drops this, or ends."""

    def __init__(self, folder: Path) -> None:
        """Raise InputError if another run uses the folder or it cannot be created."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InputError(
                f"--checkpoint: {folder} cannot be created or written ({error.strerror or error}); "
                "name another folder"
            ) from error
        self.release = weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise InputError(
                f"--checkpoint: another run is using {folder}; wait for it or name another folder"
            ) from error


class LockHeldError(Exception):
    """Another process holds the lock; the message names it."""


class SignedLock:
    """A lock file that names its holder; a forked child does not inherit the lock."""

    def __init__(self, path: Path, *, for_all_users: bool = False) -> None:
        """`for_all_users`: other users with read permission can take the lock, too."""
        self.path, self._for_all_users = path, for_all_users
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock without waiting; LockHeldError if another process has it, OSError."""
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            time.sleep(SIGNED_AFTER_S)
            inode = os.fstat(descriptor).st_ino
            signature = os.pread(descriptor, SIGNATURE_BYTES, 0)
            os.close(descriptor)
            raise LockHeldError(_describe(_holder_pid(inode), signature)) from error
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        _held.add(self)
        # For messages only: the lock works without it, on a full disk or in a file of another user.
        with contextlib.suppress(OSError):
            os.pwrite(descriptor, _signature(), 0)

    def holder(self) -> str | None:
        """The process that holds the lock, without taking it; None if it is unknown."""
        try:
            pid = _holder_pid(self.path.stat().st_ino)
            signature = self.path.read_bytes()[:SIGNATURE_BYTES]
        except OSError:
            return None
        return None if pid is None else _describe(pid, signature)

    def release(self) -> None:
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self.close()

    def close(self) -> None:
        """Close this process's descriptor. A copy in a forked process keeps the lock."""
        _held.discard(self)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        flags = os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            # First without O_CREAT, which the kernel refuses on other users' files in /run/lock.
            return self._open_existing(flags)
        except FileNotFoundError:
            descriptor = os.open(self.path, flags | os.O_RDWR | os.O_CREAT, 0o644)
        if self._for_all_users and os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, 0o644)
        return descriptor

    def _open_existing(self, flags: int) -> int:
        try:
            descriptor = os.open(self.path, flags | os.O_RDWR)
        except PermissionError:
            return os.open(self.path, flags | os.O_RDONLY)
        status = os.fstat(descriptor)
        if status.st_mode & 0o022 and status.st_uid == os.geteuid():
            os.fchmod(descriptor, status.st_mode & 0o755)
        return descriptor


_held: weakref.WeakSet[SignedLock] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close the locks in a forked process, which may outlive its parent and must not keep them."""
    for lock in tuple(_held):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)


def _holder_pid(inode: int) -> int | None:
    """The process that holds a whole-file lock on this inode, according to the kernel."""
    try:
        lines = (PROC / "locks").read_text("ascii", errors="replace").splitlines()
    except OSError:
        return None
    for _, kind, _, _, pid, place, *_ in (each.split() for each in lines if " FLOCK " in each):
        # The line of a waiting process has one more word and is skipped.
        if kind == "FLOCK" and place.rpartition(":")[2] == str(inode):
            return int(pid)
    return None


def _signature() -> bytes:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200]
    content = {"pid": os.getpid(), "command": command, "since_s": time.time()}
    return json.dumps(content).encode()[:SIGNATURE_BYTES].ljust(SIGNATURE_BYTES)


def _describe(pid: int | None, signature: bytes) -> str:
    """The holder from its signature, or its process id if the signature is another process's."""
    try:
        content = json.loads(signature)
        if pid is None or content["pid"] == pid:
            since = datetime.fromtimestamp(content["since_s"]).strftime("%H:%M:%S")
            return f"process {content['pid']} ({content['command']}) since {since}"
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
        pass  # any user may have written the file: it may be invalid
    return "another process" if pid is None else f"process {pid} ({process_name(pid)})"
