"""How large an MPS share is: the SMs and the memory that the MIG instance of its profile has."""

from __future__ import annotations

import math
from dataclasses import replace

from migrator.core.catalogue import Board, MigProfile, board

_PATTERN = "A100-80GB"
"""Whose sizes and starts a GPU without MIG is divided by."""


def percentage(sms: int, device_sms: int) -> str:
    """The share in percent, rounded up to a tenth: MPS rounds its SMs down."""
    return f"{min(100.0, math.ceil(1000 * sms / device_sms) / 10):g}"


def share_sms(kind: Board, profile: MigProfile, device_sms: int) -> int:
    """The SMs of an instance; where nobody has published them, its part of the GPU's."""
    return profile.sms or max(1, device_sms * profile.gpcs // kind.compute_slices)


def memory_limit(kind: Board, profile: MigProfile, memory_mib: float) -> str:
    """What CUDA is told: so much of the only GPU it sees, as much as an instance has."""
    part_mib = memory_mib * profile.memory_slices / kind.memory_slices
    mib = part_mib if profile.memory_gib is None else min(1024 * profile.memory_gib, memory_mib)
    return f"0={int(mib)}M"


def board_like(name: str, memory_mib: float, device_sms: int) -> Board:
    """A GPU that knows no MIG, as if it were divided into sevenths like an A100."""
    pattern = board(_PATTERN)
    memory_gib = memory_mib / 1024

    def scaled(profile: MigProfile) -> MigProfile:
        part_gib = memory_gib * profile.memory_slices / pattern.memory_slices
        return replace(
            profile,
            name=f"{profile.gpcs}g.{max(1, round(part_gib))}gb",
            memory_gib=round(part_gib, 2),
            sms=max(1, device_sms * profile.gpcs // pattern.compute_slices),
            nvml_enum=None,
            profile_id=None,
        )

    profiles = tuple(scaled(each) for each in pattern.plain_profiles.values())
    return replace(pattern, name=name, profiles=profiles)
