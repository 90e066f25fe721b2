"""How large an MPS share is: the SMs and the memory that the MIG instance of its profile has."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from migrator.core.catalogue import Board, MigProfile, board

PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_CLUSTERED = re.compile(r"\b(G?[HB]\d+|Blackwell)\b")
"""Names of GPUs since Hopper."""
_PATTERN = "A100-80GB"
"""Whose sizes and starts a GPU without MIG is divided by."""


def percentage(sms: int, device_sms: int) -> str:
    """The share in percent, rounded up to a tenth: MPS rounds its SMs down."""
    return f"{min(100.0, math.ceil(1000 * sms / device_sms) / 10):g}"


def right_sms(name: str, sms: float, device_sms: int) -> int:
    """As many SMs, about, on which libraries compute right on that GPU.

    On shares of 48, 60 and 96 SMs of an H200 cuBLAS and cuDNN left parts of their results unwritten
    (docs/gpu.md), on 16, 32, 64 and all 132 never: a power of two, or the whole GPU. Others with
    clusters of SMs are taken to do the same; older ones have none.
    """
    if not _CLUSTERED.search(name):
        return max(1, round(sms))
    most = 3 * device_sms // 4  # what is larger may as well be the whole
    powers = [1 << each for each in range(1, most.bit_length())]
    return min((*powers, device_sms), key=lambda each: abs(math.log(each / max(sms, 1.0))))


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
