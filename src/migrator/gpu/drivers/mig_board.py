"""The board of a GPU as NVML reports it: MIG profiles, their starts, SMs and memory.

Works with MIG mode off. The packaged catalogue only supplies what an old driver does not report.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from migrator.core.catalogue import Board, MigProfile, boards
from migrator.core.errors import InputError
from migrator.gpu.drivers.nvidia_smi import find_board, words
from migrator.gpu.drivers.nvml import Device, GpuInstanceProfile, Nvml, UnsupportedError

ATTRIBUTES = {
    **dict.fromkeys((7, 8), "+me"),
    **dict.fromkeys((10, 11, 12, 17), "+gfx"),
    **dict.fromkeys((13, 14), "-me"),
    **dict.fromkeys((15, 16), "+me.all"),
}
"""Name suffixes by NVML's profile number, for profiles with more or fewer engines.

The 1g profile with double memory has no suffix.
"""


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
    name, (_, memory_mib) = nvml.name(device), nvml.memory_mib(device)
    packaged = find_board(name, memory_mib)
    by_enum = {profile.nvml_enum: profile for profile in packaged.profiles} if packaged else {}
    reported = _reported_profiles(nvml, device, packaged)
    if not reported:
        raise InputError(
            f"--driver mig: {name} has no MIG instances; `--driver mps` shares any NVIDIA GPU"
        )
    places = [_placements(nvml, device, profile, by_enum.get(profile.enum)) for profile in reported]
    memory_slices = max(max(starts) + size for size, starts in places)
    names = _numbered(
        _name(profile, by_enum.get(profile.enum), memory_mib, memory_slices) for profile in reported
    )
    profiles = tuple(
        _profile(*read, by_enum.get(read[0].enum))
        for read in zip(reported, names, places, strict=True)
    )
    gpcs = max(profile.gpcs for profile in profiles)
    board = Board(_board_name(profiles, name), gpcs, memory_slices, profiles)
    return MigBoard(board, dict(zip(names, reported, strict=True)))


def _reported_profiles(
    nvml: Nvml, device: Device, packaged: Board | None
) -> list[GpuInstanceProfile]:
    """The profiles ordered by size, as in the catalogue.

    The catalogue supplies them if the driver does not report them.
    """
    try:
        profiles = nvml.profiles(device)
    except UnsupportedError:
        if packaged is None:
            raise
        profiles = tuple(
            GpuInstanceProfile(
                profile.nvml_enum,
                profile.profile_id,
                profile.gpcs,
                profile.max_instances,
                profile.sms or 0,
                round((profile.memory_gib or 0) * 1024),
                profile.name,
            )
            for profile in packaged.profiles
            if profile.profile_id is not None and profile.nvml_enum is not None
        )
    return sorted(profiles, key=lambda profile: (profile.slices, profile.memory_mib, profile.enum))


def _placements(
    nvml: Nvml, device: Device, reported: GpuInstanceProfile, packaged: MigProfile | None
) -> tuple[int, tuple[int, ...]]:
    """Number of memory slices of an instance, and the starts that it can have."""
    try:
        return nvml.placements(device, reported.id)
    except UnsupportedError:
        if packaged is None:
            raise
        return packaged.memory_slices, packaged.starts


def _profile(
    reported: GpuInstanceProfile,
    name: str,
    placements: tuple[int, tuple[int, ...]],
    packaged: MigProfile | None,
) -> MigProfile:
    return MigProfile(
        name=name,
        gpcs=reported.slices,
        memory_slices=placements[0],
        max_instances=reported.most,
        starts=placements[1],
        memory_gib=round(reported.memory_mib / 1024, 2)
        or (packaged.memory_gib if packaged else None),
        sms=reported.sms or (packaged.sms if packaged else None),
        nvml_enum=reported.enum,
        profile_id=reported.id,
    )


def _numbered(names: Iterable[str]) -> list[str]:
    """Unique names. Duplicates, which only an unknown board has, get a number."""
    given: list[str] = []
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        given.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return given


def _name(
    reported: GpuInstanceProfile,
    packaged: MigProfile | None,
    memory_mib: int,
    memory_slices: int,
) -> str:
    """Name of a profile, such as 3g.20gb.

    Taken from the driver, else from the catalogue, else composed by NVIDIA's rule.
    """
    if reported.name:
        return reported.name.removeprefix("MIG ")
    if packaged is not None:
        return packaged.name
    # The instance's slices of the memory, in whole gigabytes of the GPU's memory, halves rounded
    # up.
    taken = math.ceil(memory_slices * reported.memory_mib / memory_mib)
    gigabytes = math.floor(taken / memory_slices * math.ceil(memory_mib / 1024) + 0.5)
    return f"{reported.slices}g.{gigabytes}gb{ATTRIBUTES.get(reported.enum, '')}"


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
