"""Faults on demand: which calls they affect, with which code, and how many times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import pynvml

from migrator.gpu.fake_nvml.calls import CALLS
from migrator.gpu.fake_nvml.state import Fault, State, Store


class FaultKind(StrEnum):
    """Kind of a fault that can be injected."""

    IN_USE = "in-use"
    TRANSIENT_DESTROY = "transient-destroy"
    INSUFFICIENT_RESOURCES = "insufficient-resources"
    COMPUTE_REFUSED = "compute-refused"
    SLOW = "slow"
    NO_PERMISSION = "no-permission"
    RESET_REQUIRED = "reset-required"
    GPU_LOST = "gpu-lost"
    NO_LIBRARY = "no-library"
    NO_DRIVER = "no-driver"
    NO_MIG = "no-mig"
    NO_VERSION_2 = "no-version-2"
    VERSION_MISMATCH = "version-mismatch"
    NO_PROFILES = "no-profiles"
    NO_PLACEMENTS = "no-placements"


@dataclass(frozen=True)
class Effect:
    """The calls that a fault affects, their return code, and the help text of the command."""

    strikes: Callable[[str], bool]
    code: int
    about: str


def _named(*names: str) -> Callable[[str], bool]:
    return lambda name: name in names


_VERSIONED = (
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
)
_WITHOUT_GPU = ("nvmlInitWithFlags", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2")
_CREATE = ("nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlDeviceCreateGpuInstance")

EFFECTS = {
    FaultKind.IN_USE: Effect(
        _named("nvmlComputeInstanceDestroy"),
        pynvml.NVML_ERROR_IN_USE,
        "a compute instance cannot be destroyed, though no process shows",
    ),
    FaultKind.TRANSIENT_DESTROY: Effect(
        _named("nvmlGpuInstanceDestroy"),
        pynvml.NVML_ERROR_IN_USE,
        "a GPU instance cannot be destroyed though its compute instance is gone",
    ),
    FaultKind.INSUFFICIENT_RESOURCES: Effect(
        _named(*_CREATE),
        pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES,
        "a GPU instance cannot be created though there is room",
    ),
    FaultKind.COMPUTE_REFUSED: Effect(
        _named("nvmlGpuInstanceCreateComputeInstance"),
        pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES,
        "a GPU instance gets no compute instance",
    ),
    FaultKind.SLOW: Effect(
        lambda name: name in CALLS and CALLS[name].changes,
        pynvml.NVML_SUCCESS,
        "a call that changes something takes --seconds longer",
    ),
    FaultKind.NO_PERMISSION: Effect(
        lambda name: name in CALLS and CALLS[name].privileged,
        pynvml.NVML_ERROR_NO_PERMISSION,
        "the rights to list and change instances are lost",
    ),
    FaultKind.RESET_REQUIRED: Effect(
        _named(),
        pynvml.NVML_ERROR_RESET_REQUIRED,
        "MIG mode is switched only after a reset (told as a status, not as an error)",
    ),
    FaultKind.GPU_LOST: Effect(
        lambda name: name not in _WITHOUT_GPU,
        pynvml.NVML_ERROR_GPU_IS_LOST,
        "the GPU has fallen off the bus",
    ),
    FaultKind.NO_LIBRARY: Effect(
        _named("nvmlInitWithFlags"),
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        "the machine has no driver library",
    ),
    FaultKind.NO_DRIVER: Effect(
        _named("nvmlInitWithFlags"),
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        "the driver is installed but not loaded",
    ),
    FaultKind.NO_MIG: Effect(
        lambda name: "MigMode" in name or "ProfileInfo" in name,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        "a GPU that cannot be divided",
    ),
    FaultKind.NO_VERSION_2: Effect(
        _named(*_VERSIONED, "nvmlDeviceGetComputeRunningProcesses_v3"),
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        "an old driver: profiles without names, processes by an older call",
    ),
    FaultKind.VERSION_MISMATCH: Effect(
        _named(*_VERSIONED),
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        "a driver that knows the calls but not this version of their structs",
    ),
    FaultKind.NO_PROFILES: Effect(
        lambda name: name.startswith("nvmlDeviceGetGpuInstanceProfileInfo"),
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        "a very old driver: it cannot tell MIG profiles",
    ),
    FaultKind.NO_PLACEMENTS: Effect(
        _named("nvmlDeviceGetGpuInstancePossiblePlacements_v2"),
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        "an old driver: it cannot tell placements",
    ),
}


@dataclass(frozen=True)
class Struck:
    """Effect of the faults on one call."""

    code: int = 0
    seconds: float = 0.0


NOT = Struck()


def struck(store: Store, state: State, name: str) -> Struck:
    """The effect of the faults in `state` on this call. Decrements the remaining count of each."""
    if not any(_strikes(each, name) for each in state.faults):
        return NOT
    with store.changing() as changed:
        now = [
            each for each in list(changed.faults) if _strikes(each, name) and happens(changed, each)
        ]
    codes = (EFFECTS[FaultKind(each.kind)].code for each in now)
    return Struck(next(filter(None, codes), 0), sum(each.seconds for each in now))


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


def _strikes(fault: Fault, name: str) -> bool:
    return EFFECTS[FaultKind(fault.kind)].strikes(name)
