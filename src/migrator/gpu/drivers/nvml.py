"""A typed interface to NVML: all calls of the `mig` driver, and NVML's errors as our errors.

Calls only public functions of `pynvml`, so that NVIDIA's library and a fake can be exchanged below
it. The binding is imported when NVML is opened: importing this module needs no driver.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import byref, c_uint
from dataclasses import dataclass
from typing import Any, NewType

from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.gpu.drivers.base import InUseError, NotPermittedError, RefusedError, TransientError

Device = NewType("Device", object)
"""NVML's handle of a GPU or of a MIG device."""
GpuInstanceHandle = NewType("GpuInstanceHandle", object)
ComputeInstanceHandle = NewType("ComputeInstanceHandle", object)

MOST_PROFILES = 64
"""Upper limit on the profiles to list, more than any driver has.

It ends the loop if a driver reports no end of its profiles.
"""
INSTEAD = "use `--driver emulated`, which needs no GPU"
RIGHTS = (
    "run it as root, or let this user read the /dev/nvidia-caps node that "
    "/proc/driver/nvidia/capabilities/mig/config names"
)


@dataclass(frozen=True)
class GpuInstanceProfile:
    """A MIG profile as NVML reports it."""

    enum: int
    id: int
    slices: int
    most: int
    sms: int
    memory_mib: int
    name: str


@dataclass(frozen=True)
class ComputeInstanceProfile:
    """A profile of compute instances inside a GPU instance."""

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
    """An open NVML. Errors name the call that failed and the reason."""

    def __init__(self, binding: Any) -> None:
        self._nvml = binding

    def count(self) -> int:
        return int(self._ask("count the GPUs", "nvmlDeviceGetCount"))

    def device(self, index: int) -> Device:
        """The GPU with this index. Raises InputError if there is none."""
        there = self.count()
        if not 0 <= index < there:
            names = ", ".join(map(str, range(there))) or "none"
            raise InputError(f"--gpu: there is no GPU {index}; this machine has {names}")
        return Device(self._ask(f"open GPU {index}", "nvmlDeviceGetHandleByIndex", index))

    def driver_version(self) -> str:
        return str(self._ask("read the driver's version", "nvmlSystemGetDriverVersion"))

    def uuid(self, device: Device) -> str:
        """UUID of a GPU (GPU-...) or of a MIG device (MIG-...)."""
        return str(self._ask("read a UUID", "nvmlDeviceGetUUID", device))

    def name(self, device: Device) -> str:
        return str(self._ask("read the GPU's name", "nvmlDeviceGetName", device))

    def memory_mib(self, device: Device) -> int:
        """Memory of a GPU in MiB."""
        return int(self._ask("read a GPU's memory", "nvmlDeviceGetMemoryInfo", device).total) >> 20

    def mig_mode(self, device: Device) -> tuple[bool, bool]:
        """Whether MIG mode is on, and whether it will be on after a reset."""
        now, then = self._ask("read the MIG mode", "nvmlDeviceGetMigMode", device)
        return bool(now), bool(then)

    def enable_mig(self, device: Device) -> None:
        """Switch MIG mode on immediately. This may reset the GPU."""
        with self._call("switch MIG mode on"):
            status = self._nvml.nvmlDeviceSetMigMode(device, self._nvml.NVML_DEVICE_MIG_ENABLE)
            # NVML returns a status, not an exception, for a mode that it set but could not
            # activate.
            if status != self._nvml.NVML_SUCCESS:
                raise self._nvml.NVMLError(status)

    def processes(self, device: Device) -> tuple[int, ...]:
        """The processes that compute on a GPU or on a MIG device."""
        ask = "nvmlDeviceGetComputeRunningProcesses_v3"
        processes = self._ask("list the processes on a GPU", ask, device)
        return tuple(sorted({int(process.pid) for process in processes}))

    def profiles(self, device: Device) -> tuple[GpuInstanceProfile, ...]:
        """All MIG profiles of the GPU, in any MIG mode; empty if it does not support MIG."""
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
                    info.name,
                )
                for enum, info in self._enumerated(ask, device)
            )

    def placements(self, device: Device, profile_id: int) -> tuple[int, tuple[int, ...]]:
        """Number of memory slices of an instance of the profile, and its possible starts."""
        ask = self._nvml.nvmlDeviceGetGpuInstancePossiblePlacements
        count = c_uint()
        with self._call("list the placements of a MIG profile"):
            ask(device, profile_id, None, byref(count))
            placements = (self._nvml.c_nvmlGpuInstancePlacement_t * count.value)()
            ask(device, profile_id, placements, byref(count))
        places = [(placement.start, placement.size) for placement in placements[: count.value]]
        if not places:
            raise UnsupportedError("NVML knows no placement of a MIG profile; update the driver")
        return places[0][1], tuple(sorted(start for start, _ in places))

    def gpu_instances(
        self, device: Device, profile: GpuInstanceProfile
    ) -> tuple[GpuInstanceHandle, ...]:
        """The GPU instances of a profile, including those without a compute instance."""
        count = c_uint()
        handles = (self._nvml.c_nvmlGpuInstance_t * profile.most)()
        with self._call("list the GPU instances"):
            try:
                self._nvml.nvmlDeviceGetGpuInstances(device, profile.id, handles, byref(count))
            except self._nvml.NVMLError_NotSupported:  # MIG mode is off
                return ()
        return tuple(GpuInstanceHandle(handle) for handle in handles[: count.value])

    def gpu_instance(self, device: Device, number: int) -> GpuInstanceHandle | None:
        with self._call("find a GPU instance"):
            try:
                return GpuInstanceHandle(self._nvml.nvmlDeviceGetGpuInstanceById(device, number))
            except (self._nvml.NVMLError_NotFound, self._nvml.NVMLError_NotSupported):
                return None

    def gpu_instance_info(self, instance: GpuInstanceHandle) -> GpuInstanceInfo:
        info = self._ask("describe a GPU instance", "nvmlGpuInstanceGetInfo", instance)
        return GpuInstanceInfo(info.id, info.profileId, info.placement.start, info.placement.size)

    def compute_profiles(self, instance: GpuInstanceHandle) -> tuple[ComputeInstanceProfile, ...]:
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
        count = c_uint()
        handles = (self._nvml.c_nvmlComputeInstance_t * profile.most)()
        list_all, doing = "nvmlGpuInstanceGetComputeInstances", "list the compute instances"
        self._ask(doing, list_all, instance, profile.id, handles, byref(count))
        return tuple(ComputeInstanceHandle(handle) for handle in handles[: count.value])

    def mig_device(self, compute: ComputeInstanceHandle) -> Device:
        """The MIG device that exposes a compute instance to CUDA."""
        return Device(
            self._ask(
                "describe a compute instance", "nvmlComputeInstanceGetInfo_v2", compute
            ).device
        )

    def create_gpu_instance(
        self, device: Device, profile_id: int, start: int, size: int
    ) -> GpuInstanceHandle:
        """Create a GPU instance on these memory slices, without a compute instance."""
        # byref, because passing the placement by value crashes the library.
        placement = byref(self._nvml.c_nvmlGpuInstancePlacement_t(start, size))
        create = "nvmlDeviceCreateGpuInstanceWithPlacement"
        made = self._ask("create the GPU instance", create, device, profile_id, placement)
        return GpuInstanceHandle(made)

    def create_compute_instance(
        self, instance: GpuInstanceHandle, profile_id: int
    ) -> ComputeInstanceHandle:
        create = "nvmlGpuInstanceCreateComputeInstance"
        made = self._ask("create the compute instance", create, instance, profile_id)
        return ComputeInstanceHandle(made)

    def destroy_compute_instance(self, compute: ComputeInstanceHandle) -> None:
        self._ask("destroy the compute instance", "nvmlComputeInstanceDestroy", compute)

    def destroy_gpu_instance(self, instance: GpuInstanceHandle) -> None:
        """Destroy a GPU instance that has no compute instances."""
        self._ask("destroy the GPU instance", "nvmlGpuInstanceDestroy", instance)

    def _enumerated(self, ask: Any, handle: object, *more: int) -> Iterator[tuple[int, Any]]:
        """The answers of `ask` for all profile numbers."""
        for enum in range(MOST_PROFILES):
            try:
                yield enum, ask(handle, enum, *more, version=2)
            except self._nvml.NVMLError_NotSupported:
                continue
            except self._nvml.NVMLError_InvalidArgument:
                if not enum:  # not the end of the list: nothing can be listed
                    raise
                return

    def _ask(self, doing: str, function: str, *arguments: object) -> Any:
        with self._call(doing):
            return getattr(self._nvml, function)(*arguments)

    @contextmanager
    def _call(self, doing: str) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            raise refusal(self._nvml, error, doing) from error


@contextmanager
def open_nvml() -> Iterator[Nvml]:
    """NVML, initialised on entry and shut down on exit. Raises InputError without NVML."""
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


class UnsupportedError(GpuError):
    """The driver or this GPU does not support the call."""


class GoneError(GpuError):
    """The object of a handle does not exist, because another program destroyed it."""


class LostError(GpuError):
    """The GPU needs a reset or is gone. A retry does not help."""


def absence(binding: Any, error: Exception) -> InputError:
    """The error that says why NVML could not be initialised."""
    reasons = {
        binding.NVMLError_LibraryNotFound: (
            "this machine has no NVIDIA driver library (libnvidia-ml.so.1); install the driver"
        ),
        binding.NVMLError_DriverNotLoaded: (
            "NVIDIA's driver is installed but not loaded; `modprobe nvidia`, or reboot"
        ),
        binding.NVMLError_LibRmVersionMismatch: (
            "NVIDIA's driver was updated while the old one is loaded; reboot"
        ),
        binding.NVMLError_NoPermission: (
            "this user may not open the NVIDIA devices; let it read and write /dev/nvidiactl"
        ),
    }
    reason = reasons.get(type(error), f"NVML does not start ({error}); look at `nvidia-smi`")
    return InputError(f"--driver mig: {reason}, or {INSTEAD}")


def refusal(binding: Any, error: Exception, doing: str) -> MigratorError:
    """NVML's error as one of ours."""
    said = f"NVML could not {doing} ({str(error).rstrip('.')})"
    looked = "`migrator gpu doctor` looks for the cause"
    kinds: dict[type[Exception], MigratorError] = {
        binding.NVMLError_NoPermission: NotPermittedError(f"{said}; {RIGHTS}"),
        binding.NVMLError_InUse: InUseError(f"{said}; end what uses it and try again"),
        binding.NVMLError_InsufficientResources: RefusedError(
            f"{said}; destroy an instance that is in the way"
        ),
        binding.NVMLError_NotSupported: UnsupportedError(
            f"{said}; it needs a GPU with MIG, and MIG mode on"
        ),
        binding.NVMLError_FunctionNotFound: UnsupportedError(f"{said}; update the driver"),
        binding.NVMLError_ArgumentVersionMismatch: UnsupportedError(f"{said}; update the driver"),
        binding.NVMLError_Timeout: TransientError(f"{said}; try again"),
        binding.NVMLError_NotReady: TransientError(f"{said}; try again"),
        binding.NVMLError_InvalidArgument: GoneError(f"{said}; {looked}"),
        binding.NVMLError_NotFound: GoneError(f"{said}; {looked}"),
        binding.NVMLError_ResetRequired: LostError(
            f"{said}; end every process on the GPU and `nvidia-smi --gpu-reset`, or reboot"
        ),
        binding.NVMLError_GpuIsLost: LostError(f"{said}; reboot, and look at `dmesg`"),
    }
    return kinds.get(type(error), GpuError(f"{said}; {looked}"))
