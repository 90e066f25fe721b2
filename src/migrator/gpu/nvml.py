"""NVML, typed: every call the `mig` driver makes, and NVML's refusals as our errors.

Only public functions of `pynvml` are called, so that whatever is beneath it, NVIDIA's library or
a fake, is what answers. The binding is imported when NVML is opened: nothing here needs a driver.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import byref, c_uint
from dataclasses import dataclass
from typing import Any, NewType

from migrator.core.errors import InputError
from migrator.gpu.nvml_errors import INSTEAD, UnsupportedError, absence, refusal

Device = NewType("Device", object)
"""NVML's handle of a GPU or of a MIG device."""
GpuInstanceHandle = NewType("GpuInstanceHandle", object)
ComputeInstanceHandle = NewType("ComputeInstanceHandle", object)

MOST_PROFILES = 64
"""More than any driver has; a driver that never says where its profiles end is not asked on."""


@dataclass(frozen=True)
class GpuInstanceProfile:
    """A MIG profile as NVML tells it."""

    enum: int
    id: int
    slices: int
    most: int
    sms: int
    memory_mib: int
    name: str | None
    """None: the driver is too old to tell."""


@dataclass(frozen=True)
class ComputeInstanceProfile:
    """A way to fill a GPU instance."""

    id: int
    slices: int
    most: int
    sms: int


@dataclass(frozen=True)
class GpuInstanceInfo:
    """A GPU instance: its number, its profile's id and its memory slices."""

    number: int
    profile_id: int
    start: int
    size: int


class Nvml:
    """An open NVML. Errors say which call was refused and why."""

    def __init__(self, binding: Any) -> None:
        self._nvml = binding

    def count(self) -> int:
        """How many GPUs there are."""
        with self._call("count the GPUs"):
            return int(self._nvml.nvmlDeviceGetCount())

    def device(self, index: int) -> Device:
        """The GPU of that number; InputError where there is none."""
        there = self.count()
        if not 0 <= index < there:
            names = ", ".join(map(str, range(there))) or "none"
            raise InputError(f"--gpu: there is no GPU {index}; this machine has {names}")
        with self._call(f"open GPU {index}"):
            return Device(self._nvml.nvmlDeviceGetHandleByIndex(index))

    def driver_version(self) -> str:
        """The version of NVIDIA's driver."""
        with self._call("tell the driver's version"):
            return str(self._nvml.nvmlSystemGetDriverVersion())

    def uuid(self, device: Device) -> str:
        """GPU-..., or MIG-... of a MIG device."""
        with self._call("tell a UUID"):
            return str(self._nvml.nvmlDeviceGetUUID(device))

    def name(self, device: Device) -> str:
        """What the GPU calls itself."""
        with self._call("tell the GPU's name"):
            return str(self._nvml.nvmlDeviceGetName(device))

    def memory_mib(self, device: Device) -> int:
        """The memory of the whole GPU."""
        with self._call("tell the GPU's memory"):
            return int(self._nvml.nvmlDeviceGetMemoryInfo(device).total) >> 20

    def mig_mode(self, device: Device) -> tuple[bool, bool]:
        """Whether MIG mode is on, and whether it will be after a reset."""
        with self._call("tell the MIG mode"):
            now, then = self._nvml.nvmlDeviceGetMigMode(device)
        return bool(now), bool(then)

    def enable_mig(self, device: Device) -> None:
        """MIG mode on, at once; the GPU may be reset for it."""
        with self._call("switch MIG mode on"):
            status = self._nvml.nvmlDeviceSetMigMode(device, self._nvml.NVML_DEVICE_MIG_ENABLE)
            # a mode that was set but could not be activated is a status, not an exception
            if status != self._nvml.NVML_SUCCESS:
                raise self._nvml.NVMLError(status)

    def processes(self, device: Device) -> tuple[int, ...]:
        """The processes that compute on a GPU or on a MIG device."""
        with self._call("list the processes on a GPU"):
            try:
                found = self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(device)
            except self._nvml.NVMLError_FunctionNotFound:
                found = self._nvml.nvmlDeviceGetComputeRunningProcesses_v2(device)
        return tuple(sorted({int(each.pid) for each in found}))

    def profiles(self, device: Device) -> tuple[GpuInstanceProfile, ...]:
        """Every MIG profile of the GPU, MIG mode on or off; none where it cannot be divided."""
        ask = self._nvml.nvmlDeviceGetGpuInstanceProfileInfo
        with self._call("list the MIG profiles"):
            return tuple(
                GpuInstanceProfile(
                    enum,
                    info.id,
                    info.sliceCount,
                    info.instanceCount,
                    info.multiprocessorCount,
                    info.memorySizeMB,
                    getattr(info, "name", None),
                )
                for enum, info in self._enumerated(ask, device)
            )

    def placements(self, device: Device, profile_id: int) -> tuple[int, tuple[int, ...]]:
        """How many memory slices an instance of the profile takes, and where it can start."""
        ask = self._nvml.nvmlDeviceGetGpuInstancePossiblePlacements
        count = c_uint()
        with self._call("list the placements of a MIG profile"):
            ask(device, profile_id, None, byref(count))
            found = (self._nvml.c_nvmlGpuInstancePlacement_t * count.value)()
            ask(device, profile_id, found, byref(count))
        places = [(each.start, each.size) for each in found[: count.value]]
        if not places:
            raise UnsupportedError("NVML knows no placement of a MIG profile; update the driver")
        return places[0][1], tuple(sorted(start for start, _ in places))

    def gpu_instances(
        self, device: Device, profile: GpuInstanceProfile
    ) -> tuple[GpuInstanceHandle, ...]:
        """The GPU instances of a profile, those without compute instance too."""
        count = c_uint()
        found = (self._nvml.c_nvmlGpuInstance_t * profile.most)()
        with self._call("list the GPU instances"):
            try:
                self._nvml.nvmlDeviceGetGpuInstances(device, profile.id, found, byref(count))
            except self._nvml.NVMLError_NotSupported:  # MIG mode is off
                return ()
        return tuple(GpuInstanceHandle(each) for each in found[: count.value])

    def gpu_instance(self, device: Device, number: int) -> GpuInstanceHandle | None:
        """The GPU instance of that number, if there is one."""
        with self._call("find a GPU instance"):
            try:
                return GpuInstanceHandle(self._nvml.nvmlDeviceGetGpuInstanceById(device, number))
            except (self._nvml.NVMLError_NotFound, self._nvml.NVMLError_NotSupported):
                return None

    def gpu_instance_info(self, instance: GpuInstanceHandle) -> GpuInstanceInfo:
        """Which one it is and where it sits."""
        with self._call("describe a GPU instance"):
            info = self._nvml.nvmlGpuInstanceGetInfo(instance)
        return GpuInstanceInfo(info.id, info.profileId, info.placement.start, info.placement.size)

    def compute_profiles(self, instance: GpuInstanceHandle) -> tuple[ComputeInstanceProfile, ...]:
        """Every way to fill a GPU instance with compute instances."""
        ask = self._nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
        engine = self._nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
        with self._call("list the compute instance profiles"):
            return tuple(
                ComputeInstanceProfile(
                    info.id, info.sliceCount, info.instanceCount, info.multiprocessorCount
                )
                for _, info in self._enumerated(ask, instance, engine)
            )

    def compute_instances(
        self, instance: GpuInstanceHandle, profile: ComputeInstanceProfile
    ) -> tuple[ComputeInstanceHandle, ...]:
        """The compute instances of a profile inside a GPU instance."""
        count = c_uint()
        found = (self._nvml.c_nvmlComputeInstance_t * profile.most)()
        with self._call("list the compute instances"):
            self._nvml.nvmlGpuInstanceGetComputeInstances(instance, profile.id, found, byref(count))
        return tuple(ComputeInstanceHandle(each) for each in found[: count.value])

    def mig_device(self, compute: ComputeInstanceHandle) -> Device:
        """The MIG device that a compute instance is to CUDA."""
        with self._call("describe a compute instance"):
            return Device(self._nvml.nvmlComputeInstanceGetInfo_v2(compute).device)

    def create_gpu_instance(
        self, device: Device, profile_id: int, start: int, size: int
    ) -> GpuInstanceHandle:
        """A GPU instance on these memory slices, still without compute instance."""
        placement = self._nvml.c_nvmlGpuInstancePlacement_t(start, size)
        with self._call("create the GPU instance"):
            # byref: passed by value the placement would crash the library
            return GpuInstanceHandle(
                self._nvml.nvmlDeviceCreateGpuInstanceWithPlacement(
                    device, profile_id, byref(placement)
                )
            )

    def create_compute_instance(
        self, instance: GpuInstanceHandle, profile_id: int
    ) -> ComputeInstanceHandle:
        """A compute instance inside a GPU instance."""
        with self._call("create the compute instance"):
            return ComputeInstanceHandle(
                self._nvml.nvmlGpuInstanceCreateComputeInstance(instance, profile_id)
            )

    def destroy_compute_instance(self, compute: ComputeInstanceHandle) -> None:
        """Removes a compute instance that nobody uses."""
        with self._call("destroy the compute instance"):
            self._nvml.nvmlComputeInstanceDestroy(compute)

    def destroy_gpu_instance(self, instance: GpuInstanceHandle) -> None:
        """Removes a GPU instance that has no compute instance left."""
        with self._call("destroy the GPU instance"):
            self._nvml.nvmlGpuInstanceDestroy(instance)

    def _enumerated(self, ask: Any, handle: object, *more: int) -> Iterator[tuple[int, Any]]:
        """What `ask` answers for every number of a profile, in the newest version it knows."""
        for enum in range(MOST_PROFILES):
            try:
                yield enum, self._versioned(ask, handle, enum, *more)
            except self._nvml.NVMLError_NotSupported:
                continue
            except self._nvml.NVMLError_InvalidArgument:
                if not enum:  # not the end of a list: there is nothing to list
                    raise
                return

    def _versioned(self, ask: Any, *arguments: object) -> Any:
        known = self._nvml
        try:
            return ask(*arguments, version=2)
        except (known.NVMLError_ArgumentVersionMismatch, known.NVMLError_FunctionNotFound):
            return ask(*arguments, version=1)

    @contextmanager
    def _call(self, doing: str) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            raise refusal(self._nvml, error, doing) from error


@contextmanager
def opened() -> Iterator[Nvml]:
    """NVML, initialised and shut down again; InputError where this machine has none."""
    binding = _binding()
    try:
        binding.nvmlInit()
    except binding.NVMLError as error:
        raise absence(binding, error) from error
    try:
        yield Nvml(binding)
    finally:
        with suppress(binding.NVMLError):
            binding.nvmlShutdown()


def _binding() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise InputError(
            "--driver mig: Python's binding of NVML is missing; `pip install nvidia-ml-py`, or "
            f"{INSTEAD}"
        ) from error
