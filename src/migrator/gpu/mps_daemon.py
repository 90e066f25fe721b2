"""An MPS control daemon of our own: private folders, found again by whoever comes later.

It is known by the number it leaves in its pipe folder and by the pipe folder in its environment;
a number alone may be another process's by now. Nobody else's daemon is ever spoken to.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from migrator.core.errors import GpuError, InputError
from migrator.gpu.processes import exists, numbers, variables, words

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"

_START_S, _ANSWER_S = 60.0, 10.0
"""How long it may take."""
_LONGEST = 107 - len("/control_privileged")
"""A socket's path has no more room, and the daemon puts several into its pipe folder."""


class Daemon:
    """The daemon of one folder, running or not."""

    def __init__(self, folder: Path, visible: Mapping[str, str], end_s: float = 10.0) -> None:
        """`visible`: what tells CUDA which GPU; `end_s`: how long it may take to go."""
        self.pipes, self.logs = folder.absolute() / "pipe", folder.absolute() / "log"
        self._visible, self._end_s = dict(visible), end_s
        if len(str(self.pipes)) > _LONGEST:
            raise InputError(
                f"{self.pipes}: the path is too long for the sockets of MPS ({_LONGEST} characters "
                "at most); name a shorter state folder in MIGRATOR_STATE"
            )

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to be its client."""
        return {**self._visible, PIPES: str(self.pipes), LOGS: str(self.logs)}

    def running(self) -> int | None:
        """Its process number; None where it does not run, whatever it left behind."""
        try:
            pid = int((self.pipes / f"{CONTROL}.pid").read_text(encoding="ascii"))
        except (OSError, ValueError):
            pid = 0
        # where its environment is nobody's to read, its name must do
        if _controls(pid) and self._is_of(variables(pid) or self.environment) and exists(pid):
            return pid
        return min(filter(_controls, self._left()), default=None)

    def start(self) -> None:
        """Start it unless it runs; what a killed one left in its folders is removed."""
        if self.running() is not None:
            return
        self._remove()
        try:
            for folder in (self.pipes, self.logs):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            subprocess.run(
                [CONTROL, "-d"],
                env=self._told(),
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=_START_S,
            )
        except subprocess.CalledProcessError as error:
            self._remove()
            said = str(error.stderr).strip().partition("\n")[0]
            raise GpuError(f"MPS could not be started ({said}); check {CONTROL}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            self.quit()
            raise GpuError(f"MPS did not start ({error}); check {CONTROL}") from error
        if not self._came():
            self.quit()
            raise GpuError(f"MPS ended as soon as it was started; check {CONTROL}")

    def quit(self) -> None:
        """Tell it to go, end what stays of it, and remove its folders."""
        until_s = time.monotonic() + self._end_s
        while not self._gone(0.0) and time.monotonic() < until_s:
            # more than once, since one that is only just coming does not hear yet
            self.asked("quit -t 5")
            self._gone(min(1.0, self._end_s))
        for pid in self._left() | set(filter(None, [self.running()])):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._gone(self._end_s)
        self._remove()

    def clients(self) -> tuple[int, ...]:
        """The processes that compute through it, as far as it tells."""
        if self.running() is None:
            return ()
        servers = _listed(self.asked("get_server_list"))
        found = {pid for each in servers for pid in _listed(self.asked(f"get_client_list {each}"))}
        # one that has just ended may still be on the list
        return tuple(sorted(filter(exists, found)))

    def asked(self, command: str) -> str:
        """What it answers; nothing where it does not."""
        try:
            done = subprocess.run(
                [CONTROL],
                input=f"{command}\n",
                text=True,
                env=self._told(),
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_ANSWER_S,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout

    def _told(self) -> dict[str, str]:
        mine = {name: each for name, each in os.environ.items() if not name.startswith("CUDA_MPS_")}
        return {**mine, **self.environment}

    def _is_of(self, environment: Mapping[str, str]) -> bool:
        return environment.get(PIPES) == str(self.pipes)

    def _left(self) -> set[int]:
        """The daemon and its servers, as far as they are ours to see."""
        named = (pid for pid in numbers() if any(map(_is_mps, words(pid))) and exists(pid))
        return {pid for pid in named if self._is_of(variables(pid))}

    def _gone(self, within_s: float) -> bool:
        until_s = time.monotonic() + within_s
        while self._left() or self.running() is not None:
            if time.monotonic() >= until_s:
                return False
            time.sleep(0.02)
        return True

    def _came(self) -> bool:
        until_s = time.monotonic() + self._end_s
        while self.running() is None:
            if time.monotonic() > until_s:
                return False
            time.sleep(0.02)
        return True

    def _remove(self) -> None:
        for folder in (self.pipes, self.logs):
            shutil.rmtree(folder, ignore_errors=True)


def _is_mps(program: str) -> bool:
    """Whether it is the daemon's name or a server's."""
    return program.startswith("nvidia-cuda-mps")


def _controls(pid: int) -> bool:
    """Whether it is some daemon; those that only put a question to one are called without -d."""
    told = words(pid)
    return CONTROL in told and "-d" in told


def _listed(text: str) -> tuple[int, ...]:
    """Its lists have a number a line; sentences about what went wrong are no numbers."""
    lines = (each.strip() for each in text.splitlines())
    return tuple(int(each) for each in lines if each.isdigit())
