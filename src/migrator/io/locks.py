"""Locks on files and folders, which the kernel releases when their process ends for any reason.

Uses only the standard library, because it also runs on hosts that have nothing but torch.
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
from datetime import datetime
from pathlib import Path

from migrator.core.errors import InputError
from migrator.io import processes

SIGNATURE_BYTES = 512
"""Fixed size in bytes, so that a shorter signature fully replaces the previous one."""
SIGNED_AFTER_S = 0.02
"""Seconds that a new holder may need to write its signature after it has taken the lock."""
_held: weakref.WeakSet[SignedLock] = weakref.WeakSet()


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


def open_exclusively(path: Path, option: str, flags: int = 0) -> int:
    """Open a file to read and write, created if it is missing, that no other process has open so.

    Raises InputError with the option that names it.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, 0o644)
    except OSError as error:
        raise InputError(
            f"{option}: cannot write {path} ({error.strerror or error}); name another one"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise InputError(
            f"{option}: another process writes {path}; wait for it or name another one"
        ) from error
    return descriptor


class FolderLock:
    """Exclusive use of a folder by one run, until it releases or drops this, or ends."""

    def __init__(self, folder: Path) -> None:
        """Raise InputError if another run uses the folder or it cannot be created."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"--checkpoint: {folder} cannot be created ({error.strerror or error}); "
                "name another folder"
            ) from error
        descriptor = open_exclusively(folder / "lock", "--checkpoint")
        self.release = weakref.finalize(self, os.close, descriptor)


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


def _close_in_child() -> None:
    """Close the locks in a forked process, which may outlive its parent and must not keep them."""
    for lock in tuple(_held):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)


def _holder_pid(inode: int) -> int | None:
    """The process that holds a whole-file lock on this inode, according to the kernel."""
    try:
        lines = (processes.PROC / "locks").read_text("ascii", errors="replace").splitlines()
    except OSError:
        return None
    for _, kind, _, _, pid, place, *_ in (line.split() for line in lines if " FLOCK " in line):
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
    return "another process" if pid is None else f"process {pid} ({processes.process_name(pid)})"
