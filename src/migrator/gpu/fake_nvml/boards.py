"""The rules of a fake GPU, from the packaged catalogue: profiles, placements and fit.

Plausible values stand in for unpublished ones (ids, SMs or memory of some profiles).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import cache

from migrator.core.catalogue import Board, MigProfile, board
from migrator.gpu.fake_nvml.state import ComputeInstance, FakeGpu, Instance

AMPERE = ("A100", "A30")
"""Boards that keep MIG mode across a reboot."""
UNPUBLISHED_ID = 100
"""Added to NVML's number of a profile whose id is not published."""
COMPUTE_SIZES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7}
"""Slices of each compute instance profile by NVML's number, which is also its id."""


def board_of(gpu: FakeGpu) -> Board:
    """The board of a fake GPU."""
    return board(gpu.board)


@cache
def profiles(name: str) -> dict[int, MigProfile]:
    """A board's profiles by NVML's number."""
    return {each.nvml_enum: each for each in board(name).profiles if each.nvml_enum is not None}


def profile_of(gpu: FakeGpu, instance: Instance) -> MigProfile:
    """The MIG profile of an instance."""
    return profiles(gpu.board)[instance.enum]


def profile_id(profile: MigProfile) -> int:
    """The id by which NVML identifies a profile everywhere except in the query for profiles."""
    known = profile.profile_id
    return UNPUBLISHED_ID + (profile.nvml_enum or 0) if known is None else known


def by_id(gpu: FakeGpu, number: int) -> MigProfile | None:
    """The profile with this id; None if the board does not have it."""
    found = (each for each in profiles(gpu.board).values() if profile_id(each) == number)
    return next(found, None)


def memory_mib(gpu: FakeGpu) -> int:
    """Memory of the whole GPU in MiB, from its name."""
    nominal = next(part for part in gpu.board.split("-") if part.endswith("GB"))
    return int(nominal.removesuffix("GB")) * 1024 - 256


def profile_memory_mib(gpu: FakeGpu, profile: MigProfile) -> int:
    """Memory of an instance in MiB."""
    if profile.memory_gib is not None:
        return round(profile.memory_gib * 1024)
    return memory_mib(gpu) * profile.memory_slices // board_of(gpu).memory_slices


def profile_sms(profile: MigProfile) -> int:
    """The SMs of an instance."""
    return profile.sms or 16 * profile.gpcs


def fits(gpu: FakeGpu, profile: MigProfile, start: int) -> bool:
    """Whether an instance of the profile can be created at this start."""
    slices = set(range(start, start + profile.memory_slices))
    alike = sum(each.enum == profile.nvml_enum for each in gpu.instances)
    gpcs = sum(profile_of(gpu, each).gpcs for each in gpu.instances)
    return (
        not slices & set(_occupied(gpu))
        and alike < profile.max_instances
        and gpcs + profile.gpcs <= board_of(gpu).compute_slices
    )


def instance_number(gpu: FakeGpu, profile: MigProfile, start: int) -> int:
    """Number of an instance as the driver assigns it.

    The whole is 0, its halves 1 and 2, its quarters from 3.
    """
    parts = board_of(gpu).memory_slices // profile.memory_slices
    return parts - 1 + start // profile.memory_slices


def compute_sizes(gpu: FakeGpu, instance: Instance) -> dict[int, int]:
    """Slices of each compute instance profile of a GPU instance, by NVML's number."""
    gpcs = profile_of(gpu, instance).gpcs
    return {enum: slices for enum, slices in COMPUTE_SIZES.items() if slices <= gpcs}


def add_instance(gpu: FakeGpu, profile: MigProfile, start: int) -> Instance:
    """Add a GPU instance without a compute instance."""
    assert profile.nvml_enum is not None
    number = instance_number(gpu, profile, start)
    instance = Instance(number, gpu.next_serial(), profile.nvml_enum, start)
    gpu.instances.append(instance)
    return instance


def add_compute(gpu: FakeGpu, instance: Instance, slices: int) -> ComputeInstance | None:
    """Add a compute instance on the first free slices; None if there is not enough space."""
    taken = {each for one in instance.compute for each in range(one.start, one.start + one.slices)}
    for start in range(profile_of(gpu, instance).gpcs - slices + 1):
        if not taken & set(range(start, start + slices)):
            numbers = {each.number for each in instance.compute}
            number = next(each for each in range(len(numbers) + 1) if each not in numbers)
            compute = ComputeInstance(number, gpu.next_serial(), slices, start)
            instance.compute.append(compute)
            return compute
    return None


def gpu_uuid(name: str, index: int) -> str:
    """UUID of a GPU, which depends on board and index only.

    This makes demonstrations repeatable.
    """
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{name}/{index}')}"


@cache
def mig_uuid(gpu: str, instance: int, compute: int) -> str:
    """UUID of a MIG device in NVIDIA's format, always the same for the same place."""
    return f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, f'{gpu}/{instance}/{compute}')}"


def _occupied(gpu: FakeGpu) -> Iterator[int]:
    for each in gpu.instances:
        yield from range(each.start, each.start + profile_of(gpu, each).memory_slices)
