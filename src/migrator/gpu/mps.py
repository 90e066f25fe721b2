"""Shares of the SMs that MIG instances have, on any NVIDIA GPU: MPS percentages.

Where shares may sit is decided on a virtual board, so that they never exceed the GPU. A share
without its compute instance there is one whose making or removal was cut off.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Self

from migrator.core.catalogue import Board
from migrator.core.errors import InputError, MigratorError
from migrator.gpu import mps_share, nvidia_smi
from migrator.gpu.driver import Gpu, GpuInstance, Holder, InUseError, Place
from migrator.gpu.mps_daemon import CONTROL, Daemon
from migrator.gpu.names import Driver
from migrator.gpu.nvidia_smi import OTHERWISE, SeenGpu
from migrator.gpu.processes import called, variables
from migrator.gpu.virtual_board import INSTANCE, VirtualBoard, left_half_made
from migrator.gpu.virtual_state import alone

DAEMON_OWNER = "mps"
"""Whose the daemon of the shares is; others who keep one have a name of their own."""
SHARES = "shares.json"
MEMORY_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


class MpsDriver:
    """One GPU shared out among processes; MIG mode is off and stays off."""

    name = Driver.MPS.value

    def __init__(
        self,
        found: SeenGpu,
        state: Path,
        *,
        limit_memory: bool = False,
        boot: str | None = None,
        end_s: float = 10.0,
    ) -> None:
        """`limit_memory`: of shares it makes or tells of; `end_s`: how soon its daemon goes."""
        self._found, self._limit_memory = found, limit_memory
        self._visible = found.visible
        folder = daemon_folder(state, DAEMON_OWNER, found)
        self._lock = folder / "daemon.lock"
        self.daemon = Daemon(folder, self._visible, end_s)
        self._virtual = VirtualBoard(
            folder / SHARES, self._board(), found.uuid, boot=boot, kind="MPS"
        )

    @classmethod
    def found(cls, index: int, state: Path, *, limit_memory: bool = False) -> Self:
        """The GPU of that number, if MPS can share it out."""
        return cls(shareable(index), state, limit_memory=limit_memory)

    def gpu(self) -> Gpu:
        """The GPU, with the board whose instances its shares are as large as."""
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
        """Every share, held by whoever registered and by the daemon's clients."""
        shares = self._virtual.instances()
        if not shares:
            return ()
        uuids = {each.uuid for each in shares if each.uuid is not None}
        registered = {holder.pid for each in shares for holder in each.holders}
        new = set(self.daemon.clients()) - registered
        clients = {pid: variables(pid).get(INSTANCE) for pid in new}
        # who does not say where it runs may run in any of them
        anywhere = [pid for pid, where in clients.items() if where not in uuids]
        named = {uuid: [pid for pid in new if clients[pid] == uuid] for uuid in uuids}
        return tuple(
            _with_clients(each, anywhere + named.get(each.uuid or "", [])) for each in shares
        )

    def create(self, place: Place) -> GpuInstance:
        """A share; with the first one comes the daemon."""
        with alone(self._lock):
            half = self._virtual.create_gpu_instance(place, limited=self._limit_memory)
            try:
                self.daemon.start()
                return self._virtual.create_compute_instance(half)
            except BaseException as error:
                try:
                    self._remove(half)
                except MigratorError as second:
                    raise left_half_made(half, second) from error
                raise

    def destroy(self, instance: GpuInstance) -> None:
        """The share; with the last one goes the daemon."""
        with alone(self._lock):
            for each in self.instances():
                if (each.number, each.place) == (instance.number, instance.place) and each.holders:
                    users = ", ".join(map(str, each.holders))
                    raise InUseError(f"{each.place} is in use by {users}; end that first")
            self._remove(instance)

    def environment(self, instance: GpuInstance) -> Mapping[str, str]:
        """Where the daemon is, and how much of the GPU; a daemon that was killed is started."""
        self._virtual.known(instance)  # refuses what is gone before anything is started
        with alone(self._lock):
            self.daemon.start()
        return self.described(instance)

    def described(self, instance: GpuInstance) -> Mapping[str, str]:
        """The same environment, but nothing is started."""
        known = self._virtual.known(instance)
        board, profile = self._virtual.board, self._virtual.board.profile(instance.place.profile)
        sms = mps_share.share_sms(board, profile, self.device_sms)
        part = {mps_share.PERCENTAGE: self._percentage(sms)}
        if self._limit_memory or self._virtual.limited(instance):
            part[MEMORY_LIMIT] = mps_share.memory_limit(board, profile, self._found.memory_mib)
        return {**self.daemon.environment, **known, **part}

    def narrowed(self, environment: Mapping[str, str], percent: float) -> Mapping[str, str]:
        """The environment of a share as large as the GPU, for a process on a part of it."""
        sms = self._virtual.board.sms * percent / 100
        return {**environment, mps_share.PERCENTAGE: self._percentage(sms)}

    def _percentage(self, sms: float) -> str:
        right = mps_share.right_sms(self._found.name, sms, self.device_sms)
        return mps_share.percentage(right, self.device_sms)

    @cached_property
    def device_sms(self) -> int:
        """The SMs of the GPU itself: an A100 has 108, its largest instance 98."""
        counted = nvidia_smi.device_sms(self._visible)
        return counted or self._virtual.board.sms

    def _board(self) -> Board:
        name, memory_mib = self._found.name, self._found.memory_mib
        board = nvidia_smi.known_board(name, memory_mib)
        if board is not None:
            return board
        sms = nvidia_smi.device_sms(self._visible)
        if sms is None:
            raise InputError(
                f"--gpu: CUDA does not tell how many SMs {name} has; check that `nvidia-smi` and "
                "libcuda.so.1 are of the same driver"
            )
        return mps_share.board_like(name, memory_mib, sms)

    def _remove(self, share: GpuInstance) -> None:
        """The daemon goes before the last share does, so that what is cut off can be finished."""
        self._virtual.destroy_compute_instance(share)
        if all(each.uuid is None for each in self._virtual.instances()):
            self.daemon.quit()
        self._virtual.destroy_gpu_instance(share)


def shareable(index: int, *, otherwise: str = OTHERWISE) -> SeenGpu:
    """The GPU of that number, if MPS can share it out; InputError tells what to do `otherwise`."""
    gpu = nvidia_smi.seen(index, otherwise=otherwise)
    if gpu.mig:
        raise InputError(
            f"--gpu: GPU {index} is in MIG mode, where MPS cannot share it out; use "
            "--driver mig, or another GPU"
        )
    if shutil.which(CONTROL) is None:
        raise InputError(
            f"--driver: {CONTROL} is not installed; install it (it comes with NVIDIA's driver "
            f"for Linux), or {otherwise}"
        )
    return gpu


def daemon_folder(state: Path, owner: str, gpu: SeenGpu) -> Path:
    """Where the daemon of an owner lives on that GPU: the same in every run, for who comes later.

    A socket's path must be short, and the numbers of GPUs may change with the next boot.
    """
    return state / daemon_name(owner, gpu.uuid)


def daemon_name(owner: str, gpu_uuid: str) -> str:
    """What that folder is called in the state folder."""
    return f"{owner}-{gpu_uuid.removeprefix('GPU-')[:8]}"


def _with_clients(share: GpuInstance, clients: list[int]) -> GpuInstance:
    added = [Holder(pid, called(pid)) for pid in clients]
    return replace(share, holders=tuple(sorted((*share.holders, *added))))
