"""Who a process is, beyond a number that another may have tomorrow; which boot this is.

The one reader of /proc here; `proc` is another folder in tests.
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
    """A process and when it began, so that a later one of the same number is told apart."""

    pid: int
    name: str
    began: int | None
    """Clock ticks after the boot; None where the system does not tell."""

    @classmethod
    def of(cls, pid: int, name: str | None = None) -> Process:
        """The process that has this number now; by default it is called as its program is."""
        return cls(pid, name or called(pid), _began(pid))

    @property
    def alive(self) -> bool:
        """Whether it still runs; one that ended and waits to be asked how does not."""
        if not exists(self.pid):
            return False
        now = _began(self.pid)
        return now is None or self.began is None or now == self.began


def boot_id() -> str:
    """Another one after every start of the machine; the same for ever where it is not told."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def called(pid: int, proc: Path = PROC) -> str:
    """The name of the process's program, as far as the kernel keeps it: 15 characters."""
    try:
        text = (proc / str(pid) / "comm").read_text(encoding="utf-8", errors="replace")
        return text.strip()
    except OSError:
        return "unknown"


def words(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """What it was called with, paths cut down to their last part; empty where it has ended."""
    try:
        text = (proc / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(each.rpartition("/")[2] for each in text.split("\0") if each)


def numbers(proc: Path = PROC) -> Iterator[int]:
    """Every process there is, as far as it is shown."""
    with suppress(FileNotFoundError):
        yield from (int(each.name) for each in proc.iterdir() if each.name.isdigit())


def opened(pid: int, proc: Path = PROC) -> set[str]:
    """The files a process has open; PermissionError where it is another user's."""
    found = set()
    with suppress(FileNotFoundError):  # it has ended meanwhile
        for each in (proc / str(pid) / "fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                found.add(str(each.readlink()))
    return found


def exists(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    fields = _stat(pid)
    if fields:
        return fields[0] != "Z"
    try:
        os.kill(pid, 0)  # where /proc hides the processes of others
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return not (PROC / "self/stat").exists()


def variables(pid: int, proc: Path = PROC) -> dict[str, str]:
    """The environment a process was started with; empty where it is nobody's to read."""
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
    """The fields behind the program's name, which may itself have blanks and brackets."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
