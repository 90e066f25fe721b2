"""GPU information from nvidia-smi. Read only: clocks, power and modes are never changed."""

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

OTHERWISE = "use --driver emulated, which needs no GPU"
"""Suggestion in error messages. Callers without emulated GPUs pass another one."""

_PATIENCE_S = 60.0
_MODES = (
    *("mig.mode.current", "compute_mode", "persistence_mode"),
    *("power.limit", "clocks.max.sm"),
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
_NEAR = 0.06
"""Maximum relative difference between a GPU's memory and the gigabytes in a board's name."""


@dataclass(frozen=True)
class SmiGpu:
    """One GPU of this machine as nvidia-smi reports it."""

    index: int
    name: str
    uuid: str
    driver_version: str
    memory_mib: float
    mig: bool
    """Whether MIG mode is on."""
    alone: bool
    """Whether it is the machine's only GPU."""

    @property
    def visible(self) -> dict[str, str]:
        """Environment that selects this GPU for CUDA."""
        # By UUID, because a daemon that sees one GPU gives it the index 0.
        return {} if self.alone else {"CUDA_VISIBLE_DEVICES": self.uuid}


def find_gpu(index: int, *, otherwise: str = OTHERWISE) -> SmiGpu:
    """The GPU with this index. Raises InputError if there is none."""
    fields = ("index", "name", "uuid", "driver_version", "memory.total", "mig.mode.current")
    rows = _query("gpu", fields, otherwise=otherwise)
    for row in rows:
        if row["index"] == str(index):
            return SmiGpu(
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
    """Current clocks, temperature and power; None for values that are not reported."""
    fields = {
        "sm_mhz": "clocks.sm",
        "memory_mhz": "clocks.mem",
        "celsius": "temperature.gpu",
        "watts": "power.draw",
    }
    row = _query("gpu", tuple(fields.values()), "-i", str(index))[0]
    return {name: number(row[field]) for name, field in fields.items()}


def compute_mode(index: int) -> str | None:
    """Default, Exclusive_Process or Prohibited; None if nvidia-smi does not report it."""
    rows = _query_if_there("gpu", ("compute_mode",), "-i", str(index))
    return rows[0]["compute_mode"] if rows else None


def modes(index: int) -> dict[str, str]:
    """Modes and limits of the GPU, which this project only reads."""
    row = _query("gpu", _MODES, "-i", str(index))[0]
    return {name: row[name] for name in _MODES}


def compute_processes(uuid: str) -> tuple[int, ...]:
    """The processes that compute on the GPU with this UUID."""
    rows = _query("compute-apps", ("gpu_uuid", "pid"))
    pids = (row["pid"] for row in rows if row["gpu_uuid"] == uuid)
    return tuple(sorted(int(pid) for pid in pids if pid.isdecimal()))


def used_mib(index: int) -> float | None:
    """Memory of the GPU that is in use by all programs, in MiB; None if it is not reported."""
    rows = _query_if_there("gpu", ("memory.used",), "-i", str(index))
    return number(rows[0]["memory.used"]) if rows else None


def process_mib(pid: int) -> float | None:
    """GPU memory of a process in MiB, including its context; None if it is not reported."""
    rows = _query_if_there("compute-apps", ("pid", "used_memory"))
    used = (number(row["used_memory"]) for row in rows if row["pid"] == str(pid))
    return next(used, None)


def device_sms(visible: Mapping[str, str]) -> int | None:
    """SMs of the first visible GPU as CUDA counts them. An A100 has more than its 7g instance.

    A separate process asks CUDA, so that this one never initialises it. None if it is not reported.
    """
    mine = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_MPS_")}
    # No MPS daemon, because it may expose only a part of the GPU.
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
    """A number that nvidia-smi prints; None if it prints that the value is not available."""
    try:
        return float(text)
    except ValueError:
        return None


def _query_if_there(what: str, fields: tuple[str, ...], *options: str) -> list[dict[str, str]]:
    """The same as `_query`; empty where nvidia-smi does not answer."""
    try:
        return _query(what, fields, *options)
    except InputError:
        return []


def _query(
    what: str, fields: tuple[str, ...], *options: str, otherwise: str = OTHERWISE
) -> list[dict[str, str]]:
    """The fields of each row that nvidia-smi prints."""
    instead = f"run this where there is one, or {otherwise}"
    program = shutil.which("nvidia-smi")
    if program is None:
        raise InputError(f"--gpu: no NVIDIA GPU is to be seen here (no nvidia-smi); {instead}")
    query = f"--query-{what}={','.join(fields)}"
    command = [program, query, *options, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"--gpu: nvidia-smi does not answer ({error}); {instead}") from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip().partition("\n")[0]
        raise InputError(f"--gpu: nvidia-smi found none ({said}); {instead}")
    rows = (line.split(",") for line in done.stdout.strip().splitlines())
    return [dict(zip(fields, map(str.strip, row), strict=False)) for row in rows]


def find_board(name: str, memory_mib: float) -> Board | None:
    """The catalogue's board that matches this GPU name and memory; None if none matches.

    Of boards that match equally the first: an H100 of SXM does not say so, one of PCIe does.
    """
    said = words(name)
    near = {
        board.name: (len(said & words(board.name)), -distance)
        for board in boards().values()
        for kind, distance in [_nominal(board.name, memory_mib)]
        if kind <= said and distance <= _NEAR
    }
    return boards()[max(near, key=lambda board: near[board])] if near else None


def words(name: str) -> set[str]:
    """The words of a name, split at any separator."""
    return set(re.split(r"[^A-Z0-9]+", name.upper()))


def _nominal(board: str, memory_mib: float) -> tuple[set[str], float]:
    """The words before the memory in a board's name, and the relative difference of that memory.

    The words after it are ignored because not every driver reports them.
    """
    parts = board.upper().split("-")
    memory = next(part for part in parts if part.endswith("GB"))
    gigabytes = float(memory.removesuffix("GB"))
    return set(parts[: parts.index(memory)]), abs(memory_mib / 1024 - gigabytes) / gigabytes
