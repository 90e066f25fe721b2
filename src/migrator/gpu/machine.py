"""What /proc and /dev tell about GPUs without asking their driver; only read, for `doctor.py`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from migrator.gpu import processes
from migrator.gpu.driver import Holder
from migrator.gpu.mps_daemon import CONTROL, PIPES

MIG_CONFIG = "driver/nvidia/capabilities/mig/config"
"""Under /proc: the capability to create and destroy instances."""

_DEFAULT_PIPE_DIRECTORY = "/tmp/nvidia-mps"


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
        for pid in self._others():
            try:
                opened = device in processes.opened(pid, self.proc)
            except PermissionError:
                hidden += 1
                continue
            if opened:
                seen.append(Holder(pid, self._command(pid)))
        return Holders(tuple(seen), hidden)

    def mps_daemons(self) -> tuple[MpsDaemon, ...]:
        """Every MPS control daemon, whoever started it."""
        return tuple(
            MpsDaemon(pid, self._pipe_directory(pid))
            for pid in self._others()
            if self._is_control(pid)
        )

    def _others(self) -> list[int]:
        return sorted(pid for pid in processes.numbers(self.proc) if pid != os.getpid())

    def _command(self, pid: int) -> str:
        """The program's name; the kernel's own word for it is cut after 15 letters."""
        words = processes.words(pid, self.proc)
        return words[0] if words else processes.called(pid, self.proc)

    def _is_control(self, pid: int) -> bool:
        # a server's short name is the same, and an editor may have the program's name in its line
        short = processes.called(pid, self.proc)
        return short == CONTROL[:15] and CONTROL in processes.words(pid, self.proc)

    def _pipe_directory(self, pid: int) -> str | None:
        told = processes.variables(pid, self.proc)
        return told.get(PIPES, _DEFAULT_PIPE_DIRECTORY) if told else None
