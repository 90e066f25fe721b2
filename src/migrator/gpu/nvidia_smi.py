"""What nvidia-smi tells of a GPU. Questions only: clocks, power, modes are never changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from migrator.core.errors import InputError
from migrator.gpu.known_boards import board_named

known_board = board_named
"""Which board a GPU is, by what nvidia-smi tells of it."""
OTHERWISE = "use --driver emulated, which needs no GPU"
"""What else one can do; who has no emulated GPUs says something else."""

_PATIENCE_S = 60.0
_COUNT_SMS = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
count = ctypes.c_int()
assert cuda.cuDeviceGetAttribute(ctypes.byref(count), 16, 0) == 0
print(count.value)
"""
"""16 is CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT."""


@dataclass(frozen=True)
class SeenGpu:
    """One GPU of this machine, as nvidia-smi tells it."""

    index: int
    name: str
    uuid: str
    driver_version: str
    memory_mib: float
    mig: bool
    """Whether it is in MIG mode."""
    alone: bool
    """Whether it is the only one."""

    @property
    def visible(self) -> dict[str, str]:
        """What tells CUDA which GPU is meant."""
        # by UUID, since a daemon that sees one GPU calls it 0 whatever its number is
        return {} if self.alone else {"CUDA_VISIBLE_DEVICES": self.uuid}


def seen(index: int, *, otherwise: str = OTHERWISE) -> SeenGpu:
    """The GPU of that number; InputError where there is none."""
    fields = ("index", "name", "uuid", "driver_version", "memory.total", "mig.mode.current")
    asked = f"--query-gpu={','.join(fields)}"
    rows = [_asked(fields, line) for line in _query(asked, otherwise=otherwise)]
    for row in rows:
        if row["index"] == str(index):
            return SeenGpu(
                index,
                row["name"],
                row["uuid"],
                row["driver_version"],
                number(row["memory.total"]) or 0.0,
                row["mig.mode.current"] == "Enabled",
                len(rows) == 1,
            )
    there = ", ".join(row["index"] for row in rows)
    raise InputError(f"--gpu: there is no GPU {index}; this machine has {there}")


def readings(index: int) -> dict[str, float | None]:
    """Clocks, temperature and power of this moment; None where they are not told."""
    fields = {
        "sm_mhz": "clocks.sm",
        "memory_mhz": "clocks.mem",
        "celsius": "temperature.gpu",
        "watts": "power.draw",
    }
    line = _query(f"--query-gpu={','.join(fields.values())}", "-i", str(index))[0]
    row = _asked(tuple(fields), line)
    return {name: number(value) for name, value in row.items()}


def compute_mode(index: int) -> str | None:
    """Default, Exclusive_Process or Prohibited; None where nvidia-smi does not tell."""
    try:
        lines = _query("--query-gpu=compute_mode", "-i", str(index))
    except InputError:
        return None
    return lines[0].strip() if lines else None


def process_mib(pid: int) -> float | None:
    """The GPU memory of a process, its context included; None where it is not told."""
    try:
        lines = _query("--query-compute-apps=pid,used_memory")
    except InputError:
        return None
    for line in lines:
        row = _asked(("pid", "used"), line)
        if row["pid"] == str(pid):
            return number(row["used"])
    return None


def device_sms(visible: Mapping[str, str]) -> int | None:
    """The SMs of the first visible GPU as CUDA counts them; an A100 has more than its 7g instance.

    Asked in a process of its own, so that this one never touches CUDA. None where it is not told.
    """
    mine = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_MPS_")}
    # nobody's MPS daemon, which may show a part of the GPU only
    environment = {**mine, **visible, "CUDA_MPS_PIPE_DIRECTORY": os.devnull}
    command = [sys.executable, "-c", _COUNT_SMS]
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=_PATIENCE_S,
        )
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def number(text: str) -> float | None:
    """What nvidia-smi tells as a number; None where it says that it cannot."""
    try:
        return float(text)
    except ValueError:
        return None


def _query(*words: str, otherwise: str = OTHERWISE) -> list[str]:
    instead = f"run this where there is one, or {otherwise}"
    program = shutil.which("nvidia-smi")
    if program is None:
        raise InputError(f"--gpu: no NVIDIA GPU is to be seen here (no nvidia-smi); {instead}")
    command = [program, *words, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"--gpu: nvidia-smi does not answer ({error}); {instead}") from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip().partition("\n")[0]
        raise InputError(f"--gpu: nvidia-smi found none ({said}); {instead}")
    return done.stdout.strip().splitlines()


def _asked(fields: tuple[str, ...], line: str) -> dict[str, str]:
    return dict(zip(fields, (each.strip() for each in line.split(",")), strict=False))
