"""What /proc and /dev tell about GPUs without asking their driver; only read, for `doctor.py`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from migrator.gpu.driver import Holder

MIG_CONFIG = "driver/nvidia/capabilities/mig/config"
"""Under /proc: the capability to create and destroy instances."""

_PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
_DEFAULT_PIPE_DIRECTORY = "/tmp/nvidia-mps"
_MPS_CONTROL = "nvidia-cuda-mps-control"


@dataclass(frozen=True)
class Capability:
    """The right to change instances: the node whose reader has it."""

    node: Path
    exists: bool
    readable: bool


@dataclass(frozen=True)
class Holders:
    """Who has a GPU's device open, and how many processes could not be looked at."""

    seen: tuple[Holder, ...]
    hidden: int


@dataclass(frozen=True)
class MpsDaemon:
    """A running MPS control daemon; the pipe directory is None where it may not be read."""

    pid: int
    pipe_directory: str | None


class Machine:
    """This machine; `root` is another folder in tests."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.proc, self.dev = root / "proc", root / "dev"

    def capability(self) -> Capability | None:
        """The node of mig/config; None where the kernel module tells of none."""
        try:
            told = (self.proc / MIG_CONFIG).read_text("ascii", errors="replace")
        except OSError:
            return None
        minor = re.search(r"DeviceFileMinor:\s*(\d+)", told)
        if minor is None:
            return None
        node = self.dev / "nvidia-caps" / f"nvidia-cap{minor[1]}"
        return Capability(node, node.exists(), os.access(node, os.R_OK))

    def holders(self, index: int) -> Holders:
        """The processes that have the GPU's device file open, us left out.

        The device's minor number is taken to be the GPU's, as on every machine that numbers its
        GPUs by their PCI bus.
        """
        device = str(self.dev / f"nvidia{index}")
        seen: list[Holder] = []
        hidden = 0
        for process in self._processes():
            try:
                opened = device in _open_files(process)
            except PermissionError:
                hidden += 1
                continue
            if opened:
                seen.append(Holder(int(process.name), _command(process)))
        return Holders(tuple(seen), hidden)

    def mps_daemons(self) -> tuple[MpsDaemon, ...]:
        """Every MPS control daemon, whoever started it."""
        return tuple(
            MpsDaemon(int(each.name), _pipe_directory(each))
            for each in self._processes()
            if _is_control(each)
        )

    def _processes(self) -> Iterator[Path]:
        if not self.proc.is_dir():
            return
        numbers = [each for each in self.proc.iterdir() if each.name.isdecimal()]
        for each in sorted(numbers, key=lambda path: int(path.name)):
            if int(each.name) != os.getpid():
                yield each


def compute_mode(index: int) -> str | None:
    """Default, Exclusive_Process or Prohibited, as nvidia-smi tells it; None where it does not."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    question = ["--query-gpu=compute_mode", "--format=csv,noheader", "-i", str(index)]
    try:
        done = subprocess.run(
            [program, *question], capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _open_files(process: Path) -> set[str]:
    """What the process has open; PermissionError where it is another user's."""
    found = set()
    with suppress(FileNotFoundError):  # it has ended meanwhile
        for each in (process / "fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                found.add(str(each.readlink()))
    return found


def _command(process: Path) -> str:
    """The program's name; the kernel's own word for it is cut after 15 letters."""
    words = _command_line(process)
    return words[0] if words else _comm(process)


def _is_control(process: Path) -> bool:
    # the server's short name is the same, and an editor may have the program's name in its line
    return _comm(process) == _MPS_CONTROL[:15] and _MPS_CONTROL in _command_line(process)


def _command_line(process: Path) -> list[str]:
    """Its words without their folders."""
    try:
        line = (process / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return []
    return [Path(each).name for each in line.split("\0") if each]


def _comm(process: Path) -> str:
    try:
        return (process / "comm").read_text("utf-8", errors="replace").strip()
    except OSError:
        return "a process that has ended"


def _pipe_directory(process: Path) -> str | None:
    try:
        variables = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    told = dict(each.decode(errors="replace").partition("=")[::2] for each in variables if each)
    return told.get(_PIPE_DIRECTORY, _DEFAULT_PIPE_DIRECTORY)
