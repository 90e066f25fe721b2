"""Processes: what /proc knows of them. Tests pass another folder as `proc`.

Uses only the standard library, because it also runs on hosts that have nothing but torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_BOOT_ID = PROC / "sys/kernel/random/boot_id"


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
    return tuple(word.rpartition("/")[2] for word in text.split("\0") if word)


def process_ids(proc: Path = PROC) -> Iterator[int]:
    """The ids of all visible processes."""
    with suppress(FileNotFoundError):
        yield from (int(folder.name) for folder in proc.iterdir() if folder.name.isdigit())


def open_files(pid: int, proc: Path = PROC) -> set[str]:
    """The files that a process has open. Raises PermissionError for another user's process."""
    files = set()
    with suppress(FileNotFoundError):  # the process has ended
        for link in (proc / str(pid) / "fd").iterdir():
            with suppress(FileNotFoundError):  # the file was closed
                files.add(str(link.readlink()))
    return files


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
    pairs = (entry.partition("=") for entry in text.split("\0") if "=" in entry)
    return {name: value for name, _, value in pairs}


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
