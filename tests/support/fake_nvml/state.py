"""The fake's state on disk, and the rules by which its GPUs are divided.

A process killed at any moment leaves the state before a call or after it.
The rules are those of the packaged catalogue, with plausible values for unpublished ones (ids, SMs
or memory of some profiles).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from migrator.core.catalogue import Board, MigProfile, board
from migrator.io.locks import hold_lock

AMPERE = ("A100", "A30")
"""Boards that keep MIG mode across a reboot."""
UNPUBLISHED_ID = 100
"""Added to NVML's number of a profile whose id is not published."""
COMPUTE_SIZES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7}
"""Slices of each compute instance profile by NVML's number, which is also its id."""


@dataclass
class ComputeInstance:
    """A compute instance. Its number may be reused, its `serial` never is."""

    number: int
    serial: int
    slices: int


@dataclass
class Instance:
    """A GPU instance of the profile with NVML's number `enum`."""

    number: int
    serial: int
    enum: int
    start: int
    compute: list[ComputeInstance] = field(default_factory=list)


@dataclass
class Process:
    """A process on a compute instance, or on the whole GPU if `serial` is None."""

    pid: int
    serial: int | None


@dataclass
class FakeGpu:
    """One GPU of the fake machine."""

    board: str
    uuid: str
    mig: bool
    pending: bool
    serial: int = 0
    instances: list[Instance] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)

    @property
    def kind(self) -> Board:
        return board(self.board)

    @property
    def profiles(self) -> Mapping[int, MigProfile]:
        """By NVML's number."""
        return _profiles(self.board)

    @property
    def memory_mib(self) -> int:
        """Of the whole GPU, from its name."""
        nominal = next(part for part in self.board.split("-") if part.endswith("GB"))
        return int(nominal.removesuffix("GB")) * 1024 - 256

    def profile_of(self, instance: Instance) -> MigProfile:
        return self.profiles[instance.enum]

    def profile_memory_mib(self, profile: MigProfile) -> int:
        if profile.memory_gib is not None:
            return round(profile.memory_gib * 1024)
        return self.memory_mib * profile.memory_slices // self.kind.memory_slices

    def compute_sizes(self, instance: Instance) -> dict[int, int]:
        """Slices of each compute instance profile of a GPU instance, by NVML's number."""
        gpcs = self.profile_of(instance).gpcs
        return {enum: slices for enum, slices in COMPUTE_SIZES.items() if slices <= gpcs}

    def fits(self, profile: MigProfile, start: int) -> bool:
        """Whether an instance of the profile can be created at this start."""
        there = [(instance, self.profile_of(instance)) for instance in self.instances]
        slices = set(range(start, start + profile.memory_slices))
        return (
            not any(slices & set(range(i.start, i.start + p.memory_slices)) for i, p in there)
            and sum(i.enum == profile.nvml_enum for i, _ in there) < profile.max_instances
            and sum(other.gpcs for _, other in there) + profile.gpcs <= self.kind.compute_slices
        )

    def add(self, profile: MigProfile, start: int) -> Instance:
        """Add a GPU instance without a compute instance, with a number as the driver assigns it.

        The whole is 0, its halves 1 and 2, its quarters from 3.
        """
        assert profile.nvml_enum is not None
        parts = self.kind.memory_slices // profile.memory_slices
        number = parts - 1 + start // profile.memory_slices
        self.instances.append(Instance(number, self._next_serial(), profile.nvml_enum, start))
        return self.instances[-1]

    def add_compute(self, instance: Instance, slices: int) -> ComputeInstance | None:
        """Add a compute instance; None if there is not enough space."""
        taken = sum(compute.slices for compute in instance.compute)
        if taken + slices > self.profile_of(instance).gpcs:
            return None
        instance.compute.append(ComputeInstance(len(instance.compute), self._next_serial(), slices))
        return instance.compute[-1]

    def _next_serial(self) -> int:
        """A serial that nothing on this GPU has had."""
        self.serial += 1
        return self.serial


@dataclass
class Fault:
    """A fault that happens `left` more times (None: until removed), after `after` successes."""

    kind: str
    left: int | None
    after: int


@dataclass
class State:
    """The whole fake machine."""

    boot_id: str
    gpus: list[FakeGpu]
    faults: list[Fault] = field(default_factory=list)


_STATE = TypeAdapter(State)


class Store:
    """The state in its folder, shared among processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path, self._lock = folder / "state.json", folder / "lock"

    def exists(self) -> bool:
        return self._path.exists()

    def now(self) -> State:
        """The current state; the caller must not change it."""
        with hold_lock(self._lock):
            return _STATE.validate_json(self._path.read_bytes())

    @contextmanager
    def changing(self) -> Iterator[State]:
        """The state to change. It is saved when the block ends without an exception."""
        with hold_lock(self._lock):
            state = _STATE.validate_json(self._path.read_bytes())
            yield state
            self._write(state)

    def begin(self, state: State) -> None:
        """Write the first state, unless another process has done so."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(self._lock):
            if not self.exists():
                self._write(state)

    def _write(self, state: State) -> None:
        """In one system call, which no kill interrupts: what is shorter is filled with spaces."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            os.pwrite(descriptor, _STATE.dump_json(state).ljust(size), 0)
        finally:
            os.close(descriptor)


@cache
def _profiles(name: str) -> Mapping[int, MigProfile]:
    listed = board(name).profiles
    return {profile.nvml_enum: profile for profile in listed if profile.nvml_enum is not None}


def profile_id(profile: MigProfile) -> int:
    """The id by which NVML identifies a profile everywhere except in the query for profiles."""
    published = profile.profile_id
    return UNPUBLISHED_ID + (profile.nvml_enum or 0) if published is None else published


def profile_sms(profile: MigProfile) -> int:
    return profile.sms or 16 * profile.gpcs


def gpu_uuid(name: str, index: int) -> str:
    """UUID of a GPU, which depends on board and index only: demonstrations can be repeated."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{name}/{index}')}"


@cache
def mig_uuid(gpu: str, instance: int, compute: int) -> str:
    """UUID of a MIG device in NVIDIA's format, always the same for the same place."""
    return f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, f'{gpu}/{instance}/{compute}')}"
