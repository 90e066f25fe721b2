"""The fake's functions about whole GPUs: identity, MIG mode, processes, MIG profiles."""

from __future__ import annotations

from typing import Any

import pynvml

from migrator.core.catalogue import MigProfile
from migrator.gpu.fake_nvml import boards
from migrator.gpu.fake_nvml.calls import (
    IN_USE,
    INVALID,
    OK,
    OTHER_VERSION,
    TOO_SMALL,
    UNSUPPORTED,
    call,
    compute_at,
    gpu_at,
)
from migrator.gpu.fake_nvml.faults import FaultKind, happens
from migrator.gpu.fake_nvml.memory import (
    Handle,
    Kind,
    number,
    put_handles,
    put_number,
    put_text,
    struct,
    there,
)
from migrator.gpu.fake_nvml.state import FakeGpu, State

DRIVER_VERSION = "580.95.05-fake"


@call("nvmlSystemGetDriverVersion")
def driver_version(_state: State, buffer: Any, length: Any) -> int:
    """The driver's version."""
    return OK if put_text(buffer, number(length), DRIVER_VERSION) else TOO_SMALL


@call("nvmlDeviceGetCount_v2")
def count(state: State, found: Any) -> int:
    """Number of GPUs."""
    return OK if put_number(found, len(state.gpus)) else INVALID


@call("nvmlDeviceGetHandleByIndex_v2")
def handle_by_index(state: State, index: Any, device: Any) -> int:
    """The GPU with this index."""
    if number(index) >= len(state.gpus):
        return INVALID
    return OK if put_handles(device, [Handle(Kind.DEVICE, number(index))]) else INVALID


@call("nvmlDeviceGetName")
def name(state: State, device: Any, buffer: Any, length: Any) -> int:
    """The name that the GPU reports."""
    gpu = _gpu(state, device)
    if gpu is None:
        return INVALID
    return OK if put_text(buffer, number(length), f"NVIDIA {gpu.board}") else TOO_SMALL


@call("nvmlDeviceGetUUID")
def uuid(state: State, device: Any, buffer: Any, length: Any) -> int:
    """The UUID of a GPU or of a MIG device."""
    told = _uuid(state, device)
    if told is None:
        return INVALID
    return OK if put_text(buffer, number(length), told) else TOO_SMALL


@call("nvmlDeviceGetMemoryInfo")
def memory_info(state: State, device: Any, memory: Any) -> int:
    """The memory of a whole GPU."""
    gpu, told = _gpu(state, device), struct(memory, pynvml.c_nvmlMemory_t)
    if gpu is None or told is None:
        return INVALID
    told.total = told.free = boards.memory_mib(gpu) << 20
    told.used = 0
    return OK


@call("nvmlDeviceGetMigMode")
def mig_mode(state: State, device: Any, current: Any, pending: Any) -> int:
    """Current MIG mode, and MIG mode after a reset."""
    gpu = _gpu(state, device)
    if gpu is None:
        return INVALID
    told = put_number(current, gpu.mig) and put_number(pending, gpu.pending)
    return OK if told else INVALID


@call("nvmlDeviceSetMigMode", changes=True, privileged=True)
def set_mig_mode(state: State, device: Any, mode: Any, status: Any) -> int:
    """Switch MIG mode. Reports a GPU that is in use or needs a reset as a status."""
    gpu = _gpu(state, device)
    if gpu is None or number(mode) not in (0, 1):
        return INVALID
    gpu.pending = bool(number(mode))
    hindrance = _hindrance(state, gpu)
    if hindrance == OK and gpu.mig != gpu.pending:
        gpu.mig = gpu.pending
        gpu.instances.clear()
    return OK if put_number(status, hindrance) else INVALID


@call("nvmlDeviceGetComputeRunningProcesses_v3")
@call("nvmlDeviceGetComputeRunningProcesses_v2")
def processes(state: State, device: Any, found: Any, infos: Any) -> int:
    """The processes on a whole GPU and all its instances, or on one MIG device."""
    listed = _processes(state, device)
    if listed is None or there(found) is None:
        return INVALID
    room = struct(found, pynvml.c_uint).value
    put_number(found, len(listed))
    if not listed:
        return OK
    if there(infos) is None or room < len(listed):
        return TOO_SMALL
    for info, pid in zip(
        struct(infos, pynvml.c_nvmlProcessInfo_v3_t * len(listed)), listed, strict=True
    ):
        info.pid = pid
    return OK


@call("nvmlDeviceGetGpuInstanceProfileInfo")
def profile_info(state: State, device: Any, enum: Any, info: Any) -> int:
    """A MIG profile, without its name."""
    return _told(state, device, enum, struct(info, pynvml.c_nvmlGpuInstanceProfileInfo_t))


@call("nvmlDeviceGetGpuInstanceProfileInfoV")
def profile_info_v(state: State, device: Any, enum: Any, info: Any) -> int:
    """A MIG profile with its name. The caller passes the version of the struct."""
    told = struct(info, pynvml.c_nvmlGpuInstanceProfileInfo_v2_t)
    if told is not None and told.version != pynvml.nvmlGpuInstanceProfileInfo_v2:
        return OTHER_VERSION
    code = _told(state, device, enum, told)
    gpu = _gpu(state, device)
    if code == OK and gpu is not None:
        told.name = f"MIG {boards.profiles(gpu.board)[number(enum)].name}".encode()
    return code


@call("nvmlDeviceGetGpuInstancePossiblePlacements_v2")
def possible_placements(
    state: State, device: Any, profile_id: Any, placements: Any, found: Any
) -> int:
    """The starts of a profile on the empty board."""
    gpu = _gpu(state, device)
    profile = None if gpu is None else boards.by_id(gpu, number(profile_id))
    if profile is None or there(found) is None:
        return INVALID
    room = struct(found, pynvml.c_uint).value
    put_number(found, len(profile.starts))
    if there(placements) is None:
        return OK
    if room < len(profile.starts):
        return TOO_SMALL
    filled = struct(placements, pynvml.c_nvmlGpuInstancePlacement_t * len(profile.starts))
    for placement, start in zip(filled, profile.starts, strict=True):
        placement.start, placement.size = start, profile.memory_slices
    return OK


def _gpu(state: State, device: Any) -> FakeGpu | None:
    at = gpu_at(state, device)
    return None if at is None else at[1]


def _told(state: State, device: Any, enum: Any, told: Any) -> int:
    gpu = _gpu(state, device)
    if gpu is None or told is None or number(enum) >= pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT:
        return INVALID
    profile = boards.profiles(gpu.board).get(number(enum))
    if profile is None:
        return UNSUPPORTED
    _fill(gpu, profile, told)
    return OK


def _fill(gpu: FakeGpu, profile: MigProfile, told: Any) -> None:
    told.id = boards.profile_id(profile)
    told.sliceCount = profile.gpcs
    told.instanceCount = profile.max_instances
    told.multiprocessorCount = boards.profile_sms(profile)
    told.memorySizeMB = boards.profile_memory_mib(gpu, profile)


def _hindrance(state: State, gpu: FakeGpu) -> int:
    """The code that prevents an immediate switch of MIG mode."""
    for fault in list(state.faults):
        if fault.kind == FaultKind.RESET_REQUIRED and happens(state, fault):
            return int(pynvml.NVML_ERROR_RESET_REQUIRED)
    return IN_USE if gpu.processes else OK


def _uuid(state: State, device: Any) -> str | None:
    at = gpu_at(state, device)
    if at is not None:
        return at[1].uuid
    mig = compute_at(state, device, Kind.MIG_DEVICE)
    return mig and boards.mig_uuid(mig.gpu.uuid, mig.instance.number, mig.compute.number)


def _processes(state: State, device: Any) -> list[int] | None:
    at = gpu_at(state, device)
    if at is not None:
        return [each.pid for each in at[1].processes]
    mig = compute_at(state, device, Kind.MIG_DEVICE)
    if mig is None:
        return None
    return [each.pid for each in mig.gpu.processes if each.serial == mig.compute.serial]
