"""An MPS control daemon with private folders, which later processes find again.

The daemon is identified by the process id in its pipe folder and by the pipe folder in its
environment, because the id alone may belong to another process by now. MIGRator never sends
commands to a daemon of another program.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from migrator.core.errors import GpuError, InputError
from migrator.io.processes import command_words, is_running, process_environment, process_ids

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"

_START_S, _ANSWER_S = 60.0, 10.0
"""Timeouts in seconds to start the daemon and to answer a command."""
_LONGEST = 107 - len("/control_privileged")
"""Maximum length of the pipe folder's path.

The path of a socket is limited, and the daemon creates several sockets in the folder.
"""


class MpsDaemon:
    """The daemon of one folder, running or not."""

    def __init__(self, folder: Path, visible: Mapping[str, str], end_s: float = 10.0) -> None:
        """`visible` selects the GPU for CUDA. `end_s` is the daemon's time to exit in seconds."""
        self.pipes, self.logs = folder.absolute() / "pipe", folder.absolute() / "log"
        self._visible, self._end_s = dict(visible), end_s
        if len(str(self.pipes)) > _LONGEST:
            raise InputError(
                f"{self.pipes}: the path is too long for the sockets of MPS ({_LONGEST} characters "
                "at most); name a shorter state folder in MIGRATOR_STATE"
            )

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a client process."""
        return {**self._visible, PIPES: str(self.pipes), LOGS: str(self.logs)}

    def running(self) -> int | None:
        """The daemon's process id; None if it does not run, even if its files remain."""
        try:
            pid = int((self.pipes / f"{CONTROL}.pid").read_text(encoding="ascii"))
        except (OSError, ValueError):
            pid = 0
        # If the environment cannot be read, the process name is sufficient.
        if (
            _controls(pid)
            and self._is_of(process_environment(pid) or self.environment)
            and is_running(pid)
        ):
            return pid
        return min(filter(_controls, self._left()), default=None)

    def start(self) -> None:
        """Start the daemon unless it runs, and remove the files that a killed daemon left."""
        if self.running() is not None:
            return
        self._remove()
        try:
            for folder in (self.pipes, self.logs):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            subprocess.run(
                [CONTROL, "-d"],
                env=self._own_environment(),
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
        if not _wait(lambda: self.running() is not None, self._end_s):
            self.quit()
            raise GpuError(f"MPS ended as soon as it was started; check {CONTROL}")

    def quit(self) -> None:
        """Stop the daemon, kill its remaining processes and remove its folders."""
        until_s = time.monotonic() + self._end_s
        while not self._is_gone() and time.monotonic() < until_s:
            # Repeated, because a daemon that is still starting does not read commands yet.
            self.ask("quit -t 5")
            _wait(self._is_gone, min(1.0, self._end_s))
        for pid in self._left() | set(filter(None, [self.running()])):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _wait(self._is_gone, self._end_s)
        self._remove()

    def clients(self) -> tuple[int, ...]:
        """The processes that compute through the daemon, as far as it reports them."""
        if self.running() is None:
            return ()
        servers = _listed(self.ask("get_server_list"))
        found = {pid for each in servers for pid in _listed(self.ask(f"get_client_list {each}"))}
        # The list may contain a process that has just ended.
        return tuple(sorted(filter(is_running, found)))

    def ask(self, command: str) -> str:
        """The daemon's answer to a command; empty if it does not answer."""
        try:
            done = subprocess.run(
                [CONTROL],
                input=f"{command}\n",
                text=True,
                env=self._own_environment(),
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_ANSWER_S,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout

    def _own_environment(self) -> dict[str, str]:
        mine = {name: each for name, each in os.environ.items() if not name.startswith("CUDA_MPS_")}
        return {**mine, **self.environment}

    def _is_of(self, environment: Mapping[str, str]) -> bool:
        return environment.get(PIPES) == str(self.pipes)

    def _left(self) -> set[int]:
        """The daemon and its servers, as far as this user can see them."""
        named = (
            pid
            for pid in process_ids()
            if any(map(_is_mps, command_words(pid))) and is_running(pid)
        )
        return {pid for pid in named if self._is_of(process_environment(pid))}

    def _is_gone(self) -> bool:
        return not self._left() and self.running() is None

    def _remove(self) -> None:
        for folder in (self.pipes, self.logs):
            shutil.rmtree(folder, ignore_errors=True)


def _is_mps(program: str) -> bool:
    """Whether this is the program name of the daemon or of a server."""
    return program.startswith("nvidia-cuda-mps")


def _controls(pid: int) -> bool:
    """Whether the process is a control daemon.

    Processes that only send a command run without -d.
    """
    words = command_words(pid)
    return CONTROL in words and "-d" in words


def _listed(text: str) -> tuple[int, ...]:
    """The numbers in the daemon's answer, one per line. Lines with error messages are skipped."""
    lines = (each.strip() for each in text.splitlines())
    return tuple(int(each) for each in lines if each.isdigit())


def _wait(is_done: Callable[[], bool], within_s: float) -> bool:
    """Wait for a condition; return whether it became true in time."""
    until_s = time.monotonic() + within_s
    while not is_done():
        if time.monotonic() >= until_s:
            return False
        time.sleep(0.02)
    return True
