"""Stand-ins for nvidia-smi and MPS's control program: real processes, no GPU.

The daemon answers through a socket in its pipe folder as the real one does, and leaves its
number there. What a test wants it to tell it writes into that folder: `clients`, a number a line.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.gpu.drivers import nvidia_smi
from migrator.gpu.drivers.mps import MpsDaemon

_SMI = """#!/bin/bash
{exit}
case "$*" in
  *mig.mode.current,compute_mode*) echo "Disabled, Default, Enabled, 700.00 W, 1980 MHz" ;;
  *compute_mode*) echo "Default" ;;
  *) {rows} ;;
esac
"""
_MPS = """#!{python} -SE
import os, signal, socket, sys, time
pipes = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
pid_file = "nvidia-cuda-mps-control.pid"
os.chdir(pipes)

def log(line):
    with open("{log}", "a") as log:
        print(line, file=log)

def answer(command):
    if command == "get_server_list":
        return "4242" if os.path.exists("clients") else ""
    if command == "get_client_list 4242":
        return open("clients").read()
    return "Unknown command 17"

def serve():
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("control")
    listening.listen()
    with open(pid_file, "w") as file:
        print(os.getpid(), file=file)
    while True:
        talk, _ = listening.accept()
        with talk:
            command = talk.recv(4096).decode().strip()
            log(command)
            if command.startswith("quit") and {obeys}:
                os.unlink(pid_file)
                return
            try:
                talk.sendall(answer(command).encode())
            except OSError:
                pass  # who asked was killed before the answer came

def start():
    if os.environ.get("CUDA_MPS_LOG_DIRECTORY") == pipes or {fails}:
        sys.exit("Cannot find MPS control daemon")
    log("start " + os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        signal.alarm(60)
        serve()
        os._exit(0)
    for _ in range(1000):
        if os.path.exists(pid_file):
            return
        time.sleep(0.002)

def ask():
    command = sys.stdin.read()
    if not command:
        return  # who asked was killed before the question came
    talk = socket.socket(socket.AF_UNIX)
    talk.connect("control")
    talk.sendall(command.encode())
    print(talk.recv(4096).decode())

start() if "-d" in sys.argv else ask()
"""


class NvidiaPrograms:
    """Where they are, and the commands that the daemons received."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._log = folder, folder / "mps.log"
        folder.mkdir(parents=True, exist_ok=True)

    def on_path(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Found before any other of their name."""
        monkeypatch.setenv("PATH", f"{self._folder}{os.pathsep}{os.environ['PATH']}")

    def smi(
        self,
        name: str = "NVIDIA H200",
        mib: int = 143771,
        mig: str = "Disabled",
        count: int = 1,
        fails: bool = False,
    ) -> None:
        """An nvidia-smi that reports this many equal GPUs."""
        rows = "; ".join(
            f'echo "{index}, {name}, GPU-{index}234abcd-0000, 580.1, {mib}, {mig}"'
            for index in range(count)
        )
        ends = "echo 'No devices were found'; exit 6" if fails else ""
        self._program("nvidia-smi", _SMI.format(rows=rows, exit=ends))

    def mps(self, *, obeys: bool = True, fails: bool = False) -> None:
        """A control program whose daemon quits on request, or stays, or never starts."""
        text = _MPS.format(python=sys.executable, log=self._log, obeys=obeys, fails=fails)
        self._program("nvidia-cuda-mps-control", text)

    def log(self) -> list[str]:
        """Every start, and every command that a daemon got."""
        return self._log.read_text().splitlines() if self._log.exists() else []

    def _program(self, name: str, text: str) -> None:
        path = self._folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder with a path short enough for sockets. Ends the MPS daemons left in it."""
    folder = Path(tempfile.mkdtemp(prefix="mps"))
    monkeypatch.setenv("MIGRATOR_STATE", str(folder))
    yield folder
    for pid_file in list(folder.rglob("*.pid")):
        MpsDaemon(pid_file.parents[1], {}, end_s=0.0).quit()
    shutil.rmtree(folder)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvidiaPrograms:
    """An nvidia-smi that reports an H200, and an MPS control program."""
    programs = NvidiaPrograms(tmp_path / "programs")
    programs.on_path(monkeypatch)
    programs.smi()
    programs.mps()
    monkeypatch.setattr(nvidia_smi, "device_sms", lambda _visible: 132)
    return programs
