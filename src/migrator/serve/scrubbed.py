"""The environment the nursery and its workers get: what they need, and none of our secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import migrator

_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "LANG",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "MIGRATOR_DAEMON",
        "MIGRATOR_DATA",
        "MIGRATOR_LOG_FORMAT",
        "TMPDIR",
        "TZ",
        "VIRTUAL_ENV",
    }
)
_BEGINNINGS = ("LC_", "PYTHON", "OMP_", "CUDA_", "NVIDIA_")
_SECRETS = ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "KEY")
"""Never handed on, whatever a name begins with: NVIDIA_API_KEY is one."""
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""A process with a pool of threads must not fork."""


def scrubbed(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What is left of it, with one thread and this package where Python finds it."""
    kept = {name: value for name, value in environment.items() if _passes(name)}
    source = str(Path(migrator.__file__).parent.parent)
    paths = [source, *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
    return {**kept, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONPATH": os.pathsep.join(paths)}


def _passes(name: str) -> bool:
    wanted = name in _NAMES or name.startswith(_BEGINNINGS)
    return wanted and not any(each in name for each in _SECRETS)
