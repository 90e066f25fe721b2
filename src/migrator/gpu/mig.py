"""The `mig` driver: a GPU divided by its own hardware, through NVML.

Only GPU and compute instances are created and destroyed here; MIG mode is switched by
`enable_mig` alone, which nothing calls unless the operator asks for it.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property

from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.gpu import nvml as nvml_calls
from migrator.gpu.driver import (
    Gpu,
    GpuInstance,
    Holder,
    InUseError,
    NotPermittedError,
    Place,
    RefusedError,
    TransientError,
)
from migrator.gpu.mig_board import MigBoard, read_board
from migrator.gpu.nvml import (
    ComputeInstanceHandle,
    ComputeInstanceProfile,
    GpuInstanceHandle,
    Nvml,
)
from migrator.gpu.nvml_errors import RIGHTS, UnsupportedError
from migrator.gpu.processes import boot_id, called

FAKE_NVML = "MIGRATOR_FAKE_NVML"
"""FOLDER, or FOLDER:BOARD,BOARD,...: the fake machine that is used instead of this one."""
PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Between attempts to remove a GPU instance that got no compute instance."""


def holder(pid: int) -> Holder:
    """A process by its number, with its name where this user can see it."""
    return Holder(pid, called(pid))


class MigDriver:
    """One GPU and its MIG instances, whoever made them."""

    name = "mig"

    def __init__(
        self,
        nvml: Nvml,
        index: int,
        *,
        boot_id: Callable[[], str] = boot_id,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._nvml = nvml
        self._index = index
        self._boot_id = boot_id
        self._pause = pause
        self._device = nvml.device(index)
        self._compute: dict[int, tuple[ComputeInstanceProfile, ...]] = {}

    def gpu(self) -> Gpu:
        """The GPU, with its board as NVML tells it."""
        return Gpu(
            self._index,
            self._nvml.uuid(self._device),
            self._nvml.name(self._device),
            self._board.board,
            self._boot_id(),
            self._nvml.driver_version(),
            self._nvml.mig_mode(self._device)[0],
        )

    def instances(self) -> tuple[GpuInstance, ...]:
        """Every GPU instance, by start; without compute instance it has no UUID."""
        found = (
            self._instance(handle)
            for profile in self._board.profiles.values()
            for handle in self._nvml.gpu_instances(self._device, profile)
        )
        return tuple(sorted(found, key=lambda each: each.place))

    def create(self, place: Place) -> GpuInstance:
        """A GPU instance there and a compute instance that fills it, or neither."""
        size = self._slices(place)
        profile = self._board.profiles[place.profile]
        try:
            made = self._nvml.create_gpu_instance(self._device, profile.id, place.start, size)
        except RefusedError as error:
            raise RefusedError(
                f"GPU {self._index} has no room for {place}{self._in_the_way(place, size)}; "
                "destroy what is there or choose another place"
            ) from error
        except UnsupportedError as error:
            raise InputError(self._mig_off()) from error
        return self._filled(made, place)

    def destroy(self, instance: GpuInstance) -> None:
        """Compute instances, then the GPU instance; what is gone already is fine."""
        made = self._found(instance)
        if made is None:
            return
        self._refuse_held(instance.place, made)
        try:
            self._emptied(made)
        except InUseError as error:
            # a process may have come in between; without one it is a handle, or passes by itself
            self._refuse_held(instance.place, made)
            raise TransientError(
                f"GPU {self._index} still holds {instance.place} though no process is on it; try "
                "again, and if it stays, stop what watches the GPU (`systemctl stop nvidia-dcgm`)"
            ) from error

    def environment(self, instance: GpuInstance) -> Mapping[str, str]:
        """CUDA sees that instance alone; a container that the worker starts, too."""
        if instance.uuid is None:
            raise GpuError(
                f"{instance.place} on GPU {self._index} has no compute instance, nothing can run "
                "there; destroy it and create it again"
            )
        return {"CUDA_VISIBLE_DEVICES": instance.uuid, "NVIDIA_VISIBLE_DEVICES": instance.uuid}

    def holders(self) -> tuple[Holder, ...]:
        """Every process that computes on the GPU, on an instance or on the whole."""
        return tuple(holder(pid) for pid in self._nvml.processes(self._device))

    def mig_mode(self) -> tuple[bool, bool]:
        """Whether MIG mode is on, and whether it will be after a reset."""
        return self._nvml.mig_mode(self._device)

    def enable_mig(self) -> None:
        """MIG mode on. Only for an operator who asked for it: the GPU may be reset."""
        if self.mig_mode()[0]:
            return
        try:
            self._nvml.enable_mig(self._device)
        except InUseError as error:
            raise InUseError(
                f"MIG mode of GPU {self._index} stays off because {self._users()} uses the "
                "GPU; end that, also what only watches it (`systemctl stop nvidia-dcgm`), and try "
                "again"
            ) from error

    def _users(self) -> str:
        """Who uses the whole GPU, as far as NVML tells."""
        with suppress(GpuError):
            if held := self.holders():
                return ", ".join(map(str, held))
        return "a process that NVML does not list"

    @cached_property
    def _board(self) -> MigBoard:
        return read_board(self._nvml, self._device)

    def _slices(self, place: Place) -> int:
        """The memory slices an instance takes; InputError where it can never be."""
        board = self._board.board
        profile = board.profile(place.profile)
        if place.start not in profile.starts:
            starts = ", ".join(map(str, profile.starts))
            raise InputError(
                f"{place.profile} cannot start at {place.start} on {board.name}; it can at {starts}"
            )
        if not self._nvml.mig_mode(self._device)[0]:
            raise InputError(self._mig_off())
        return profile.memory_slices

    def _mig_off(self) -> str:
        return (
            f"MIG mode of GPU {self._index} is off; `migrator gpu apply LAYOUT --enable-mig` or "
            f"`nvidia-smi -i {self._index} -mig 1` switches it on"
        )

    def _filled(self, made: GpuInstanceHandle, place: Place) -> GpuInstance:
        try:
            self._nvml.create_compute_instance(made, self._full_size(made).id)
            return self._instance(made)
        except BaseException as error:
            left = self._removed(made)
            if not isinstance(error, MigratorError):
                raise
            refused = isinstance(error, NotPermittedError)
            kind = NotPermittedError if refused else RefusedError
            raise kind(
                f"GPU {self._index} made no compute instance for {place} "
                f"({error.__cause__ or error}); {left}; "
                f"{RIGHTS if refused else 'try again, and look at `dmesg` if it stays'}"
            ) from error

    def _removed(self, made: GpuInstanceHandle) -> str:
        """Removes a GPU instance that nobody can use yet; what became of it, in words."""
        for pause_s in (*PAUSES_S, None):
            try:
                self._emptied(made)
                return "nothing of it is left"
            except (InUseError, TransientError):
                if pause_s is not None:
                    self._pause(pause_s)
            except GpuError:
                break
        return (
            "its GPU instance could not be removed either "
            f"(`nvidia-smi mig -i {self._index} -lgi` lists it, `-dgi -gi NUMBER` removes it)"
        )

    def _emptied(self, made: GpuInstanceHandle) -> None:
        for compute in self._compute_instances(made):
            self._nvml.destroy_compute_instance(compute)
        self._nvml.destroy_gpu_instance(made)

    def _full_size(self, made: GpuInstanceHandle) -> ComputeInstanceProfile:
        """The compute instance that has all of a GPU instance."""
        profiles = self._compute_profiles(made)
        if not profiles:
            raise UnsupportedError("NVML knows no compute instance for it; update the driver")
        return max(profiles, key=lambda each: (each.slices, each.sms))

    def _compute_profiles(self, made: GpuInstanceHandle) -> tuple[ComputeInstanceProfile, ...]:
        """Asked once for every kind of GPU instance: they do not change."""
        kind = self._nvml.gpu_instance_info(made).profile_id
        if kind not in self._compute:
            self._compute[kind] = self._nvml.compute_profiles(made)
        return self._compute[kind]

    def _compute_instances(self, made: GpuInstanceHandle) -> list[ComputeInstanceHandle]:
        return [
            each
            for profile in self._compute_profiles(made)
            for each in self._nvml.compute_instances(made, profile)
        ]

    def _instance(self, made: GpuInstanceHandle) -> GpuInstance:
        info = self._nvml.gpu_instance_info(made)
        devices = [self._nvml.mig_device(each) for each in self._compute_instances(made)]
        pids = sorted({pid for each in devices for pid in self._nvml.processes(each)})
        return GpuInstance(
            Place(info.start, self._board.name_of(info.profile_id)),
            info.number,
            self._nvml.uuid(devices[0]) if devices else None,
            tuple(holder(pid) for pid in pids),
        )

    def _found(self, instance: GpuInstance) -> GpuInstanceHandle | None:
        """The instance, still the one that was listed."""
        made = self._nvml.gpu_instance(self._device, instance.number)
        if made is None:
            return None
        info = self._nvml.gpu_instance_info(made)
        place = Place(info.start, self._board.name_of(info.profile_id))
        return made if place == instance.place else None

    def _refuse_held(self, place: Place, made: GpuInstanceHandle) -> None:
        holders = self._instance(made).holders
        if holders:
            raise InUseError(
                f"{place} on GPU {self._index} is in use by {', '.join(map(str, holders))}; end "
                f"{'it' if len(holders) == 1 else 'them'} first, nothing is ever killed"
            )

    def _in_the_way(self, place: Place, size: int) -> str:
        wanted = range(place.start, place.start + size)
        there = [
            str(each.place)
            for each in self.instances()
            if each.place.start < wanted.stop
            and wanted.start < each.place.start + self._width(each.place)
        ]
        return f": {', '.join(there)} is there" if there else ""

    def _width(self, place: Place) -> int:
        return self._board.board.profile(place.profile).memory_slices


@contextmanager
def opened(
    index: int,
    *,
    boot_id: Callable[[], str] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[MigDriver]:
    """The driver of a GPU, with NVML open as long as it is used."""
    with _nvml() as (nvml, boot):
        yield MigDriver(nvml, index, boot_id=boot_id or boot, pause=pause)


def gpu_count() -> int:
    """How many GPUs NVML finds; InputError where there is no NVML."""
    with _nvml() as (nvml, _):
        return nvml.count()


@contextmanager
def _nvml() -> Iterator[tuple[Nvml, Callable[[], str]]]:
    """NVML and what names this boot: the machine's, or those of a fake machine."""
    if not os.environ.get(FAKE_NVML):
        with nvml_calls.opened() as nvml:
            yield nvml, boot_id
        return
    # loaded only where somebody asked for it: it is no part of the driver
    fakes = importlib.import_module("migrator.gpu.fake_nvml")
    with fakes.from_environment() as fake, nvml_calls.opened() as nvml:
        yield nvml, fake.boot_id
