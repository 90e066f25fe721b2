"""The fake's functions with the names, arguments and errors of `pynvml`, and their installation.

Handles are Python objects. Output arrays and counts are filled as the C library fills them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, NoReturn
from unittest import mock

import pynvml

from migrator.core.catalogue import MigProfile
from migrator.gpu.drivers import mig as mig_driver
from support.fake_nvml.machine import CHANGING, FakeNvml, FaultKind, happens, inject
from support.fake_nvml.state import (
    ComputeInstance,
    FakeGpu,
    Instance,
    State,
    Store,
    mig_uuid,
    profile_id,
    profile_sms,
)

DRIVER_VERSION = "580.95.05-fake"
CALLS: dict[str, Callable[..., Any]] = {}
"""Functions by their names in `pynvml`. The first argument of each is the state."""
_REFERENCE: Any = type(ctypes.byref(ctypes.c_int()))


def _call(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        CALLS[name] = function
        return function

    return register


def _fail(code: int) -> NoReturn:
    raise pynvml.NVMLError(code)


Kind = Literal["GPU", "GPU instance", "compute instance", "MIG device"]


class Handle(NamedTuple):
    """The object that a caller refers to. A MIG device has the serial of its compute instance."""

    kind: Kind
    gpu: int
    serial: int = 0


@_call("nvmlSystemGetDriverVersion")
def _driver_version(_state: State) -> str:
    return DRIVER_VERSION


@_call("nvmlDeviceGetCount")
def _count(state: State) -> int:
    return len(state.gpus)


@_call("nvmlDeviceGetHandleByIndex")
def _handle_by_index(state: State, index: int) -> Handle:
    return Handle("GPU", index) if index < len(state.gpus) else _invalid()


@_call("nvmlDeviceGetName")
def _name(state: State, device: Handle) -> str:
    return f"NVIDIA {_gpu(state, device).board}"


@_call("nvmlDeviceGetUUID")
def _uuid(state: State, device: Handle) -> str:
    if device.kind == "GPU":
        return _gpu(state, device).uuid
    gpu, instance, compute = _compute(state, device, "MIG device")
    return mig_uuid(gpu.uuid, instance.number, compute.number)


@_call("nvmlDeviceGetMemoryInfo")
def _memory_info(state: State, device: Handle) -> SimpleNamespace:
    return SimpleNamespace(total=_gpu(state, device).memory_mib << 20)


@_call("nvmlDeviceGetMigMode")
def _mig_mode(state: State, device: Handle) -> list[int]:
    gpu = _gpu(state, device)
    return [int(gpu.mig), int(gpu.pending)]


@_call("nvmlDeviceSetMigMode")
def _set_mig_mode(state: State, device: Handle, mode: int) -> int:
    """Switch MIG mode. Returns a status if the GPU is in use or needs a reset."""
    gpu = _gpu(state, device)
    gpu.pending = bool(mode)
    for fault in state.faults:
        if fault.kind == FaultKind.RESET_REQUIRED.name and happens(state, fault):
            return int(pynvml.NVML_ERROR_RESET_REQUIRED)
    if gpu.processes:
        return int(pynvml.NVML_ERROR_IN_USE)
    if gpu.mig != gpu.pending:
        gpu.mig = gpu.pending
        gpu.instances.clear()
    return int(pynvml.NVML_SUCCESS)


@_call("nvmlDeviceGetComputeRunningProcesses_v3")
def _processes(state: State, device: Handle) -> list[SimpleNamespace]:
    """The processes on a whole GPU and all its instances, or on one MIG device."""
    if device.kind == "GPU":
        processes = _gpu(state, device).processes
    else:
        gpu, _, compute = _compute(state, device, "MIG device")
        processes = [process for process in gpu.processes if process.serial == compute.serial]
    return [SimpleNamespace(pid=process.pid) for process in processes]


@_call("nvmlDeviceGetGpuInstanceProfileInfo")
def _profile_info(state: State, device: Handle, enum: int, version: int) -> SimpleNamespace:
    """A MIG profile; only version 2 has its name."""
    assert version == 2
    gpu = _gpu(state, device)
    if enum >= pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT:
        _invalid()
    profile = gpu.profiles.get(enum) or _unsupported()
    return SimpleNamespace(
        id=profile_id(profile),
        sliceCount=profile.gpcs,
        instanceCount=profile.max_instances,
        multiprocessorCount=profile_sms(profile),
        memorySizeMB=gpu.profile_memory_mib(profile),
        name=f"MIG {profile.name}",
    )


@_call("nvmlDeviceGetGpuInstancePossiblePlacements")
def _possible_placements(
    state: State, device: Handle, profile_id: int, placements: Any, count: Any
) -> None:
    profile = _profile(_gpu(state, device), profile_id)
    size = _target(count).value
    _target(count).value = len(profile.starts)
    if placements is None:
        return
    if size < len(profile.starts):
        _fail(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    for placement, start in zip(placements, profile.starts, strict=False):
        placement.start, placement.size = start, profile.memory_slices


@_call("nvmlDeviceGetGpuInstances")
def _gpu_instances(state: State, device: Handle, profile_id: int, array: Any, count: Any) -> None:
    """The GPU instances of a profile. The caller's array has space for the maximum number."""
    gpu = _mig_gpu(state, device)
    enum = _profile(gpu, profile_id).nvml_enum
    alike = [instance.serial for instance in gpu.instances if instance.enum == enum]
    _put(array, count, [Handle("GPU instance", device.gpu, serial) for serial in alike])


@_call("nvmlDeviceGetGpuInstanceById")
def _gpu_instance_by_id(state: State, device: Handle, number: int) -> Handle:
    for instance in _mig_gpu(state, device).instances:
        if instance.number == number:
            return Handle("GPU instance", device.gpu, instance.serial)
    _fail(pynvml.NVML_ERROR_NOT_FOUND)


@_call("nvmlGpuInstanceGetInfo")
def _gpu_instance_info(state: State, instance: Handle) -> SimpleNamespace:
    gpu, own = _instance(state, instance)
    profile = gpu.profile_of(own)
    placement = SimpleNamespace(start=own.start, size=profile.memory_slices)
    return SimpleNamespace(id=own.number, profileId=profile_id(profile), placement=placement)


@_call("nvmlDeviceCreateGpuInstanceWithPlacement")
def _create_gpu_instance(state: State, device: Handle, profile_id: int, placement: Any) -> Handle:
    """Create a GPU instance. The code is the same for occupied slices and an exhausted profile."""
    gpu, where = _mig_gpu(state, device), _target(placement)
    profile = _profile(gpu, profile_id)
    if where.start not in profile.starts or where.size != profile.memory_slices:
        _invalid()
    if not gpu.fits(profile, where.start):
        _fail(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
    instance = gpu.add(profile, where.start)
    return Handle("GPU instance", device.gpu, instance.serial)


@_call("nvmlGpuInstanceDestroy")
def _destroy_gpu_instance(state: State, instance: Handle) -> None:
    gpu, own = _instance(state, instance)
    if own.compute:
        _fail(pynvml.NVML_ERROR_IN_USE)
    gpu.instances.remove(own)


@_call("nvmlGpuInstanceGetComputeInstanceProfileInfo")
def _compute_profile(
    state: State, instance: Handle, enum: int, engine: int, version: int
) -> SimpleNamespace:
    assert version == 2
    gpu, own = _instance(state, instance)
    shared = engine == pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    if enum >= pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT or not shared:
        _invalid()
    profile = gpu.profile_of(own)
    slices = gpu.compute_sizes(own).get(enum) or _unsupported()
    return SimpleNamespace(
        id=enum,
        sliceCount=slices,
        instanceCount=profile.gpcs // slices,
        multiprocessorCount=profile_sms(profile) * slices // profile.gpcs,
    )


@_call("nvmlGpuInstanceGetComputeInstances")
def _compute_instances(
    state: State, instance: Handle, profile_id: int, array: Any, count: Any
) -> None:
    gpu, at = _instance(state, instance)
    slices = gpu.compute_sizes(at).get(profile_id) or _invalid()
    alike = [compute.serial for compute in at.compute if compute.slices == slices]
    _put(array, count, [Handle("compute instance", instance.gpu, serial) for serial in alike])


@_call("nvmlComputeInstanceGetInfo_v2")
def _compute_instance_info(state: State, compute: Handle) -> SimpleNamespace:
    _compute(state, compute, "compute instance")
    return SimpleNamespace(device=compute._replace(kind="MIG device"))


@_call("nvmlGpuInstanceCreateComputeInstance")
def _create_compute_instance(state: State, instance: Handle, profile_id: int) -> Handle:
    gpu, own = _instance(state, instance)
    slices = gpu.compute_sizes(own).get(profile_id) or _invalid()
    compute = gpu.add_compute(own, slices)
    if compute is None:
        _fail(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
    return Handle("compute instance", instance.gpu, compute.serial)


@_call("nvmlComputeInstanceDestroy")
def _destroy_compute_instance(state: State, compute: Handle) -> None:
    gpu, instance, own = _compute(state, compute, "compute instance")
    if any(process.serial == own.serial for process in gpu.processes):
        _fail(pynvml.NVML_ERROR_IN_USE)
    instance.compute.remove(own)


def _invalid() -> NoReturn:
    _fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)


def _unsupported() -> NoReturn:
    _fail(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _gpu(state: State, handle: Handle, kind: Kind = "GPU") -> FakeGpu:
    if not isinstance(handle, Handle):
        raise TypeError(f"a handle of NVML is due, not {handle!r}")
    return state.gpus[handle.gpu] if handle.kind == kind else _invalid()


def _mig_gpu(state: State, handle: Handle) -> FakeGpu:
    gpu = _gpu(state, handle)
    return gpu if gpu.mig else _unsupported()


def _profile(gpu: FakeGpu, number: int) -> MigProfile:
    by_id = {profile_id(profile): profile for profile in gpu.profiles.values()}
    return by_id.get(number) or _invalid()


def _instance(state: State, handle: Handle) -> tuple[FakeGpu, Instance]:
    """The GPU instance of a handle. Invalid once it is destroyed, even if another replaced it."""
    gpu = _gpu(state, handle, "GPU instance")
    matching = (instance for instance in gpu.instances if instance.serial == handle.serial)
    return gpu, next(matching, None) or _invalid()


def _compute(state: State, handle: Handle, kind: Kind) -> tuple[FakeGpu, Instance, ComputeInstance]:
    gpu = _gpu(state, handle, kind)
    for instance in gpu.instances:
        for compute in instance.compute:
            if compute.serial == handle.serial:
                return gpu, instance, compute
    _invalid()


def _target(reference: Any) -> Any:
    """The object behind a `byref` argument. By value it would crash the real library."""
    if not isinstance(reference, _REFERENCE):
        raise TypeError(f"a pointer is due, not {reference!r}: the real library would crash")
    return reference._obj


def _put(array: Any, count: Any, handles: list[Handle]) -> None:
    if len(array) < len(handles):
        raise TypeError(f"{len(handles)} handles do not fit into {len(array)}: memory is corrupted")
    array[: len(handles)] = handles
    _target(count).value = len(handles)


class _Library:
    """The functions to install, which act on one store."""

    def __init__(self, store: Store, before: Callable[[str], None] | None) -> None:
        self._store, self._before, self._opened = store, before, 0

    def functions(self) -> dict[str, Any]:
        """Replacements of functions and handle types of `pynvml` by name."""
        return {
            "nvmlInit": self._init,
            "nvmlShutdown": self._shutdown,
            "nvmlErrorString": _error_string,
            "c_nvmlGpuInstance_t": ctypes.py_object,
            "c_nvmlComputeInstance_t": ctypes.py_object,
            **{name: partial(self._run, name) for name in CALLS},
        }

    def _init(self) -> None:
        inject(self._store, "nvmlInit")
        self._opened += 1

    def _shutdown(self) -> None:
        self._require_open()
        self._opened -= 1

    def _run(self, name: str, *arguments: Any, **version: int) -> Any:
        self._require_open()
        # Version 2 of a call is another function of the C library.
        called = f"{name}V" if version.get("version") == 2 else name
        if self._before is not None:
            self._before(called)
        inject(self._store, called)
        if name not in CHANGING:
            return CALLS[name](self._store.now(), *arguments, **version)
        with self._store.changing() as state:
            return CALLS[name](state, *arguments, **version)

    def _require_open(self) -> None:
        if not self._opened:
            _fail(pynvml.NVML_ERROR_UNINITIALIZED)


def _error_string(code: int) -> str:
    for name in dir(pynvml):
        if name.startswith("NVML_ERROR_") and getattr(pynvml, name) == code:
            return name.removeprefix("NVML_ERROR_").replace("_", " ").capitalize()
    return "Unknown Error"


@contextmanager
def installed(
    folder: Path,
    gpus: Sequence[str] | None = None,
    *,
    mig: bool = True,
    before: Callable[[str], None] | None = None,
) -> Iterator[FakeNvml]:
    """The fake machine of a folder in place of the functions of `pynvml`, with its own boot id.

    `before` runs before each call, with its name.
    """
    fake = FakeNvml(folder, gpus, mig=mig)
    with (
        mock.patch.multiple(pynvml, **_Library(fake.store, before).functions()),
        mock.patch.object(mig_driver, "machine_boot_id", fake.boot_id),
    ):
        yield fake
