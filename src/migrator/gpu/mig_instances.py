"""The instances of one GPU as NVML tells them, while others may change them; for `mig.py`."""

from __future__ import annotations

from migrator.gpu.driver import GpuInstance, Holder, Place
from migrator.gpu.mig_board import MigBoard
from migrator.gpu.nvml import (
    ComputeInstanceHandle,
    ComputeInstanceProfile,
    Device,
    GpuInstanceHandle,
    Nvml,
)
from migrator.gpu.nvml_errors import GoneError, UnsupportedError
from migrator.gpu.processes import called

_LOOKS = 20
"""How often an instance is read that changes meanwhile; nobody changes one for so long."""


def holder(pid: int) -> Holder:
    """A process by its number, with its name where this user can see it."""
    return Holder(pid, called(pid))


class MigInstances:
    """What is on a GPU, whoever made it. A handle of what has gone raises GoneError."""

    def __init__(self, nvml: Nvml, device: Device, board: MigBoard) -> None:
        self._nvml, self._device, self._board = nvml, device, board
        self._compute: dict[int, tuple[ComputeInstanceProfile, ...]] = {}

    def all(self) -> tuple[GpuInstance, ...]:
        """Every GPU instance, by start; one that goes while it is read is left out."""
        found = (
            self._still_there(handle)
            for profile in self._board.profiles.values()
            for handle in self._nvml.gpu_instances(self._device, profile)
        )
        return tuple(sorted(filter(None, found), key=lambda each: each.place))

    def read(self, made: GpuInstanceHandle) -> GpuInstance:
        """One of them; without compute instance it has no UUID."""
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
        """The instance, still the one that was listed."""
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
        """Whether it has not gone."""
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
        """The compute instance that has all of a GPU instance."""
        profiles = self._profiles(made)
        if not profiles:
            raise UnsupportedError("NVML knows no compute instance for it; update the driver")
        return max(profiles, key=lambda each: (each.slices, each.sms))

    def _still_there(self, made: GpuInstanceHandle) -> GpuInstance | None:
        """As it is now, or None: only what is gone itself is left out, not what is half gone."""
        for _ in range(_LOOKS):
            try:
                return self.read(made)
            except GoneError:
                if not self.exists(made):
                    return None
        return self.read(made)

    def _profiles(self, made: GpuInstanceHandle) -> tuple[ComputeInstanceProfile, ...]:
        """Asked once for every kind of GPU instance: they do not change."""
        kind = self._nvml.gpu_instance_info(made).profile_id
        if kind not in self._compute:
            found = self._nvml.compute_profiles(made)
            self._nvml.gpu_instance_info(made)  # if it has gone, that was not all of them
            self._compute[kind] = found
        return self._compute[kind]
