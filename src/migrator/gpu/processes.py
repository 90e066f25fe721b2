"""Who a process is, beyond a number that another may have tomorrow; which boot this is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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


def called(pid: int) -> str:
    """The name of the process's program, as far as the kernel keeps it: 15 characters."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "unknown"


def words(pid: int) -> tuple[str, ...]:
    """What it was called with, paths cut down to their last part; empty where it has ended."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(each.rpartition("/")[2] for each in text.split("\0") if each)


def numbers() -> Iterator[int]:
    """Every process there is, as far as it is shown."""
    with suppress(FileNotFoundError):
        yield from (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())


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
    return not Path("/proc/self/stat").exists()


def variables(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty where it is nobody's to read."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
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
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
