"""The board a GPU is, as NVML tells it: MIG profiles, where they can start, SMs and memory.

Works with MIG mode off. The packaged catalogue only fills in what an old driver does not tell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from migrator.core.catalogue import Board, MigProfile, boards
from migrator.core.errors import InputError
from migrator.gpu.nvml import Device, GpuInstanceProfile, Nvml
from migrator.gpu.nvml_errors import UnsupportedError

ATTRIBUTES = {
    **dict.fromkeys((7, 8), "+me"),
    **dict.fromkeys((10, 11, 12, 17), "+gfx"),
    **dict.fromkeys((13, 14), "-me"),
    **dict.fromkeys((15, 16), "+me.all"),
}
"""NVML's numbers of the profiles with more or fewer engines; the double-memory 1g has no suffix."""


@dataclass(frozen=True)
class MigBoard:
    """A board, and NVML's own profile behind each of its names."""

    board: Board
    profiles: Mapping[str, GpuInstanceProfile]

    def name_of(self, profile_id: int) -> str:
        """The name of the profile with that id."""
        for name, profile in self.profiles.items():
            if profile.id == profile_id:
                return name
        return f"profile {profile_id}"


def read_board(nvml: Nvml, device: Device) -> MigBoard:
    """The board of a GPU; InputError where it cannot be divided."""
    name, memory_mib = nvml.name(device), nvml.memory_mib(device)
    packaged = _packaged(name, memory_mib)
    profiles = _profiles(nvml, device, packaged)
    if not profiles:
        raise InputError(
            f"--driver mig: {name} has no MIG instances; `--driver mps` shares any NVIDIA GPU"
        )
    names = {each.enum: _name(each, packaged, memory_mib) for each in profiles}
    read = tuple(_profile(nvml, device, each, names[each.enum], packaged) for each in profiles)
    board = Board(
        _board_name(read, name),
        max(each.gpcs for each in read),
        max(max(each.starts) + each.memory_slices for each in read),
        read,
    )
    return MigBoard(board, {names[each.enum]: each for each in profiles})


def _profiles(nvml: Nvml, device: Device, packaged: Board | None) -> tuple[GpuInstanceProfile, ...]:
    """By size, as the catalogue has them; from there where the driver cannot tell."""
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


def _profile(
    nvml: Nvml, device: Device, told: GpuInstanceProfile, name: str, packaged: Board | None
) -> MigProfile:
    known = _known(packaged, told.enum)
    try:
        size, starts = nvml.placements(device, told.id)
    except UnsupportedError:
        if known is None:
            raise
        size, starts = known.memory_slices, known.starts
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


def _known(packaged: Board | None, enum: int) -> MigProfile | None:
    found = (each for each in packaged.profiles if each.nvml_enum == enum) if packaged else ()
    return next(iter(found), None)


def _name(told: GpuInstanceProfile, packaged: Board | None, memory_mib: int) -> str:
    """3g.20gb: as the driver says, as the catalogue says, or as NVIDIA forms such names."""
    if told.name:
        return told.name.removeprefix("MIG ")
    known = _known(packaged, told.enum)
    if known is not None:
        return known.name
    # eighths of the memory, in whole gigabytes of the whole, halves up
    eighths = math.ceil(8 * told.memory_mib / memory_mib)
    gigabytes = math.floor(eighths / 8 * math.ceil(memory_mib / 1024) + 0.5)
    return f"{told.slices}g.{gigabytes}gb{ATTRIBUTES.get(told.enum, '')}"


def _packaged(name: str, memory_mib: int) -> Board | None:
    """The catalogue's board that a GPU of this name and memory is."""
    words = _words(name)
    near = {
        board.name: (len(words & _words(board.name)), -distance)
        for board in boards().values()
        for kind, distance in [_nominal(board.name, memory_mib)]
        if kind <= words and distance <= 0.06
    }
    return boards()[max(near, key=lambda each: near[each])] if near else None


def _nominal(board: str, memory_mib: int) -> tuple[set[str], float]:
    """The words before a board's memory (what follows is not told by every driver), and how far
    off that memory is."""
    parts = board.upper().split("-")
    memory = next(each for each in parts if each.endswith("GB"))
    gigabytes = float(memory.removesuffix("GB"))
    return set(parts[: parts.index(memory)]), abs(memory_mib / 1024 - gigabytes) / gigabytes


def _board_name(read: tuple[MigProfile, ...], gpu_name: str) -> str:
    """The catalogue's name of a board with these profiles, else what the GPU calls itself."""
    plain = {(each.name, each.starts) for each in read if not each.has_suffix}
    alike = [
        board.name
        for board in boards().values()
        if plain == {(each.name, each.starts) for each in board.profiles if not each.has_suffix}
    ]
    # boards that differ in SMs only are told apart by what the GPU calls itself, and by no guess
    words = _words(gpu_name)
    shared = {each: len(words & _words(each)) for each in alike}
    nearest = max(shared, key=lambda each: shared[each], default=gpu_name)
    return nearest if shared.get(nearest) else gpu_name


def _words(name: str) -> set[str]:
    return set(re.split(r"[^A-Z0-9]+", name.upper()))
