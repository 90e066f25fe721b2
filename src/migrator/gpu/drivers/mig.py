"""The `mig` driver: divides a GPU into hardware instances through NVML.

The driver creates and destroys only GPU instances and compute instances. Only `enable_mig` switches
MIG mode, and it runs only at the operator's request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property

from migrator.core.catalogue import Place, place_mask, require_start
from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.gpu.drivers.base import (
    DriverEntry,
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
    GoneError,
    GpuInstanceHandle,
    LostError,
    Nvml,
    UnsupportedError,
    open_nvml,
)
from migrator.io.processes import boot_id as machine_boot_id
from migrator.io.processes import process_name

_LOOKS = 20
"""Maximum number of attempts to read an instance that changes during the read.

No program changes an instance for longer than that.
"""


class MigDriver:
    """One GPU and its MIG instances, including those of other programs.

    A handle of an instance that is gone raises GoneError.
    """

    name = DriverKind.MIG.value

    def __init__(
        self,
        nvml: Nvml,
        index: int,
        *,
        boot_id: Callable[[], str] = machine_boot_id,
    ) -> None:
        self._nvml, self._index, self._boot_id = nvml, index, boot_id
        self._device = nvml.device(index)

    def gpu(self) -> Gpu:
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
        """All GPU instances, ordered by start. One that disappears during the read is left out."""
        instances = (
            self._read_if_there(handle)
            for profile in self._board.profiles.values()
            for handle in self._nvml.gpu_instances(self._device, profile)
        )
        return tuple(sorted(filter(None, instances), key=lambda instance: instance.place))

    def create(self, place: Place) -> GpuInstance:
        """Create a GPU instance and a compute instance that fills it, or neither."""
        board = self._board.board
        require_start(board, place)
        if not self.mig_mode()[0]:
            raise InputError(self._mig_off())
        profile_id = self._board.profiles[place.profile].id
        size = board.profile(place.profile).memory_slices
        try:
            made = self._nvml.create_gpu_instance(self._device, profile_id, place.start, size)
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
        return self._fill(made, place)

    def destroy(self, instance: GpuInstance) -> None:
        """Destroy the compute instances, then the GPU instance.

        Parts that are already gone are no error.
        """
        made = self._nvml.gpu_instance(self._device, instance.number)
        if made is None or self._place(made) != instance.place:
            return
        try:
            self._refuse_held(instance.place, made)
            self._destroy(made)
        except GoneError as error:
            if self._place(made) is not None:
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
        return tuple(Holder(pid, process_name(pid)) for pid in self._nvml.processes(self._device))

    def mig_mode(self) -> tuple[bool, bool]:
        return self._nvml.mig_mode(self._device)

    def enable_mig(self) -> None:
        """Switch MIG mode on. Call only at the operator's request, because the GPU may be reset."""
        if self.mig_mode()[0]:
            return
        try:
            self._nvml.enable_mig(self._device)
        except InUseError as error:
            users = "a process that NVML does not list"
            with suppress(GpuError):
                users = ", ".join(map(str, self.holders())) or users
            raise InUseError(
                f"MIG mode of GPU {self._index} stays off because {users} uses the GPU; end that, "
                "also what only watches it (`systemctl stop nvidia-dcgm`), and try again"
            ) from error

    @cached_property
    def _board(self) -> MigBoard:
        return read_board(self._nvml, self._device)

    def _mig_off(self) -> str:
        return (
            f"MIG mode of GPU {self._index} is off; `migrator gpu apply LAYOUT --enable-mig` or "
            f"`nvidia-smi -i {self._index} -mig 1` switches it on"
        )

    def _read(self, made: GpuInstanceHandle) -> GpuInstance:
        """The instance behind a handle. Without a compute instance it has no UUID."""
        info = self._nvml.gpu_instance_info(made)
        devices = [self._nvml.mig_device(instance) for instance in self._compute_instances(made)]
        pids = sorted({pid for device in devices for pid in self._nvml.processes(device)})
        return GpuInstance(
            Place(info.start, self._board.name_of(info.profile_id)),
            info.number,
            self._nvml.uuid(devices[0]) if devices else None,
            tuple(Holder(pid, process_name(pid)) for pid in pids),
        )

    def _read_if_there(self, made: GpuInstanceHandle) -> GpuInstance | None:
        """The current state of an instance; None if the GPU instance is gone.

        An instance that lost only its compute instance is included.
        """
        for _ in range(_LOOKS):
            try:
                return self._read(made)
            except GoneError:
                if self._place(made) is None:
                    return None
        return self._read(made)

    def _place(self, made: GpuInstanceHandle) -> Place | None:
        """The place of an instance; None if it is gone."""
        try:
            info = self._nvml.gpu_instance_info(made)
        except GoneError:
            return None
        return Place(info.start, self._board.name_of(info.profile_id))

    def _compute_instances(self, made: GpuInstanceHandle) -> list[ComputeInstanceHandle]:
        return [
            instance
            for profile in self._profiles(made)
            for instance in self._nvml.compute_instances(made, profile)
        ]

    def _profiles(self, made: GpuInstanceHandle) -> tuple[ComputeInstanceProfile, ...]:
        """The profiles of compute instances."""
        profiles = self._nvml.compute_profiles(made)
        self._nvml.gpu_instance_info(made)  # raises GoneError if the list may be incomplete
        return profiles

    def _fill(self, made: GpuInstanceHandle, place: Place) -> GpuInstance:
        """Create the compute instance; if that fails, remove the GPU instance."""
        failed = f"made no compute instance for {place}"
        try:
            profiles = self._profiles(made)
            if not profiles:
                raise UnsupportedError("NVML knows no compute instance for it; update the driver")
            full_size = max(profiles, key=lambda profile: (profile.slices, profile.sms))
            self._nvml.create_compute_instance(made, full_size.id)
            failed = f"made {place} but could not read it"
            return self._read(made)
        except BaseException as error:
            number: int | None = None
            with suppress(GpuError):
                number = self._nvml.gpu_instance_info(made).number
            removed = self._remove(made)
            if not isinstance(error, MigratorError):
                raise
            why = f"GPU {self._index} {failed} ({error.__cause__ or error})"
            if not removed:
                raise self._half_made(why, number) from error
            if isinstance(error, NotPermittedError):
                raise NotPermittedError(f"{why}; nothing of it is left; {RIGHTS}") from error
            raise RefusedError(
                f"{why}; nothing of it is left; try again, and look at `dmesg` if it stays"
            ) from error

    def _half_made(self, why: str, number: int | None) -> GpuError:
        """The error for a GPU instance that remains.

        It carries the number so that recovery removes only that instance.
        """
        smi = f"nvidia-smi mig -i {self._index}"
        if number is None:
            return GpuError(f"{why}; `{smi} -lgi` shows whether its GPU instance is there")
        remedy = f"its GPU instance could not be removed either; `{smi} -dgi -gi {number}` does it"
        return HalfMadeError(f"{why}; {remedy}", number)

    def _remove(self, made: GpuInstanceHandle) -> bool:
        """Remove a GPU instance that cannot be used yet; return whether it is gone."""
        try:
            self._destroy(made)
        except GoneError:
            return True
        except GpuError:
            return False
        return True

    def _destroy(self, made: GpuInstanceHandle) -> None:
        """Destroy a GPU instance and its compute instances.

        The processes that used them have ended, so a refusal is temporary.
        """
        try:
            for compute in self._compute_instances(made):
                self._nvml.destroy_compute_instance(compute)
        except InUseError as error:
            raise TransientError(str(error)) from error.__cause__
        try:
            self._nvml.destroy_gpu_instance(made)
        except (NotPermittedError, LostError, TransientError):
            raise
        except GpuError as error:
            if self._place(made) is not None:
                raise TransientError(str(error)) from error.__cause__

    def _not_yet(self, place: Place, error: GpuError) -> TransientError:
        return TransientError(
            f"GPU {self._index} still holds {place} though no process is on it "
            f"({error.__cause__ or error}); try again, and if it stays, stop what watches the GPU "
            "(`systemctl stop nvidia-dcgm`)"
        )

    def _refuse_held(self, place: Place, made: GpuInstanceHandle) -> None:
        holders = self._read(made).holders
        if holders:
            raise InUseError(
                f"{place} on GPU {self._index} is in use by {', '.join(map(str, holders))}; end "
                f"{'it' if len(holders) == 1 else 'them'} first, nothing is ever killed"
            )

    def _in_the_way(self, place: Place) -> str:
        board = self._board.board
        there = [
            f"{instance.place}{'' if instance.uuid else ' (half-made)'}"
            for instance in self.instances()
            if place_mask(board, instance.place) & place_mask(board, place)
        ]
        return f": {', '.join(there)} {'is' if len(there) == 1 else 'are'} there" if there else ""


@contextmanager
def open_mig(index: int, *, boot_id: Callable[[], str] | None = None) -> Iterator[MigDriver]:
    """The driver of a GPU. NVML stays open while the context is active."""
    with open_nvml() as nvml:
        yield MigDriver(nvml, index, boot_id=boot_id or machine_boot_id)


def gpu_count() -> int:
    """Number of GPUs that NVML finds. Raises InputError without NVML."""
    with open_nvml() as nvml:
        return nvml.count()


DRIVERS = (
    DriverEntry(
        DriverKind.MIG, lambda index, _: open_mig(index), lambda _: tuple(range(gpu_count()))
    ),
)
