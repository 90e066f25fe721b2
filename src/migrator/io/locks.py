"""Locks on files and folders, which the kernel releases when their process ends for any reason.

Uses only the standard library, because it also runs on hosts that have nothing but torch.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

from migrator.core.errors import InputError
from migrator.io import processes

_held: weakref.WeakSet[ProcessLock] = weakref.WeakSet()


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


class ProcessLock:
    """A lock that one process holds; a forked child does not inherit it."""

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
            holder = _holder(os.fstat(descriptor).st_ino)
            os.close(descriptor)
            raise LockHeldError(holder or "another process") from error
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        _held.add(self)

    def holder(self) -> str | None:
        """The process that holds the lock, without taking it; None if it is unknown."""
        try:
            return _holder(self.path.stat().st_ino)
        except OSError:
            return None

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
            return os.open(self.path, flags | os.O_RDWR)  # NFS locks no file open to read only
        except PermissionError:
            return os.open(self.path, flags | os.O_RDONLY)
        except FileNotFoundError:
            descriptor = os.open(self.path, flags | os.O_RDWR | os.O_CREAT, 0o644)
        if self._for_all_users and os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, 0o644)
        return descriptor


def _close_in_child() -> None:
    """Close the locks in a forked process, which may outlive its parent and must not keep them."""
    for lock in tuple(_held):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)


def _holder(inode: int) -> str | None:
    """The process that holds a whole-file lock on this inode; None if the kernel does not say."""
    try:
        lines = (processes.PROC / "locks").read_text("ascii", errors="replace").splitlines()
    except OSError:
        return None
    for _, kind, _, _, pid, place, *_ in (line.split() for line in lines if " FLOCK " in line):
        # The line of a waiting process has one more word and is skipped. A process outside this
        # container has the number 0.
        if kind == "FLOCK" and place.rpartition(":")[2] == str(inode) and int(pid) > 0:
            command = " ".join(processes.command_words(int(pid)))[:200]
            return f"process {pid} ({command or processes.process_name(int(pid))})"
    return None
