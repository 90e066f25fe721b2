"""The `mps` driver: shares of any NVIDIA GPU, of the sizes that its MIG instances would have.

A virtual board decides which shares fit, so that together they never exceed the GPU. A share
without a compute instance is one whose creation or removal was interrupted.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Self

from migrator.core import catalogue
from migrator.core.catalogue import Board, MigProfile
from migrator.core.errors import InputError
from migrator.core.placement import Place
from migrator.gpu.drivers import nvidia_smi
from migrator.gpu.drivers.base import DriverKind, Gpu, GpuInstance, Holder, InUseError
from migrator.gpu.drivers.mps_daemon import CONTROL, MpsDaemon
from migrator.gpu.drivers.nvidia_smi import OTHERWISE, SmiGpu
from migrator.gpu.drivers.virtual_board import (
    INSTANCE,
    VirtualBoard,
    hold_state_lock,
)
from migrator.io.processes import process_environment, process_name

DAEMON_OWNER = "mps"
"""Owner name of the daemon that serves the shares. The profiler runs a daemon of its own."""
SHARES = "shares.json"
MEMORY_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


class MpsDriver:
    """One GPU shared among processes. MIG mode stays off."""

    name = DriverKind.MPS.value

    def __init__(
        self,
        found: SmiGpu,
        state: Path,
        *,
        limit_memory: bool = False,
        boot: str | None = None,
        end_s: float = 10.0,
    ) -> None:
        """`limit_memory` limits the memory of shares. `end_s`: seconds for the daemon to exit."""
        self._found, self._limit_memory = found, limit_memory
        self._visible = found.visible
        folder = daemon_folder(state, DAEMON_OWNER, found)
        self._lock = folder / "daemon.lock"
        self.daemon = MpsDaemon(folder, self._visible, end_s)
        self._virtual = VirtualBoard(
            folder / SHARES, self._board(), found.uuid, boot=boot, kind="MPS"
        )

    @classmethod
    def open(cls, index: int, state: Path, *, limit_memory: bool = False) -> Self:
        """The driver of the GPU with this index. Raises InputError if MPS cannot share the GPU."""
        return cls(find_shareable(index), state, limit_memory=limit_memory)

    def gpu(self) -> Gpu:
        """The GPU, with the board that defines the sizes of its shares."""
        return Gpu(
            index=self._found.index,
            uuid=self._found.uuid,
            name=self._found.name,
            board=self._virtual.board,
            boot_id=self._virtual.boot_id,
            driver_version=self._found.driver_version,
            divides=True,
            driver=self.name,
        )

    def instances(self) -> tuple[GpuInstance, ...]:
        """All shares, with their registered processes and the clients of the daemon."""
        shares = self._virtual.instances()
        if not shares:
            return ()
        uuids = {each.uuid for each in shares if each.uuid is not None}
        registered = {holder.pid for each in shares for holder in each.holders}
        new = set(self.daemon.clients()) - registered
        clients = {pid: process_environment(pid).get(INSTANCE) for pid in new}
        # A client that names no share may run in any of them.
        anywhere = [pid for pid, where in clients.items() if where not in uuids]
        named = {uuid: [pid for pid in new if clients[pid] == uuid] for uuid in uuids}
        return tuple(
            _with_clients(each, anywhere + named.get(each.uuid or "", [])) for each in shares
        )

    def create(self, place: Place) -> GpuInstance:
        """Create a share. The first one starts the daemon."""
        with hold_state_lock(self._lock):
            return self._virtual.create(
                place,
                limited=self._limit_memory,
                meanwhile=self.daemon.start,
                remove=self._remove,
            )

    def destroy(self, instance: GpuInstance) -> None:
        """Remove a share. Removing the last one stops the daemon."""
        with hold_state_lock(self._lock):
            for each in self.instances():
                if (each.number, each.place) == (instance.number, instance.place) and each.holders:
                    users = ", ".join(map(str, each.holders))
                    raise InUseError(f"{each.place} is in use by {users}; end that first")
            self._remove(instance)

    def environment(self, instance: GpuInstance) -> Mapping[str, str]:
        """Environment of a process on the share. Starts the daemon again if it was killed."""
        self._virtual.environment(instance)  # raises if the share is gone, before the daemon starts
        with hold_state_lock(self._lock):
            self.daemon.start()
        return self.described(instance)

    def described(self, instance: GpuInstance) -> Mapping[str, str]:
        """The same environment, without starting the daemon."""
        known = self._virtual.environment(instance)
        board, profile = self._virtual.board, self._virtual.board.profile(instance.place.profile)
        sms = share_sms(board, profile, self.device_sms)
        part = {PERCENTAGE: self._percentage(sms)}
        if self._limit_memory or self._virtual.is_limited(instance):
            part[MEMORY_LIMIT] = memory_limit(board, profile, self._found.memory_mib)
        return {**self.daemon.environment, **known, **part}

    def narrowed(self, environment: Mapping[str, str], percent: float) -> Mapping[str, str]:
        """Environment of a process on `percent` of the GPU, from that of the whole GPU."""
        sms = self._virtual.board.sms * percent / 100
        return {**environment, PERCENTAGE: self._percentage(sms)}

    def _percentage(self, sms: float) -> str:
        usable = safe_sms(self._found.name, sms, self.device_sms)
        return percentage(usable, self.device_sms)

    @cached_property
    def device_sms(self) -> int:
        """SMs of the whole GPU. An A100 has 108, its largest instance 98."""
        counted = nvidia_smi.device_sms(self._visible)
        return counted or self._virtual.board.sms

    def _board(self) -> Board:
        name, memory_mib = self._found.name, self._found.memory_mib
        board = nvidia_smi.find_board(name, memory_mib)
        if board is not None:
            return board
        sms = nvidia_smi.device_sms(self._visible)
        if sms is None:
            raise InputError(
                f"--gpu: the number of SMs of {name} cannot be read from CUDA; check that "
                "`nvidia-smi` and libcuda.so.1 are of the same driver"
            )
        return board_like(name, memory_mib, sms)

    def _remove(self, share: GpuInstance) -> None:
        """Remove a share.

        The daemon exits before the last share is removed, so that an interrupted removal can
        resume.
        """
        self._virtual.destroy_compute_instance(share)
        if all(each.uuid is None for each in self._virtual.instances()):
            self.daemon.quit()
        self._virtual.destroy_gpu_instance(share)


def find_shareable(index: int, *, otherwise: str = OTHERWISE) -> SmiGpu:
    """The GPU with this index, if MPS can share it. Raises InputError that suggests `otherwise`."""
    gpu = nvidia_smi.find_gpu(index, otherwise=otherwise)
    if gpu.mig:
        raise InputError(
            f"--gpu: GPU {index} is in MIG mode, where MPS cannot share it; use "
            "--driver mig, or another GPU"
        )
    if shutil.which(CONTROL) is None:
        raise InputError(
            f"--driver: {CONTROL} is not installed; install it (it comes with NVIDIA's driver "
            f"for Linux), or {otherwise}"
        )
    return gpu


def daemon_folder(state: Path, owner: str, gpu: SmiGpu) -> Path:
    """The folder of an owner's daemon for a GPU, the same in every run.

    The path is short because a socket's path is limited, and contains no GPU index because indices
    may change at a reboot.
    """
    return state / daemon_name(owner, gpu.uuid)


def daemon_name(owner: str, gpu_uuid: str) -> str:
    """The name of the daemon's folder."""
    return f"{owner}-{gpu_uuid.removeprefix('GPU-')[:8]}"


def _with_clients(share: GpuInstance, clients: list[int]) -> GpuInstance:
    added = [Holder(pid, process_name(pid)) for pid in clients]
    return replace(share, holders=tuple(sorted((*share.holders, *added))))


PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_PATTERN = "A100-80GB"
"""Board whose sizes and starts apply to GPUs without MIG."""


def percentage(sms: int, device_sms: int) -> str:
    """The share in percent, rounded up to a tenth because MPS rounds the number of SMs down."""
    return f"{min(100.0, math.ceil(1000 * sms / device_sms) / 10):g}"


def safe_sms(name: str, sms: float, device_sms: int) -> int:
    """A number of SMs close to `sms` on which libraries compute correctly on this GPU.

    On shares of 48, 60 and 96 SMs of an H200, cuBLAS and cuDNN left parts of their results
    unwritten (docs/gpu.md). On 16, 32, 64 and all 132 SMs they never did, so the result is a power
    of two or the whole GPU. Other GPUs with clusters of SMs are assumed to behave the same. Older
    GPUs have no clusters.
    """
    if not catalogue.has_clusters(name):
        return max(1, round(sms))
    most = 3 * device_sms // 4  # a larger share may as well be the whole GPU
    powers = [1 << each for each in range(1, most.bit_length())]
    return min((*powers, device_sms), key=lambda each: abs(math.log(each / max(sms, 1.0))))


def share_sms(kind: Board, profile: MigProfile, device_sms: int) -> int:
    """SMs of an instance. If they are not published, the instance's fraction of the GPU's SMs."""
    return profile.sms or max(1, device_sms * profile.gpcs // kind.compute_slices)


def memory_limit(kind: Board, profile: MigProfile, memory_mib: float) -> str:
    """CUDA's limit for a share: the memory of the instance, on the only visible GPU."""
    part_mib = memory_mib * profile.memory_slices / kind.memory_slices
    mib = part_mib if profile.memory_gib is None else min(1024 * profile.memory_gib, memory_mib)
    return f"0={int(mib)}M"


def board_like(name: str, memory_mib: float, device_sms: int) -> Board:
    """A board for a GPU without MIG, divided into sevenths like an A100."""
    pattern = catalogue.board(_PATTERN)
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
