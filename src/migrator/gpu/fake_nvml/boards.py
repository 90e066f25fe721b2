"""The rules of a fake GPU, from the packaged catalogue: profiles, placements, what fits.

What nobody has published (ids, SMs or memory of some profiles) is filled in here, plausibly.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import cache

from migrator.core.catalogue import Board, MigProfile, board
from migrator.gpu.fake_nvml.state import ComputeInstance, FakeGpu, Instance

AMPERE = ("A100", "A30")
"""Boards that keep MIG mode over a reboot."""
UNPUBLISHED_ID = 100
"""Added to NVML's number of a profile whose id nobody has published."""
COMPUTE_SIZES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7}
"""NVML's number of a compute instance profile -> its slices; the number is its id too."""


def board_of(gpu: FakeGpu) -> Board:
    """The board a fake GPU is."""
    return board(gpu.board)


@cache
def profiles(name: str) -> dict[int, MigProfile]:
    """A board's profiles by NVML's number."""
    return {each.nvml_enum: each for each in board(name).profiles if each.nvml_enum is not None}


def profile_of(gpu: FakeGpu, instance: Instance) -> MigProfile:
    """The MIG profile of an instance."""
    return profiles(gpu.board)[instance.enum]


def profile_id(profile: MigProfile) -> int:
    """What NVML takes for a profile everywhere but in the question for it."""
    known = profile.profile_id
    return UNPUBLISHED_ID + (profile.nvml_enum or 0) if known is None else known


def by_id(gpu: FakeGpu, number: int) -> MigProfile | None:
    """The profile with that id, if the board has it."""
    found = (each for each in profiles(gpu.board).values() if profile_id(each) == number)
    return next(found, None)


def memory_mib(gpu: FakeGpu) -> int:
    """The memory of the whole GPU, as its name promises."""
    nominal = next(part for part in gpu.board.split("-") if part.endswith("GB"))
    return int(nominal.removesuffix("GB")) * 1024 - 256


def profile_memory_mib(gpu: FakeGpu, profile: MigProfile) -> int:
    """The memory of an instance."""
    if profile.memory_gib is not None:
        return round(profile.memory_gib * 1024)
    return memory_mib(gpu) * profile.memory_slices // board_of(gpu).memory_slices


def profile_sms(profile: MigProfile) -> int:
    """The SMs of an instance."""
    return profile.sms or 16 * profile.gpcs


def fits(gpu: FakeGpu, profile: MigProfile, start: int) -> bool:
    """Whether an instance of the profile can be made there now."""
    slices = set(range(start, start + profile.memory_slices))
    alike = sum(each.enum == profile.nvml_enum for each in gpu.instances)
    gpcs = sum(profile_of(gpu, each).gpcs for each in gpu.instances)
    return (
        not slices & set(_occupied(gpu))
        and alike < profile.max_instances
        and gpcs + profile.gpcs <= board_of(gpu).compute_slices
    )


def instance_number(gpu: FakeGpu, profile: MigProfile, start: int) -> int:
    """As the driver numbers them: the whole is 0, its halves 1 and 2, its quarters from 3."""
    parts = board_of(gpu).memory_slices // profile.memory_slices
    return parts - 1 + start // profile.memory_slices


def compute_sizes(gpu: FakeGpu, instance: Instance) -> dict[int, int]:
    """The compute instance profiles of a GPU instance: NVML's number -> slices."""
    gpcs = profile_of(gpu, instance).gpcs
    return {enum: slices for enum, slices in COMPUTE_SIZES.items() if slices <= gpcs}


def add_instance(gpu: FakeGpu, profile: MigProfile, start: int) -> Instance:
    """A GPU instance there, still without compute instance."""
    assert profile.nvml_enum is not None
    number = instance_number(gpu, profile, start)
    instance = Instance(number, gpu.next_serial(), profile.nvml_enum, start)
    gpu.instances.append(instance)
    return instance


def add_compute(gpu: FakeGpu, instance: Instance, slices: int) -> ComputeInstance | None:
    """A compute instance on the first slices that are free, or None."""
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
    """The same for the same board at the same place, so that demonstrations repeat."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{name}/{index}')}"


@cache
def mig_uuid(gpu: str, instance: int, compute: int) -> str:
    """As NVIDIA's look: the same again for the same place, whoever made the instance."""
    return f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, f'{gpu}/{instance}/{compute}')}"


def _occupied(gpu: FakeGpu) -> Iterator[int]:
    for each in gpu.instances:
        yield from range(each.start, each.start + profile_of(gpu, each).memory_slices)
