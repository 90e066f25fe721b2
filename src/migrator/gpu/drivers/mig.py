"""The `mig` driver: divides a GPU into hardware instances through NVML.

The driver creates and destroys only GPU instances and compute instances. Only `enable_mig` switches
MIG mode, and it runs only at the operator's request.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property

from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.core.placement import Place, place_mask, require_start
from migrator.gpu.drivers.base import (
    DriverKind,
    Gpu,
    GpuInstance,
    HalfMadeError,
    Holder,
    InUseError,
    NotPermittedError,
    RefusedError,
    TransientError,
)
from migrator.gpu.drivers.mig_board import MigBoard, read_board
from migrator.gpu.drivers.nvml import (
    RIGHTS,
    ComputeInstanceHandle,
    ComputeInstanceProfile,
    Device,
    GoneError,
    GpuInstanceHandle,
    LostError,
    Nvml,
    UnsupportedError,
    open_nvml,
)
from migrator.io.processes import boot_id, process_name

FAKE_NVML = "MIGRATOR_FAKE_NVML"
"""Environment variable that selects a fake machine: FOLDER, or FOLDER:BOARD,BOARD,..."""
PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds between attempts to remove a GPU instance that got no compute instance."""


class MigDriver:
    """One GPU and its MIG instances, including those of other programs."""

    name = DriverKind.MIG.value

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

    def gpu(self) -> Gpu:
        """The GPU, with the board that NVML reports."""
        return Gpu(
            self._index,
            self._nvml.uuid(self._device),
            self._nvml.name(self._device),
            self._board.board,
            self._boot_id(),
            self._nvml.driver_version(),
            self._nvml.mig_mode(self._device)[0],
            self.name,
        )

    def instances(self) -> tuple[GpuInstance, ...]:
        """All GPU instances, ordered by start. One without a compute instance has no UUID."""
        return self._instances.all()

    def create(self, place: Place) -> GpuInstance:
        """Create a GPU instance and a compute instance that fills it, or neither."""
        require_start(self._board.board, place)
        if not self.mig_mode()[0]:
            raise InputError(self._mig_off())
        profile, size = self._board.profiles[place.profile], self._width(place)
        try:
            made = self._nvml.create_gpu_instance(self._device, profile.id, place.start, size)
        except RefusedError as error:
            raise RefusedError(
                f"GPU {self._index} has no room for {place}{self._in_the_way(place)}; "
                "destroy what is there or choose another place"
            ) from error
        except UnsupportedError as error:
            raise InputError(self._mig_off()) from error
        except (NotPermittedError, TransientError, LostError):
            raise
        except GpuError as error:
            raise RefusedError(str(error)) from error  # nothing was created, for any reason
        return self._filled(made, place)

    def destroy(self, instance: GpuInstance) -> None:
        """Destroy the compute instances, then the GPU instance.

        Parts that are already gone are no error.
        """
        made = self._instances.find(instance)
        if made is None:
            return
        try:
            self._refuse_held(instance.place, made)
            self._emptied(made)
        except GoneError as error:
            if self._instances.exists(made):
                raise self._not_yet(instance.place, error) from error
        except TransientError as error:
            # A process may have started in the meantime. Without one, a handle uses the instance,
            # or the refusal is temporary.
            self._refuse_held(instance.place, made)
            raise self._not_yet(instance.place, error) from error

    def environment(self, instance: GpuInstance) -> Mapping[str, str]:
        """Environment that limits CUDA, and containers that the worker starts, to this instance."""
        if instance.uuid is None:
            raise GpuError(
                f"{instance.place} on GPU {self._index} has no compute instance, nothing can run "
                "there; destroy it and create it again"
            )
        return {"CUDA_VISIBLE_DEVICES": instance.uuid, "NVIDIA_VISIBLE_DEVICES": instance.uuid}

    def holders(self) -> tuple[Holder, ...]:
        """All processes that compute on the GPU, on an instance or on the whole GPU."""
        return tuple(holder(pid) for pid in self._nvml.processes(self._device))

    def mig_mode(self) -> tuple[bool, bool]:
        """Whether MIG mode is on, and whether it will be on after a reset."""
        return self._nvml.mig_mode(self._device)

    def enable_mig(self) -> None:
        """Switch MIG mode on. Call only at the operator's request, because the GPU may be reset."""
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
        """The processes on the whole GPU that NVML reports."""
        with suppress(GpuError):
            if held := self.holders():
                return ", ".join(map(str, held))
        return "a process that NVML does not list"

    @cached_property
    def _board(self) -> MigBoard:
        return read_board(self._nvml, self._device)

    @cached_property
    def _instances(self) -> MigInstances:
        return MigInstances(self._nvml, self._device, self._board)

    def _mig_off(self) -> str:
        return (
            f"MIG mode of GPU {self._index} is off; `migrator gpu apply LAYOUT --enable-mig` or "
            f"`nvidia-smi -i {self._index} -mig 1` switches it on"
        )

    def _filled(self, made: GpuInstanceHandle, place: Place) -> GpuInstance:
        failed = f"made no compute instance for {place}"
        try:
            self._nvml.create_compute_instance(made, self._instances.full_size(made).id)
            failed = f"made {place} but could not tell of it"
            return self._instances.read(made)
        except BaseException as error:
            number = self._number(made)
            removed = self._removed(made)
            if not isinstance(error, MigratorError):
                raise
            why = f"GPU {self._index} {failed} ({error.__cause__ or error})"
            if not removed:
                raise self._half_made(why, number) from error
            refused = isinstance(error, NotPermittedError)
            kind = NotPermittedError if refused else RefusedError
            remedy = RIGHTS if refused else "try again, and look at `dmesg` if it stays"
            raise kind(f"{why}; nothing of it is left; {remedy}") from error

    def _half_made(self, why: str, number: int | None) -> GpuError:
        """The error for a GPU instance that remains.

        It carries the number so that recovery removes only that instance.
        """
        smi = f"nvidia-smi mig -i {self._index}"
        if number is None:
            return GpuError(f"{why}; whether its GPU instance is there `{smi} -lgi` tells")
        words = f"its GPU instance could not be removed either; `{smi} -dgi -gi {number}` does it"
        return HalfMadeError(f"{why}; {words}", number)

    def _number(self, made: GpuInstanceHandle) -> int | None:
        try:
            return self._nvml.gpu_instance_info(made).number
        except GpuError:
            return None

    def _removed(self, made: GpuInstanceHandle) -> bool:
        """Remove a GPU instance that cannot be used yet; return whether it is gone."""
        for pause_s in (*PAUSES_S, None):
            try:
                self._emptied(made)
                return True
            except GoneError:
                return True
            except TransientError:
                if pause_s is not None:
                    self._pause(pause_s)
            except GpuError:
                break
        return False

    def _emptied(self, made: GpuInstanceHandle) -> None:
        """Destroy a GPU instance and its compute instances.

        The processes that used them have ended, so a refusal is temporary.
        """
        try:
            for compute in self._instances.compute(made):
                self._nvml.destroy_compute_instance(compute)
        except InUseError as error:
            raise TransientError(str(error)) from error.__cause__
        try:
            self._nvml.destroy_gpu_instance(made)
        except (NotPermittedError, LostError, TransientError):
            raise
        except GpuError as error:
            if self._instances.exists(made):
                raise TransientError(str(error)) from error.__cause__

    def _not_yet(self, place: Place, error: GpuError) -> TransientError:
        return TransientError(
            f"GPU {self._index} still holds {place} though no process is on it "
            f"({error.__cause__ or error}); try again, and if it stays, stop what watches the GPU "
            "(`systemctl stop nvidia-dcgm`)"
        )

    def _refuse_held(self, place: Place, made: GpuInstanceHandle) -> None:
        holders = self._instances.read(made).holders
        if holders:
            raise InUseError(
                f"{place} on GPU {self._index} is in use by {', '.join(map(str, holders))}; end "
                f"{'it' if len(holders) == 1 else 'them'} first, nothing is ever killed"
            )

    def _in_the_way(self, place: Place) -> str:
        board = self._board.board
        there = [
            f"{each.place}{'' if each.uuid else ' (half-made)'}"
            for each in self.instances()
            if place_mask(board, each.place) & place_mask(board, place)
        ]
        return f": {', '.join(there)} {'is' if len(there) == 1 else 'are'} there" if there else ""

    def _width(self, place: Place) -> int:
        return self._board.board.profile(place.profile).memory_slices


@contextmanager
def open_mig(
    index: int,
    *,
    boot_id: Callable[[], str] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[MigDriver]:
    """The driver of a GPU. NVML stays open while the context is active."""
    with _nvml() as (nvml, boot):
        yield MigDriver(nvml, index, boot_id=boot_id or boot, pause=pause)


def gpu_count() -> int:
    """Number of GPUs that NVML finds. Raises InputError without NVML."""
    with _nvml() as (nvml, _):
        return nvml.count()


@contextmanager
def _nvml() -> Iterator[tuple[Nvml, Callable[[], str]]]:
    """NVML and a function that returns the boot id, of this machine or of a fake one."""
    if not os.environ.get(FAKE_NVML):
        with open_nvml() as nvml:
            yield nvml, boot_id
        return
    # Imported only on request, because it is not part of the driver.
    fakes = importlib.import_module("migrator.gpu.fake_nvml")
    with fakes.from_environment() as fake, open_nvml() as nvml:
        yield nvml, fake.boot_id


_LOOKS = 20
"""Maximum number of attempts to read an instance that changes during the read.

No program changes an instance for longer than that.
"""


def holder(pid: int) -> Holder:
    """The process with this id, with its name if this user can see it."""
    return Holder(pid, process_name(pid))


class MigInstances:
    """All instances on a GPU, including those of other programs.

    A handle of an instance that is gone raises GoneError.
    """

    def __init__(self, nvml: Nvml, device: Device, board: MigBoard) -> None:
        self._nvml, self._device, self._board = nvml, device, board
        self._compute: dict[int, tuple[ComputeInstanceProfile, ...]] = {}

    def all(self) -> tuple[GpuInstance, ...]:
        """All GPU instances, ordered by start. One that disappears during the read is left out."""
        found = (
            self._still_there(handle)
            for profile in self._board.profiles.values()
            for handle in self._nvml.gpu_instances(self._device, profile)
        )
        return tuple(sorted(filter(None, found), key=lambda each: each.place))

    def read(self, made: GpuInstanceHandle) -> GpuInstance:
        """The instance behind a handle. Without a compute instance it has no UUID."""
        info = self._nvml.gpu_instance_info(made)
        devices = [self._nvml.mig_device(each) for each in self.compute(made)]
        pids = sorted({pid for each in devices for pid in self._nvml.processes(each)})
        return GpuInstance(
            Place(info.start, self._board.name_of(info.profile_id)),
            info.number,
            self._nvml.uuid(devices[0]) if devices else None,
            tuple(holder(pid) for pid in pids),
        )

    def find(self, instance: GpuInstance) -> GpuInstanceHandle | None:
        """The handle of an instance that was listed before; None if it is gone or was replaced."""
        made = self._nvml.gpu_instance(self._device, instance.number)
        if made is None:
            return None
        try:
            info = self._nvml.gpu_instance_info(made)
        except GoneError:
            return None
        place = Place(info.start, self._board.name_of(info.profile_id))
        return made if place == instance.place else None

    def exists(self, made: GpuInstanceHandle) -> bool:
        """Whether the instance still exists."""
        try:
            self._nvml.gpu_instance_info(made)
        except GoneError:
            return False
        return True

    def compute(self, made: GpuInstanceHandle) -> list[ComputeInstanceHandle]:
        """The compute instances inside a GPU instance."""
        return [
            each
            for profile in self._profiles(made)
            for each in self._nvml.compute_instances(made, profile)
        ]

    def full_size(self, made: GpuInstanceHandle) -> ComputeInstanceProfile:
        """The compute instance profile that fills a GPU instance."""
        profiles = self._profiles(made)
        if not profiles:
            raise UnsupportedError("NVML knows no compute instance for it; update the driver")
        return max(profiles, key=lambda each: (each.slices, each.sms))

    def _still_there(self, made: GpuInstanceHandle) -> GpuInstance | None:
        """The current state of an instance; None if the GPU instance is gone.

        An instance that lost only its compute instance is included.
        """
        for _ in range(_LOOKS):
            try:
                return self.read(made)
            except GoneError:
                if not self.exists(made):
                    return None
        return self.read(made)

    def _profiles(self, made: GpuInstanceHandle) -> tuple[ComputeInstanceProfile, ...]:
        """The profiles of compute instances.

        Read once per kind of GPU instance because they do not change.
        """
        kind = self._nvml.gpu_instance_info(made).profile_id
        if kind not in self._compute:
            found = self._nvml.compute_profiles(made)
            self._nvml.gpu_instance_info(made)  # raises GoneError if the list may be incomplete
            self._compute[kind] = found
        return self._compute[kind]
