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
        """The name of the profile with this id."""
        for name, profile in self.profiles.items():
            if profile.id == profile_id:
                return name
        return f"profile {profile_id}"


def read_board(nvml: Nvml, device: Device) -> MigBoard:
    """The board of a GPU. Raises InputError if it does not support MIG."""
    name, memory_mib = nvml.name(device), nvml.memory_mib(device)
    packaged = find_board(name, memory_mib)
    profiles = _profiles(nvml, device, packaged)
    if not profiles:
        raise InputError(
            f"--driver mig: {name} has no MIG instances; `--driver mps` shares any NVIDIA GPU"
        )
    seats = {each.enum: _seats(nvml, device, each, packaged) for each in profiles}
    memory_slices = max(max(starts) + size for size, starts in seats.values())
    names = _numbered(_name(each, packaged, memory_mib, memory_slices) for each in profiles)
    read = tuple(
        _profile(each, name, seats[each.enum], packaged)
        for each, name in zip(profiles, names, strict=True)
    )
    board = Board(_board_name(read, name), max(each.gpcs for each in read), memory_slices, read)
    return MigBoard(board, dict(zip(names, profiles, strict=True)))


def _profiles(nvml: Nvml, device: Device, packaged: Board | None) -> tuple[GpuInstanceProfile, ...]:
    """The profiles ordered by size, as in the catalogue.

    The catalogue supplies them if the driver does not report them.
    """
    try:
        found = nvml.profiles(device)
    except UnsupportedError:
        if packaged is None:
            raise
        found = tuple(filter(None, map(_from_catalogue, packaged.profiles)))
    return tuple(sorted(found, key=lambda each: (each.slices, each.memory_mib, each.enum)))


def _from_catalogue(profile: MigProfile) -> GpuInstanceProfile | None:
    if profile.profile_id is None or profile.nvml_enum is None:
        return None
    return GpuInstanceProfile(
        profile.nvml_enum,
        profile.profile_id,
        profile.gpcs,
        profile.max_instances,
        profile.sms or 0,
        round((profile.memory_gib or 0) * 1024),
        profile.name,
    )


def _seats(
    nvml: Nvml, device: Device, told: GpuInstanceProfile, packaged: Board | None
) -> tuple[int, tuple[int, ...]]:
    """Number of memory slices of an instance, and the starts that it can have."""
    try:
        return nvml.placements(device, told.id)
    except UnsupportedError:
        known = _known(packaged, told.enum)
        if known is None:
            raise
        return known.memory_slices, known.starts


def _profile(
    told: GpuInstanceProfile,
    name: str,
    seats: tuple[int, tuple[int, ...]],
    packaged: Board | None,
) -> MigProfile:
    known = _known(packaged, told.enum)
    size, starts = seats
    return MigProfile(
        name=name,
        gpcs=told.slices,
        memory_slices=size,
        max_instances=told.most,
        starts=starts,
        memory_gib=round(told.memory_mib / 1024, 2) or (known.memory_gib if known else None),
        sms=told.sms or (known.sms if known else None),
        nvml_enum=told.enum,
        profile_id=told.id,
    )


def _numbered(names: Iterable[str]) -> list[str]:
    """Unique names. Duplicates, which only an unknown board has, get a number."""
    given: list[str] = []
    seen: Counter[str] = Counter()
    for each in names:
        seen[each] += 1
        given.append(each if seen[each] == 1 else f"{each}-{seen[each]}")
    return given


def _known(packaged: Board | None, enum: int) -> MigProfile | None:
    found = (each for each in packaged.profiles if each.nvml_enum == enum) if packaged else ()
    return next(iter(found), None)


def _name(
    told: GpuInstanceProfile, packaged: Board | None, memory_mib: int, memory_slices: int
) -> str:
    """Name of a profile, such as 3g.20gb.

    Taken from the driver, else from the catalogue, else composed by NVIDIA's rule.
    """
    if told.name:
        return told.name.removeprefix("MIG ")
    known = _known(packaged, told.enum)
    if known is not None:
        return known.name
    # The instance's slices of the memory, in whole gigabytes of the GPU's memory, halves rounded
    # up.
    taken = math.ceil(memory_slices * told.memory_mib / memory_mib)
    gigabytes = math.floor(taken / memory_slices * math.ceil(memory_mib / 1024) + 0.5)
    return f"{told.slices}g.{gigabytes}gb{ATTRIBUTES.get(told.enum, '')}"


def _board_name(read: tuple[MigProfile, ...], gpu_name: str) -> str:
    """The catalogue's name of the board with these profiles, else the name that the GPU reports."""
    plain = {(each.name, each.starts) for each in read if not each.has_suffix}
    alike = [
        board.name
        for board in boards().values()
        if plain == {(each.name, each.starts) for each in board.profiles if not each.has_suffix}
    ]
    # Boards that differ only in SMs are distinguished by the name that the GPU reports, not by a
    # guess.
    said = words(gpu_name)
    shared = {each: len(said & words(each)) for each in alike}
    nearest = max(shared, key=lambda each: shared[each], default=gpu_name)
    return nearest if shared.get(nearest) else gpu_name
