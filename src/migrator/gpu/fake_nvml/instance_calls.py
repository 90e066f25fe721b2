"""The fake's functions about GPU instances and compute instances, with NVML's errors."""

from __future__ import annotations

from ctypes import cast
from typing import Any

import pynvml

from migrator.gpu.fake_nvml import boards
from migrator.gpu.fake_nvml.calls import (
    IN_USE,
    INVALID,
    NO_ROOM,
    NOT_FOUND,
    OK,
    OTHER_VERSION,
    UNSUPPORTED,
    At,
    call,
    compute_at,
    gpu_at,
    instance_at,
)
from migrator.gpu.fake_nvml.memory import Handle, Kind, number, put_handles, put_number, struct
from migrator.gpu.fake_nvml.state import State


@call("nvmlDeviceGetGpuInstances", privileged=True)
def gpu_instances(state: State, device: Any, profile_id: Any, found: Any, count: Any) -> int:
    """The GPU instances of a profile. The caller's array has space for the maximum number."""
    at = gpu_at(state, device)
    profile = at and boards.by_id(at[1], number(profile_id))
    if at is None or profile is None:
        return INVALID
    index, gpu = at
    if not gpu.mig:
        return UNSUPPORTED
    alike = [each for each in gpu.instances if each.enum == profile.nvml_enum]
    told = put_handles(found, [At(index, gpu, each).handle() for each in alike])
    return OK if told and put_number(count, len(alike)) else INVALID


@call("nvmlDeviceGetGpuInstanceById", privileged=True)
def gpu_instance_by_id(state: State, device: Any, wanted: Any, found: Any) -> int:
    """The GPU instance with this number."""
    at = gpu_at(state, device)
    if at is None:
        return INVALID
    index, gpu = at
    if not gpu.mig:
        return UNSUPPORTED
    for each in gpu.instances:
        if each.number == number(wanted):
            return OK if put_handles(found, [At(index, gpu, each).handle()]) else INVALID
    return NOT_FOUND


@call("nvmlGpuInstanceGetInfo")
def gpu_instance_info(state: State, instance: Any, info: Any) -> int:
    """Number, profile and memory slices of a GPU instance."""
    at, told = instance_at(state, instance), struct(info, pynvml.c_nvmlGpuInstanceInfo_t)
    if at is None or told is None:
        return INVALID
    profile, found = boards.profile_of(at.gpu, at.instance), at.instance
    told.id, told.profileId = found.number, boards.profile_id(profile)
    told.placement.start, told.placement.size = found.start, profile.memory_slices
    return OK


@call("nvmlDeviceCreateGpuInstanceWithPlacement", changes=True, privileged=True)
def create_gpu_instance(
    state: State, device: Any, profile_id: Any, placement: Any, made: Any
) -> int:
    """Create a GPU instance. The code is the same for occupied slices and an exhausted profile."""
    at = gpu_at(state, device)
    where = struct(placement, pynvml.c_nvmlGpuInstancePlacement_t)
    profile = at and boards.by_id(at[1], number(profile_id))
    if at is None or where is None or profile is None:
        return INVALID
    index, gpu = at
    if not gpu.mig:
        return UNSUPPORTED
    if where.start not in profile.starts or where.size != profile.memory_slices:
        return INVALID
    if not boards.fits(gpu, profile, where.start):
        return NO_ROOM
    instance = boards.add_instance(gpu, profile, where.start)
    return OK if put_handles(made, [At(index, gpu, instance).handle()]) else INVALID


@call("nvmlGpuInstanceDestroy", changes=True, privileged=True)
def destroy_gpu_instance(state: State, instance: Any) -> int:
    """Destroy a GPU instance that has no compute instances."""
    at = instance_at(state, instance)
    if at is None:
        return INVALID
    if at.instance.compute:
        return IN_USE
    at.gpu.instances.remove(at.instance)
    return OK


@call("nvmlGpuInstanceGetComputeInstanceProfileInfo")
def compute_profile(state: State, instance: Any, enum: Any, engine: Any, info: Any) -> int:
    """A profile of compute instances, without its name."""
    told = struct(info, pynvml.c_nvmlComputeInstanceProfileInfo_t)
    return _told(state, instance, enum, engine, told)


@call("nvmlGpuInstanceGetComputeInstanceProfileInfoV")
def compute_profile_v(state: State, instance: Any, enum: Any, engine: Any, info: Any) -> int:
    """A profile of compute instances, with its name."""
    told = struct(info, pynvml.c_nvmlComputeInstanceProfileInfo_v2_t)
    if told is not None and told.version != pynvml.nvmlComputeInstanceProfileInfo_v2:
        return OTHER_VERSION
    code, at = _told(state, instance, enum, engine, told), instance_at(state, instance)
    if code == OK and at is not None:
        told.name = f"MIG {told.sliceCount}c.{boards.profile_of(at.gpu, at.instance).name}".encode()
    return code


@call("nvmlGpuInstanceGetComputeInstances", privileged=True)
def compute_instances(state: State, instance: Any, profile_id: Any, found: Any, count: Any) -> int:
    """The compute instances of a profile inside a GPU instance."""
    at = instance_at(state, instance)
    slices = at and boards.compute_sizes(at.gpu, at.instance).get(number(profile_id))
    if at is None or slices is None:
        return INVALID
    alike = [each for each in at.instance.compute if each.slices == slices]
    handles = [Handle(Kind.COMPUTE_INSTANCE, at.number, each.serial) for each in alike]
    told = put_handles(found, handles)
    return OK if told and put_number(count, len(alike)) else INVALID


@call("nvmlComputeInstanceGetInfo_v2")
def compute_instance_info(state: State, compute: Any, info: Any) -> int:
    """Number and profile of a compute instance, and its MIG device."""
    at, told = compute_at(state, compute), struct(info, pynvml.c_nvmlComputeInstanceInfo_t)
    if at is None or told is None:
        return INVALID
    found = at.compute
    device = Handle(Kind.MIG_DEVICE, at.number, found.serial)
    told.device = cast(device.address(), pynvml.c_nvmlDevice_t)
    parent = At(at.number, at.gpu, at.instance).handle()
    told.gpuInstance = cast(parent.address(), pynvml.c_nvmlGpuInstance_t)
    told.id = found.number
    told.profileId = next(k for k, v in boards.COMPUTE_SIZES.items() if v == found.slices)
    told.placement.start, told.placement.size = found.start, found.slices
    return OK


@call("nvmlGpuInstanceCreateComputeInstance", changes=True, privileged=True)
def create_compute_instance(state: State, instance: Any, profile_id: Any, made: Any) -> int:
    """Create a compute instance inside a GPU instance, on the first free slices."""
    at = instance_at(state, instance)
    slices = at and boards.compute_sizes(at.gpu, at.instance).get(number(profile_id))
    if at is None or slices is None:
        return INVALID
    compute = boards.add_compute(at.gpu, at.instance, slices)
    if compute is None:
        return NO_ROOM
    handle = Handle(Kind.COMPUTE_INSTANCE, at.number, compute.serial)
    return OK if put_handles(made, [handle]) else INVALID


@call("nvmlComputeInstanceDestroy", changes=True, privileged=True)
def destroy_compute_instance(state: State, compute: Any) -> int:
    """Destroy a compute instance that no process uses."""
    at = compute_at(state, compute)
    if at is None:
        return INVALID
    if any(each.serial == at.compute.serial for each in at.gpu.processes):
        return IN_USE
    at.instance.compute.remove(at.compute)
    return OK


def _told(state: State, instance: Any, enum: Any, engine: Any, told: Any) -> int:
    at = instance_at(state, instance)
    wanted = number(enum)
    known = wanted < pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT
    shared = number(engine) == pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    if at is None or told is None or not known or not shared:
        return INVALID
    slices = boards.compute_sizes(at.gpu, at.instance).get(wanted)
    if slices is None:
        return UNSUPPORTED
    profile = boards.profile_of(at.gpu, at.instance)
    told.id, told.sliceCount, told.instanceCount = wanted, slices, profile.gpcs // slices
    told.multiprocessorCount = boards.profile_sms(profile) * slices // profile.gpcs
    return OK
