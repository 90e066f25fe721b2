"""The operator's side of the fake machine: faults, processes, reboots, foreign instances."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

import pynvml

from migrator.core.catalogue import Place, board
from migrator.core.errors import InputError
from migrator.gpu.drivers.base import GpuInstance, Holder
from migrator.io.processes import process_name
from support.fake_nvml.state import (
    AMPERE,
    FakeGpu,
    Fault,
    Instance,
    Process,
    State,
    Store,
    gpu_uuid,
    mig_uuid,
)

_CREATE, _DESTROY = "nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceDestroy"
_CREATE_COMPUTE, _DESTROY_COMPUTE = (
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlComputeInstanceDestroy",
)
CHANGING = ("nvmlDeviceSetMigMode", _CREATE, _CREATE_COMPUTE, _DESTROY_COMPUTE, _DESTROY)
"""Functions that change the state."""
_PRIVILEGED = (
    *CHANGING,
    "nvmlDeviceGetGpuInstances",
    "nvmlDeviceGetGpuInstanceById",
    "nvmlGpuInstanceGetComputeInstances",
)


class FaultKind(Enum):
    """The calls that a fault affects, and their error code."""

    IN_USE = (_DESTROY_COMPUTE, pynvml.NVML_ERROR_IN_USE)
    """A compute instance cannot be destroyed, though no process shows."""
    TRANSIENT_DESTROY = (_DESTROY, pynvml.NVML_ERROR_IN_USE)
    """A GPU instance cannot be destroyed though its compute instance is gone."""
    INSUFFICIENT_RESOURCES = (_CREATE, pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
    """A GPU instance cannot be created though there is room."""
    COMPUTE_REFUSED = (_CREATE_COMPUTE, pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
    """A GPU instance gets no compute instance."""
    NO_PERMISSION = ("|".join(_PRIVILEGED), pynvml.NVML_ERROR_NO_PERMISSION)
    """The rights to list and change instances are lost."""
    RESET_REQUIRED = ("(?!)", pynvml.NVML_ERROR_RESET_REQUIRED)
    """MIG mode is switched only after a reset (reported as a status, not as an error)."""
    GPU_LOST = (
        "(?!nvmlInit|nvmlSystemGetDriverVersion|nvmlDeviceGetCount).*",
        pynvml.NVML_ERROR_GPU_IS_LOST,
    )
    """The GPU has fallen off the bus."""
    NO_LIBRARY = ("nvmlInit", pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    """The machine has no driver library."""
    NO_DRIVER = ("nvmlInit", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    """The driver is installed but not loaded."""
    NO_MIG = (".*MigMode|.*ProfileInfoV?", pynvml.NVML_ERROR_NOT_SUPPORTED)
    """A GPU that cannot be divided."""
    NO_VERSION_2 = ("nvml.*InstanceProfileInfoV", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    """A very old driver: profiles have no names."""
    NO_PLACEMENTS = (
        "nvmlDeviceGetGpuInstancePossiblePlacements",
        pynvml.NVML_ERROR_NOT_SUPPORTED,
    )
    """Without MIG mode: placements are not listed."""


def inject(store: Store, name: str) -> None:
    """Raise the error of the pending faults of this call. Counts them down."""
    if not any(_affects(fault, name) for fault in store.now().faults):
        return
    with store.changing() as state:
        affecting = [fault for fault in state.faults if _affects(fault, name)]
        happening = [fault for fault in affecting if happens(state, fault)]
    for fault in happening:
        raise pynvml.NVMLError(FaultKind[fault.kind].value[1])


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
    return bool(re.fullmatch(FaultKind[fault.kind].value[0], name))


class FakeNvml:
    """The fake machine of a folder. A missing one is created with `gpus`, a list of board names.

    What is done to it is done to its first GPU.
    """

    def __init__(
        self, folder: Path, gpus: Sequence[str] | None = None, *, mig: bool = True
    ) -> None:
        self.store = Store(folder)
        if not self.store.exists():
            named = [board(name).name for name in gpus or ("A100-40GB",)]
            fakes = [FakeGpu(name, gpu_uuid(name, at), mig, mig) for at, name in enumerate(named)]
            self.store.begin(State(str(uuid.uuid4()), fakes))
        assert gpus is None or list(gpus) == [gpu.board for gpu in self.store.now().gpus]

    def boot_id(self) -> str:
        return self.store.now().boot_id

    def fault(self, kind: FaultKind, count: int | None = 1, *, after: int = 0) -> None:
        """Make `count` calls of this kind fail (None: until `mend`), after `after` successes."""
        with self.store.changing() as state:
            state.faults.append(Fault(kind.name, count, after))

    def faults(self) -> tuple[Fault, ...]:
        return tuple(self.store.now().faults)

    def mend(self) -> None:
        with self.store.changing() as state:
            state.faults.clear()

    def hold(self, start: int | None, pid: int) -> None:
        """Add a process to the instance at `start`, or to the whole GPU if `start` is None."""
        with self.store.changing() as state:
            gpu = state.gpus[0]
            serial = None if start is None else _at(gpu, start).compute[0].serial
            gpu.processes.append(Process(pid, serial))

    def release(self) -> None:
        """End all processes."""
        with self.store.changing() as state:
            state.gpus[0].processes.clear()

    def reboot(self) -> None:
        """Remove all instances, processes and faults. Only Ampere GPUs keep MIG mode."""
        with self.store.changing() as state:
            state.boot_id = str(uuid.uuid4())
            state.faults.clear()
            for gpu in state.gpus:
                gpu.instances.clear()
                gpu.processes.clear()
                gpu.mig = gpu.pending = gpu.pending and gpu.board.startswith(AMPERE)

    def mig(self, on: bool) -> None:
        """Set MIG mode as the operator does."""
        with self.store.changing() as state:
            gpu = state.gpus[0]
            gpu.mig = gpu.pending = on
            gpu.instances.clear()

    def foreign(self, start: int, profile: str, *, whole: bool = True) -> GpuInstance:
        """Create an instance as another program; without its compute instance unless `whole`."""
        with self.store.changing() as state:
            gpu = state.gpus[0]
            wanted = gpu.kind.profile(profile)
            if start not in wanted.starts or not gpu.fits(wanted, start):
                raise InputError(f"foreign: there is no room for {profile} at {start}")
            own = gpu.add(wanted, start)
            if whole:
                gpu.add_compute(own, wanted.gpcs)
            return _instance(gpu, own)

    def remove(self, start: int) -> None:
        """Destroy the instance at `start` as another program."""
        with self.store.changing() as state:
            state.gpus[0].instances.remove(_at(state.gpus[0], start))

    def layout(self) -> list[str]:
        return [str(instance.place) for instance in self.instances()]

    def instances(self) -> tuple[GpuInstance, ...]:
        """The instances on the board, read without NVML."""
        gpu = self.store.now().gpus[0]
        instances = (_instance(gpu, instance) for instance in gpu.instances)
        return tuple(sorted(instances, key=lambda instance: instance.place))


def _at(gpu: FakeGpu, start: int) -> Instance:
    return next(instance for instance in gpu.instances if instance.start == start)


def _instance(gpu: FakeGpu, own: Instance) -> GpuInstance:
    serials = {instance.serial for instance in own.compute}
    pids = sorted({process.pid for process in gpu.processes if process.serial in serials})
    first = min((instance.number for instance in own.compute), default=None)
    return GpuInstance(
        Place(own.start, gpu.profile_of(own).name),
        own.number,
        None if first is None else mig_uuid(gpu.uuid, own.number, first),
        tuple(Holder(pid, process_name(pid)) for pid in pids),
    )
