"""What nvidia-smi tells of a GPU. Questions only: clocks, power, modes are never changed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from migrator.core.catalogue import Board, boards
from migrator.core.errors import InputError

INSTEAD = (
    "run this where there is one, or use the packaged profiles, which tenants have unless they "
    "name their own (`migrator profiles` lists them)"
)

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
class Gpu:
    """One GPU of this machine."""

    index: int
    name: str
    uuid: str
    driver: str
    memory_mib: float
    mig: bool
    """Whether it is in MIG mode."""
    alone: bool
    """Whether it is the only one."""


def gpu(index: int) -> Gpu:
    """The GPU of that number; InputError where there is none."""
    fields = ("index", "name", "uuid", "driver_version", "memory.total", "mig.mode.current")
    rows = [_asked(fields, line) for line in _query(f"--query-gpu={','.join(fields)}")]
    for row in rows:
        if row["index"] == str(index):
            return Gpu(
                index,
                row["name"],
                row["uuid"],
                row["driver_version"],
                _number(row["memory.total"]) or 0.0,
                row["mig.mode.current"] == "Enabled",
                len(rows) == 1,
            )
    there = ", ".join(row["index"] for row in rows)
    raise InputError(f"--gpu: there is no GPU {index}; this machine has {there}")


def readings(index: int) -> dict[str, float | None]:
    """Clocks, temperature and power of this moment."""
    fields = {
        "sm_mhz": "clocks.sm",
        "memory_mhz": "clocks.mem",
        "celsius": "temperature.gpu",
        "watts": "power.draw",
    }
    line = _query(f"--query-gpu={','.join(fields.values())}", "-i", str(index))[0]
    row = _asked(tuple(fields), line)
    return {name: _number(value) for name, value in row.items()}


def process_mib(pid: int) -> float | None:
    """The GPU memory of a process, its context included; None where it is not told."""
    try:
        lines = _query("--query-compute-apps=pid,used_memory")
    except InputError:
        return None
    for line in lines:
        row = _asked(("pid", "used"), line)
        if row["pid"] == str(pid):
            return _number(row["used"])
    return None


def device_sms(environment: Mapping[str, str]) -> int | None:
    """The SMs of the GPU, as CUDA counts them; an A100 has more than its largest instance.

    Asked in a process of its own, so that this one never touches CUDA. None where it is not told.
    """
    command = [sys.executable, "-c", _COUNT_SMS]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return int(done.stdout)


def board_of(found: Gpu) -> Board:
    """The board of the catalogue that this GPU is, by name and memory."""
    words = set(re.split(r"[^A-Z0-9]+", found.name.upper()))
    for name, board in boards().items():
        kind, gigabytes = _nominal(name)
        near = abs(found.memory_mib / 1024 - gigabytes) <= 0.06 * gigabytes
        if kind <= words and near:
            return board
    raise InputError(
        f"--gpu: {found.name} with {found.memory_mib / 1024:.0f} GiB is no board that is known "
        "to have MIG instances (`migrator boards` lists them); use another GPU"
    )


def _nominal(board: str) -> tuple[set[str], float]:
    """The words a board's GPU calls itself, and its memory: A100-80GB, RTX-PRO-6000-..-96GB."""
    parts = board.upper().split("-")
    memory = next(each for each in parts if each.endswith("GB"))
    before = parts[: parts.index(memory)]
    # SXM, NVL and the like come after the memory and are not told by every driver
    return set(before), float(memory.removesuffix("GB"))


def _query(*words: str) -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        raise InputError(f"--gpu: no NVIDIA GPU is to be seen here (no nvidia-smi); {INSTEAD}")
    command = [program, *words, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"--gpu: nvidia-smi does not answer ({error}); {INSTEAD}") from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip().partition("\n")[0]
        raise InputError(f"--gpu: nvidia-smi found none ({said}); {INSTEAD}")
    return done.stdout.strip().splitlines()


def _asked(fields: tuple[str, ...], line: str) -> dict[str, str]:
    return dict(zip(fields, (each.strip() for each in line.split(",")), strict=False))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
