"""The functions of the fake library by their C names; each module with functions registers them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pynvml

from migrator.gpu.fake_nvml.memory import Handle, Kind
from migrator.gpu.fake_nvml.state import ComputeInstance, FakeGpu, Instance, State

OK: int = pynvml.NVML_SUCCESS
INVALID: int = pynvml.NVML_ERROR_INVALID_ARGUMENT
UNSUPPORTED: int = pynvml.NVML_ERROR_NOT_SUPPORTED
TOO_SMALL: int = pynvml.NVML_ERROR_INSUFFICIENT_SIZE
NOT_FOUND: int = pynvml.NVML_ERROR_NOT_FOUND
IN_USE: int = pynvml.NVML_ERROR_IN_USE
NO_ROOM: int = pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES
OTHER_VERSION: int = pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH

Function = Callable[..., int]
"""A function of the library.

Takes the state and the arguments as ctypes passes them, and returns NVML's code.
"""


@dataclass(frozen=True)
class Call:
    """One function, whether it changes the state, and whether it requires privileges."""

    run: Function
    changes: bool
    privileged: bool


CALLS: dict[str, Call] = {}


def call(
    name: str, *, changes: bool = False, privileged: bool = False
) -> Callable[[Function], Function]:
    """Register a function under its C name."""

    def added(run: Function) -> Function:
        CALLS[name] = Call(run, changes, privileged)
        return run

    return added


class At(NamedTuple):
    """A GPU instance and its GPU."""

    number: int
    gpu: FakeGpu
    instance: Instance

    def handle(self) -> Handle:
        """The handle of the GPU instance."""
        return Handle(Kind.GPU_INSTANCE, self.number, self.instance.serial)


class ComputeAt(NamedTuple):
    """A compute instance and its GPU instance."""

    number: int
    gpu: FakeGpu
    instance: Instance
    compute: ComputeInstance


def gpu_at(state: State, argument: Any) -> tuple[int, FakeGpu] | None:
    """The GPU of a device handle; None for the handle of a MIG device."""
    handle = _known(state, argument, Kind.DEVICE)
    return None if handle is None else (handle.gpu, state.gpus[handle.gpu])


def instance_at(state: State, argument: Any) -> At | None:
    """The GPU instance of a handle; None once it is destroyed, even if another one replaced it."""
    handle = _known(state, argument, Kind.GPU_INSTANCE)
    if handle is None:
        return None
    gpu = state.gpus[handle.gpu]
    found = (each for each in gpu.instances if each.serial == handle.serial)
    return next((At(handle.gpu, gpu, each) for each in found), None)


def compute_at(state: State, argument: Any, kind: Kind = Kind.COMPUTE_INSTANCE) -> ComputeAt | None:
    """The compute instance of its handle, or of the handle of its MIG device."""
    handle = _known(state, argument, kind)
    if handle is None:
        return None
    gpu = state.gpus[handle.gpu]
    for instance in gpu.instances:
        for each in instance.compute:
            if each.serial == handle.serial:
                return ComputeAt(handle.gpu, gpu, instance, each)
    return None


def _known(state: State, argument: Any, kind: Kind) -> Handle | None:
    handle = Handle.of(argument)
    right = handle is not None and handle.kind is kind and handle.gpu < len(state.gpus)
    return handle if right else None
