"""The operator's side of the fake machine: faults, processes, reboots, foreign instances."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

from migrator.core.catalogue import board
from migrator.core.errors import InputError
from migrator.core.placement import Place
from migrator.gpu.drivers.base import GpuInstance, Holder
from migrator.gpu.fake_nvml import boards
from migrator.gpu.fake_nvml.faults import FaultKind
from migrator.gpu.fake_nvml.state import FakeGpu, Fault, Instance, Process, State, Store
from migrator.io.processes import process_name

DEFAULT_BOARD = "A100-40GB"


class FakeNvml:
    """The fake machine of a folder. A missing one is created with `gpus`, a list of board names."""

    def __init__(
        self, folder: Path, gpus: Sequence[str] | None = None, *, mig: bool = True
    ) -> None:
        self.store = Store(folder)
        if not self.store.exists():
            self.store.begin(_begun(gpus or (DEFAULT_BOARD,), mig))
        there = [each.board for each in self.store.now().gpus]
        if gpus is not None and list(gpus) != there:
            raise InputError(
                f"{folder}: the fake NVML here has {', '.join(there)}, not {', '.join(gpus)}; "
                "delete the folder to begin anew"
            )

    def boot_id(self) -> str:
        """Id of the current boot; `reboot` changes it."""
        return self.store.now().boot_id

    def fault(
        self,
        kind: FaultKind | str,
        count: int | None = 1,
        *,
        after: int = 0,
        seconds: float = 0.0,
    ) -> None:
        """Make `count` calls of this kind fail (None: until `mend`), after `after` successes."""
        if kind not in list(FaultKind):
            raise InputError(f"fault: there is no {kind!r}; there are {', '.join(FaultKind)}")
        fault = Fault(kind, count, after, seconds)
        with self.store.changing() as state:
            state.faults.append(fault)

    def faults(self) -> tuple[Fault, ...]:
        """The faults that have yet to happen."""
        return tuple(self.store.now().faults)

    def mend(self) -> None:
        """Remove all faults."""
        with self.store.changing() as state:
            state.faults.clear()

    def hold(self, start: int | None, pid: int, gpu: int = 0) -> None:
        """Add a process to the instance at `start`, or to the whole GPU if `start` is None."""
        with self.store.changing() as state:
            serial = None
            if start is not None:
                instance = _at(_gpu(state, gpu), start)
                if not instance.compute:
                    raise InputError(f"hold: the instance at {start} has no compute instance")
                serial = instance.compute[0].serial
            _gpu(state, gpu).processes.append(Process(pid, serial))

    def release(self, pid: int | None = None, gpu: int = 0) -> None:
        """End this process, or all processes."""
        with self.store.changing() as state:
            held = _gpu(state, gpu).processes
            held[:] = [each for each in held if pid is not None and each.pid != pid]

    def reboot(self) -> None:
        """Remove all instances, processes and faults. Only Ampere GPUs keep MIG mode."""
        with self.store.changing() as state:
            state.boot_id = str(uuid.uuid4())
            state.faults.clear()
            for gpu in state.gpus:
                gpu.instances.clear()
                gpu.processes.clear()
                gpu.mig = gpu.pending = gpu.pending and gpu.board.startswith(boards.AMPERE)

    def mig(self, on: bool, gpu: int = 0) -> None:
        """Set MIG mode as the operator does."""
        with self.store.changing() as state:
            fake = _gpu(state, gpu)
            fake.mig = fake.pending = on
            fake.instances.clear()

    def foreign(self, start: int, profile: str, gpu: int = 0, *, whole: bool = True) -> GpuInstance:
        """Create an instance as another program; without its compute instance unless `whole`."""
        with self.store.changing() as state:
            fake = _gpu(state, gpu)
            wanted = boards.board_of(fake).profile(profile)
            if start not in wanted.starts or not boards.fits(fake, wanted, start):
                raise InputError(f"foreign: there is no room for {profile} at {start}")
            made = boards.add_instance(fake, wanted, start)
            if whole:
                boards.add_compute(fake, made, wanted.gpcs)
            return _instance(fake, made)

    def remove(self, start: int, gpu: int = 0) -> None:
        """Destroy the instance at `start` as another program."""
        with self.store.changing() as state:
            fake = _gpu(state, gpu)
            fake.instances.remove(_at(fake, start))

    def instances(self, gpu: int = 0) -> tuple[GpuInstance, ...]:
        """The instances on the board, read without NVML."""
        fake = _gpu(self.store.now(), gpu)
        found = (_instance(fake, each) for each in fake.instances)
        return tuple(sorted(found, key=lambda each: each.place))


def _begun(gpus: Sequence[str], mig: bool) -> State:
    made = [
        FakeGpu(board(name).name, boards.gpu_uuid(name, index), mig, mig)
        for index, name in enumerate(gpus)
    ]
    return State(str(uuid.uuid4()), made)


def _gpu(state: State, index: int) -> FakeGpu:
    if not 0 <= index < len(state.gpus):
        raise InputError(f"--gpu: there is no GPU {index}; the fake machine has {len(state.gpus)}")
    return state.gpus[index]


def _at(gpu: FakeGpu, start: int) -> Instance:
    for each in gpu.instances:
        if each.start == start:
            return each
    there = ", ".join(str(each.start) for each in gpu.instances) or "none"
    raise InputError(f"no instance starts at {start}; there are instances at {there}")


def _instance(gpu: FakeGpu, made: Instance) -> GpuInstance:
    serials = {each.serial for each in made.compute}
    pids = sorted({each.pid for each in gpu.processes if each.serial in serials})
    first = next(iter(sorted(each.number for each in made.compute)), None)
    return GpuInstance(
        Place(made.start, boards.profile_of(gpu, made).name),
        made.number,
        None if first is None else boards.mig_uuid(gpu.uuid, made.number, first),
        tuple(Holder(pid, process_name(pid)) for pid in pids),
    )
