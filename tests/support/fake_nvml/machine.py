"""The operator's side of the fake machine: faults, processes, reboots, foreign instances."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from enum import StrEnum
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
    add_compute,
    add_instance,
    board_of,
    fits,
    gpu_uuid,
    mig_uuid,
    profile_of,
)

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
_NEVER = "(?!)"
DEFAULT_BOARD = "A100-40GB"


class FaultKind(StrEnum):
    """Kind of a fault."""

    IN_USE = "in-use"
    """A compute instance cannot be destroyed, though no process shows."""
    TRANSIENT_DESTROY = "transient-destroy"
    """A GPU instance cannot be destroyed though its compute instance is gone."""
    INSUFFICIENT_RESOURCES = "insufficient-resources"
    """A GPU instance cannot be created though there is room."""
    COMPUTE_REFUSED = "compute-refused"
    """A GPU instance gets no compute instance."""
    NO_PERMISSION = "no-permission"
    """The rights to list and change instances are lost."""
    RESET_REQUIRED = "reset-required"
    """MIG mode is switched only after a reset (reported as a status, not as an error)."""
    GPU_LOST = "gpu-lost"
    """The GPU has fallen off the bus."""
    NO_LIBRARY = "no-library"
    """The machine has no driver library."""
    NO_DRIVER = "no-driver"
    """The driver is installed but not loaded."""
    NO_MIG = "no-mig"
    """A GPU that cannot be divided."""
    NO_VERSION_2 = "no-version-2"
    """A very old driver: profiles have no names."""
    NO_PLACEMENTS = "no-placements"
    """Without MIG mode: placements are not listed."""


_CREATE, _DESTROY = "nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceDestroy"
_FAULTS = {
    FaultKind.IN_USE: ("nvmlComputeInstanceDestroy", pynvml.NVML_ERROR_IN_USE),
    FaultKind.TRANSIENT_DESTROY: (_DESTROY, pynvml.NVML_ERROR_IN_USE),
    FaultKind.INSUFFICIENT_RESOURCES: (_CREATE, pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES),
    FaultKind.COMPUTE_REFUSED: (
        "nvmlGpuInstanceCreateComputeInstance",
        pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES,
    ),
    FaultKind.NO_PERMISSION: ("|".join(_PRIVILEGED), pynvml.NVML_ERROR_NO_PERMISSION),
    FaultKind.RESET_REQUIRED: (_NEVER, pynvml.NVML_ERROR_RESET_REQUIRED),
    FaultKind.GPU_LOST: (
        "(?!nvmlInit|nvmlSystemGetDriverVersion|nvmlDeviceGetCount).*",
        pynvml.NVML_ERROR_GPU_IS_LOST,
    ),
    FaultKind.NO_LIBRARY: ("nvmlInit", pynvml.NVML_ERROR_LIBRARY_NOT_FOUND),
    FaultKind.NO_DRIVER: ("nvmlInit", pynvml.NVML_ERROR_DRIVER_NOT_LOADED),
    FaultKind.NO_MIG: (".*MigMode|.*ProfileInfoV?", pynvml.NVML_ERROR_NOT_SUPPORTED),
    FaultKind.NO_VERSION_2: ("nvml.*InstanceProfileInfoV", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
    FaultKind.NO_PLACEMENTS: (
        "nvmlDeviceGetGpuInstancePossiblePlacements",
        pynvml.NVML_ERROR_NOT_SUPPORTED,
    ),
}
"""Kind -> the calls that it affects, and their error code."""


def inject(store: Store, name: str) -> None:
    """Raise the error of the pending faults of this call. Counts them down."""
    if not any(_affects(fault, name) for fault in store.now().faults):
        return
    with store.changing() as state:
        affecting = [fault for fault in state.faults if _affects(fault, name)]
        happening = [fault for fault in affecting if happens(state, fault)]
    for fault in happening:
        raise pynvml.NVMLError(_FAULTS[FaultKind(fault.kind)][1])


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
    return bool(re.fullmatch(_FAULTS[FaultKind(fault.kind)][0], name))


class FakeNvml:
    """The fake machine of a folder. A missing one is created with `gpus`, a list of board names."""

    def __init__(
        self, folder: Path, gpus: Sequence[str] | None = None, *, mig: bool = True
    ) -> None:
        self.store = Store(folder)
        if not self.store.exists():
            self.store.begin(_begun(gpus or (DEFAULT_BOARD,), mig))
        assert gpus is None or list(gpus) == [gpu.board for gpu in self.store.now().gpus]

    def boot_id(self) -> str:
        return self.store.now().boot_id

    def fault(self, kind: FaultKind, count: int | None = 1, *, after: int = 0) -> None:
        """Make `count` calls of this kind fail (None: until `mend`), after `after` successes."""
        with self.store.changing() as state:
            state.faults.append(Fault(kind, count, after))

    def faults(self) -> tuple[Fault, ...]:
        return tuple(self.store.now().faults)

    def mend(self) -> None:
        with self.store.changing() as state:
            state.faults.clear()

    def hold(self, start: int | None, pid: int, gpu: int = 0) -> None:
        """Add a process to the instance at `start`, or to the whole GPU if `start` is None."""
        with self.store.changing() as state:
            serial = None
            if start is not None:
                serial = _at(state.gpus[gpu], start).compute[0].serial
            state.gpus[gpu].processes.append(Process(pid, serial))

    def release(self, pid: int | None = None, gpu: int = 0) -> None:
        """End this process, or all processes."""
        with self.store.changing() as state:
            held = state.gpus[gpu].processes
            held[:] = [process for process in held if pid is not None and process.pid != pid]

    def reboot(self) -> None:
        """Remove all instances, processes and faults. Only Ampere GPUs keep MIG mode."""
        with self.store.changing() as state:
            state.boot_id = str(uuid.uuid4())
            state.faults.clear()
            for gpu in state.gpus:
                gpu.instances.clear()
                gpu.processes.clear()
                gpu.mig = gpu.pending = gpu.pending and gpu.board.startswith(AMPERE)

    def mig(self, on: bool, gpu: int = 0) -> None:
        """Set MIG mode as the operator does."""
        with self.store.changing() as state:
            fake = state.gpus[gpu]
            fake.mig = fake.pending = on
            fake.instances.clear()

    def foreign(self, start: int, profile: str, gpu: int = 0, *, whole: bool = True) -> GpuInstance:
        """Create an instance as another program; without its compute instance unless `whole`."""
        with self.store.changing() as state:
            fake = state.gpus[gpu]
            wanted = board_of(fake).profile(profile)
            if start not in wanted.starts or not fits(fake, wanted, start):
                raise InputError(f"foreign: there is no room for {profile} at {start}")
            own = add_instance(fake, wanted, start)
            if whole:
                add_compute(fake, own, wanted.gpcs)
            return _instance(fake, own)

    def remove(self, start: int, gpu: int = 0) -> None:
        """Destroy the instance at `start` as another program."""
        with self.store.changing() as state:
            fake = state.gpus[gpu]
            fake.instances.remove(_at(fake, start))

    def instances(self, gpu: int = 0) -> tuple[GpuInstance, ...]:
        """The instances on the board, read without NVML."""
        fake = self.store.now().gpus[gpu]
        instances = (_instance(fake, instance) for instance in fake.instances)
        return tuple(sorted(instances, key=lambda instance: instance.place))


def _begun(gpus: Sequence[str], mig: bool) -> State:
    fakes = [
        FakeGpu(board(name).name, gpu_uuid(name, index), mig, mig)
        for index, name in enumerate(gpus)
    ]
    return State(str(uuid.uuid4()), fakes)


def _at(gpu: FakeGpu, start: int) -> Instance:
    return next(instance for instance in gpu.instances if instance.start == start)


def _instance(gpu: FakeGpu, own: Instance) -> GpuInstance:
    serials = {instance.serial for instance in own.compute}
    pids = sorted({process.pid for process in gpu.processes if process.serial in serials})
    first = next(iter(sorted(instance.number for instance in own.compute)), None)
    return GpuInstance(
        Place(own.start, profile_of(gpu, own).name),
        own.number,
        None if first is None else mig_uuid(gpu.uuid, own.number, first),
        tuple(Holder(pid, process_name(pid)) for pid in pids),
    )
