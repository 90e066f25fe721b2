"""The device that a model runs on."""

from __future__ import annotations

import platform

import torch

from migrator.core.errors import InputError

DEVICES = ("auto", "cpu", "cuda")


def resolve_device(name: str) -> str:
    """ "cpu" or "cuda" for a name in `DEVICES`; auto is the GPU if there is one."""
    if name not in DEVICES:
        raise InputError(f"--device: there is no {name[:100]!r}; use {', '.join(DEVICES)}")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise InputError("--device: torch sees no CUDA GPU here; use cpu, or auto")
    return "cuda" if available and name != "cpu" else "cpu"


def device_name(device: str) -> str:
    """The GPU's name, or the processor's type."""
    if device == "cuda":
        return str(torch.cuda.get_device_name())
    return f"CPU ({platform.machine()}, {torch.get_num_threads()} threads)"
