"""Shares as MPS percentages, with a daemon of our own that is always told to quit."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Self

from migrator.core.catalogue import Board
from migrator.core.errors import InputError, MigratorError
from migrator.profiling import nvidia_smi
from migrator.profiling.nvidia_smi import Gpu
from migrator.profiling.shares import Json, Share, memory_gib

_CONTROL = "nvidia-cuda-mps-control"
_PATIENCE_S = 60.0


def percentage(sms: int, device_sms: int) -> str:
    """The share in percent, rounded up to a tenth: MPS rounds its SMs down."""
    return f"{math.ceil(1000 * sms / device_sms) / 10:g}"


class Mps:
    """Divides one GPU among processes; MIG mode is off and stays off."""

    name: ClassVar[str] = "mps"
    device: ClassVar[str] = "cuda"

    def __init__(self, gpu: Gpu, board: Board, end_s: float = 10.0) -> None:
        self.board, self._gpu, self._end_s = board, gpu, end_s
        self.words = "MPS shares of the SMs that MIG instances have"
        self.coexist = True
        self._sms = board.sms
        self._client: dict[str, str] = {}

    @classmethod
    def found(cls, index: int, board: Board | None) -> Self:
        """The GPU of that number, if MPS can divide it and it is the board expected."""
        gpu = nvidia_smi.gpu(index)
        seen = nvidia_smi.board_of(gpu)
        if board is not None and board.name != seen.name:
            raise InputError(
                f"gpu: the scenario is of a {board.name}, GPU {index} is a {seen.name}; write "
                f"gpu: {seen.name}, or run this on the other machine"
            )
        if gpu.mig:
            raise InputError(
                f"--gpu: GPU {index} is in MIG mode, where MPS cannot share it out; use another GPU"
            )
        if shutil.which(_CONTROL) is None:
            raise InputError(
                f"--driver: {_CONTROL} is not installed; it comes with NVIDIA's driver (Linux)"
            )
        return cls(gpu, seen)

    def about(self) -> Json:
        """The GPU and its driver."""
        return {"gpu": self._gpu.name, "driver_version": self._gpu.driver}

    def readings(self) -> Json:
        """Clocks, temperature, power."""
        return {**nvidia_smi.readings(self._gpu.index)}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """A daemon in a folder of its own, so that nobody else's is disturbed."""
        with tempfile.TemporaryDirectory(prefix="mps", ignore_cleanup_errors=True) as folder:
            self._client = {
                **self._visible(),
                "CUDA_MPS_PIPE_DIRECTORY": folder,
                "CUDA_MPS_LOG_DIRECTORY": folder,
            }
            environment = os.environ | self._client
            try:
                self._sms = nvidia_smi.device_sms(self._visible()) or self.board.sms
                _start(environment)
                yield
            finally:
                _quit(environment, Path(folder), self._end_s)
                self._client = {}

    @contextmanager
    def share(self, sms: int) -> Iterator[Share]:
        """A percentage; the processes need nothing else, and nothing is left of it."""
        part = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percentage(sms, self._sms)}
        yield Share(sms, memory_gib(self.board, sms), {**self._client, **part})

    def whole(self) -> Share:
        """Who does not know where the daemon is computes without it."""
        return Share(self._sms, None, self._visible())

    def _visible(self) -> dict[str, str]:
        # by UUID, since a daemon that sees one GPU calls it 0 whatever its number is
        return {} if self._gpu.alone else {"CUDA_VISIBLE_DEVICES": self._gpu.uuid}


def _start(environment: Mapping[str, str]) -> None:
    try:
        subprocess.run(
            [_CONTROL, "-d"],
            env=dict(environment),
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=_PATIENCE_S,
        )
    except subprocess.CalledProcessError as error:
        said = str(error.stderr).strip().partition("\n")[0]
        raise MigratorError(f"MPS could not be started ({said}); check {_CONTROL}") from error
    except subprocess.TimeoutExpired as error:
        raise MigratorError(f"MPS did not start; check {_CONTROL}") from error


def _quit(environment: Mapping[str, str], folder: Path, end_s: float) -> None:
    """Ask it to go; where it stays, end it by the number it left in its folder."""
    number = _daemon(folder)
    with suppress(subprocess.TimeoutExpired, OSError):
        subprocess.run(
            [_CONTROL],
            input="quit -t 5\n",
            text=True,
            env=dict(environment),
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
        )
    if number is not None and not _gone(number, end_s):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
        _gone(number, end_s)


def _daemon(folder: Path) -> int | None:
    try:
        return int((folder / f"{_CONTROL}.pid").read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return None


def _gone(number: int, within_s: float) -> bool:
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        try:
            status = Path(f"/proc/{number}/stat").read_text(encoding="utf-8")
        except OSError:
            return True
        if status.rpartition(")")[2].split()[0] == "Z":
            return True  # it has ended, and waits for somebody to ask
        time.sleep(0.05)
    return False
