"""Where models compute: the name a user gives, and what it is in words."""

from __future__ import annotations

import platform

import torch

from migrator.core.errors import InputError

DEVICES = ("auto", "cpu", "cuda")


def device_of(name: str) -> str:
    """ "cpu" or "cuda"; auto is the GPU where there is one."""
    if name not in DEVICES:
        raise InputError(f"--device: there is no {name[:100]!r}; use {', '.join(DEVICES)}")
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise InputError("--device: torch sees no CUDA GPU here; use cpu, or auto")
    return "cuda" if there and name != "cpu" else "cpu"


def board_of(device: str) -> str:
    """The board's name, or the processor's kind."""
    if device == "cuda":
        return str(torch.cuda.get_device_name())
    return f"CPU ({platform.machine()}, {torch.get_num_threads()} threads)"
