"""The board of a GPU as NVML reports it: MIG profiles, their starts, SMs and memory.

Works with MIG mode off. The packaged catalogue only supplies what NVML then does not report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from migrator.core.catalogue import Board, MigProfile, boards
from migrator.core.errors import InputError
from migrator.gpu.drivers.nvidia_smi import find_board, words
from migrator.gpu.drivers.nvml import Device, GpuInstanceProfile, Nvml, UnsupportedError


@dataclass(frozen=True)
class MigBoard:
    """A board, with NVML's profile for each profile name."""

    board: Board
    profiles: Mapping[str, GpuInstanceProfile]

    def name_of(self, profile_id: int) -> str:
        for name, profile in self.profiles.items():
            if profile.id == profile_id:
                return name
        return f"profile {profile_id}"


def read_board(nvml: Nvml, device: Device) -> MigBoard:
    """The board of a GPU. Raises InputError if it does not support MIG."""
    name, memory_mib = nvml.name(device), nvml.memory_mib(device)
    packaged = find_board(name, memory_mib)
    by_enum = {profile.nvml_enum: profile for profile in packaged.profiles} if packaged else {}
    reported = sorted(
        nvml.profiles(device),
        key=lambda profile: (profile.slices, profile.memory_mib, profile.enum),
    )
    if not reported:
        raise InputError(
            f"--driver mig: {name} has no MIG instances; `--driver mps` shares any NVIDIA GPU"
        )
    profiles = tuple(
        _profile(nvml, device, profile, by_enum.get(profile.enum)) for profile in reported
    )
    gpcs = max(profile.gpcs for profile in profiles)
    memory_slices = max(max(profile.starts) + profile.memory_slices for profile in profiles)
    board = Board(_board_name(profiles, name), gpcs, memory_slices, profiles)
    names = (profile.name for profile in profiles)
    return MigBoard(board, dict(zip(names, reported, strict=True)))


def _profile(
    nvml: Nvml, device: Device, reported: GpuInstanceProfile, packaged: MigProfile | None
) -> MigProfile:
    try:
        memory_slices, starts = nvml.placements(device, reported.id)
    except UnsupportedError:  # MIG mode is off
        if packaged is None:
            raise
        memory_slices, starts = packaged.memory_slices, packaged.starts
    return MigProfile(
        name=reported.name.removeprefix("MIG "),
        gpcs=reported.slices,
        memory_slices=memory_slices,
        max_instances=reported.most,
        starts=starts,
        memory_gib=round(reported.memory_mib / 1024, 2),
        sms=reported.sms,
        nvml_enum=reported.enum,
        profile_id=reported.id,
    )


def _board_name(read: tuple[MigProfile, ...], gpu_name: str) -> str:
    """The catalogue's name of the board with these profiles, else the name that the GPU reports."""
    plain = {(profile.name, profile.starts) for profile in read if not profile.has_suffix}
    alike = [
        board.name
        for board in boards().values()
        if plain
        == {(profile.name, profile.starts) for profile in board.profiles if not profile.has_suffix}
    ]
    # Boards that differ only in SMs are distinguished by the name that the GPU reports, not by a
    # guess.
    said = words(gpu_name)
    shared = {name: len(said & words(name)) for name in alike}
    nearest = max(shared, key=shared.__getitem__, default=gpu_name)
    return nearest if shared.get(nearest) else gpu_name
