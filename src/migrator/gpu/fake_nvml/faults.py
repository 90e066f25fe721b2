"""Faults on demand: which calls they affect, with which code, and how many times."""

from __future__ import annotations

import re
import time
from enum import StrEnum

import pynvml

from migrator.gpu.fake_nvml.state import Fault, State, Store

CHANGING = (
    "nvmlDeviceSetMigMode",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlComputeInstanceDestroy",
    "nvmlGpuInstanceDestroy",
)
"""Functions that change the state."""
_PRIVILEGED = (
    *CHANGING,
    "nvmlDeviceGetGpuInstances",
    "nvmlDeviceGetGpuInstanceById",
    "nvmlGpuInstanceGetComputeInstances",
)
_VERSION_2 = "nvmlDeviceGetGpuInstanceProfileInfoV|nvmlGpuInstanceGetComputeInstanceProfileInfoV"
_NEVER = "(?!)"


class FaultKind(StrEnum):
    """Kind of a fault: its name, the calls that it affects, their error code and a description."""

    calls: re.Pattern[str]
    code: int
    about: str

    def __new__(cls, name: str, calls: str, code: int, about: str) -> FaultKind:
        """Called by Enum for each member."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.calls, member.code, member.about = re.compile(calls), code, about
        return member

    IN_USE = (
        "in-use",
        "nvmlComputeInstanceDestroy",
        pynvml.NVML_ERROR_IN_USE,
        "a compute instance cannot be destroyed, though no process shows",
    )
    TRANSIENT_DESTROY = (
        "transient-destroy",
        "nvmlGpuInstanceDestroy",
        pynvml.NVML_ERROR_IN_USE,
        "a GPU instance cannot be destroyed though its compute instance is gone",
    )
    INSUFFICIENT_RESOURCES = (
        "insufficient-resources",
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES,
        "a GPU instance cannot be created though there is room",
    )
    COMPUTE_REFUSED = (
        "compute-refused",
        "nvmlGpuInstanceCreateComputeInstance",
        pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES,
        "a GPU instance gets no compute instance",
    )
    SLOW = (
        "slow",
        "|".join(CHANGING),
        pynvml.NVML_SUCCESS,
        "a call that changes something takes --seconds longer",
    )
    NO_PERMISSION = (
        "no-permission",
        "|".join(_PRIVILEGED),
        pynvml.NVML_ERROR_NO_PERMISSION,
        "the rights to list and change instances are lost",
    )
    RESET_REQUIRED = (
        "reset-required",
        _NEVER,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        "MIG mode is switched only after a reset (reported as a status, not as an error)",
    )
    GPU_LOST = (
        "gpu-lost",
        "(?!nvmlInit|nvmlSystemGetDriverVersion|nvmlDeviceGetCount).*",
        pynvml.NVML_ERROR_GPU_IS_LOST,
        "the GPU has fallen off the bus",
    )
    NO_LIBRARY = (
        "no-library",
        "nvmlInit",
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        "the machine has no driver library",
    )
    NO_DRIVER = (
        "no-driver",
        "nvmlInit",
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        "the driver is installed but not loaded",
    )
    NO_MIG = (
        "no-mig",
        ".*MigMode|.*ProfileInfoV?",
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        "a GPU that cannot be divided",
    )
    NO_VERSION_2 = (
        "no-version-2",
        f"{_VERSION_2}|nvmlDeviceGetComputeRunningProcesses_v3",
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        "an old driver: profiles without names, processes by an older call",
    )
    VERSION_MISMATCH = (
        "version-mismatch",
        _VERSION_2,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        "a driver that knows the calls but not this version of their structs",
    )
    NO_PROFILES = (
        "no-profiles",
        "nvmlDeviceGetGpuInstanceProfileInfoV?",
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        "a very old driver: it cannot list MIG profiles",
    )
    NO_PLACEMENTS = (
        "no-placements",
        "nvmlDeviceGetGpuInstancePossiblePlacements",
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        "an old driver: it cannot list placements",
    )


_KINDS = {each.value: each for each in FaultKind}


def inject(store: Store, name: str) -> None:
    """Delay this call or raise its error, as the pending faults require. Counts them down."""
    if not any(_affects(each, name) for each in store.now().faults):
        return
    with store.changing() as state:
        affecting = [each for each in state.faults if _affects(each, name)]
        now = [each for each in affecting if happens(state, each)]
    if delay_s := sum(each.seconds for each in now):
        time.sleep(delay_s)  # without the lock, so that other processes continue
    for each in now:
        if code := _KINDS[each.kind].code:
            raise pynvml.NVMLError(code)


def happens(state: State, fault: Fault) -> bool:
    """Whether a fault happens at this call. Decrements its count."""
    if fault.after:
        fault.after -= 1
        return False
    if fault.left is not None:
        fault.left -= 1
        if fault.left <= 0:
            state.faults.remove(fault)
    return True


def _affects(fault: Fault, name: str) -> bool:
    return bool(_KINDS[fault.kind].calls.fullmatch(name))
