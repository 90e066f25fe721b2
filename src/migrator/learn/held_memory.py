"""The GPU memory that this process holds."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from migrator.core.profiles import CONTEXT_MIB


def held_mib(device: str) -> float:
    """The most that torch has taken from the GPU so far, with the context; 0 without a GPU."""
    if device != "cuda":
        return 0.0
    torch: Any = import_module("torch")
    allocated: int = torch.cuda.max_memory_reserved()
    return CONTEXT_MIB + round(allocated / 2**20, 1)
