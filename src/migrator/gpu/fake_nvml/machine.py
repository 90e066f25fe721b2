"""The fake machine as its operator has it: faults, processes, reboots, other people's instances."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

from migrator.core.catalogue import board
from migrator.core.errors import InputError
from migrator.gpu.driver import GpuInstance, Holder, Place
from migrator.gpu.fake_nvml import boards
from migrator.gpu.fake_nvml.faults import FaultKind
from migrator.gpu.fake_nvml.state import FakeGpu, Fault, Instance, Process, State, Store
from migrator.gpu.processes import called

DEFAULT_BOARD = "A100-40GB"


class FakeNvml:
    """The fake machine of a folder; begun with `gpus`, a board's name each, where it is missing."""

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
        """This boot's; another one after `reboot`."""
        return self.store.now().boot_id

    def fault(
        self,
        kind: FaultKind | str,
        count: int | None = 1,
        *,
        after: int = 0,
        seconds: float = 0.0,
    ) -> None:
        """The next `count` calls of that kind go wrong (None: until `mend`), `after` so many."""
        try:
            fault = Fault(FaultKind(kind), count, after, seconds)
        except ValueError:
            known = ", ".join(FaultKind)
            raise InputError(f"fault: there is no {kind!r}; there are {known}") from None
        with self.store.changing() as state:
            state.faults.append(fault)

    def faults(self) -> tuple[Fault, ...]:
        """Those still to happen."""
        return tuple(self.store.now().faults)

    def mend(self) -> None:
        """No fault is left."""
        with self.store.changing() as state:
            state.faults.clear()

    def hold(self, start: int | None, pid: int, gpu: int = 0) -> None:
        """A process uses the instance at `start`, or the whole GPU where that is None."""
        with self.store.changing() as state:
            serial = None
            if start is not None:
                instance = _at(_gpu(state, gpu), start)
                if not instance.compute:
                    raise InputError(f"hold: the instance at {start} has no compute instance")
                serial = instance.compute[0].serial
            _gpu(state, gpu).processes.append(Process(pid, serial))

    def release(self, pid: int | None = None, gpu: int = 0) -> None:
        """That process ends, or all."""
        with self.store.changing() as state:
            held = _gpu(state, gpu).processes
            held[:] = [each for each in held if pid is not None and each.pid != pid]

    def reboot(self) -> None:
        """Instances, processes and faults are gone; MIG mode stays on Ampere only."""
        with self.store.changing() as state:
            state.boot_id = str(uuid.uuid4())
            state.faults.clear()
            for gpu in state.gpus:
                gpu.instances.clear()
                gpu.processes.clear()
                gpu.mig = gpu.pending = gpu.pending and gpu.board.startswith(boards.AMPERE)

    def mig(self, on: bool, gpu: int = 0) -> None:
        """MIG mode as the operator has set it."""
        with self.store.changing() as state:
            fake = _gpu(state, gpu)
            fake.mig = fake.pending = on
            fake.instances.clear()

    def foreign(self, start: int, profile: str, gpu: int = 0, *, whole: bool = True) -> GpuInstance:
        """Somebody else makes an instance; not `whole`: without compute instance."""
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
        """Somebody else destroys the instance at `start`."""
        with self.store.changing() as state:
            fake = _gpu(state, gpu)
            fake.instances.remove(_at(fake, start))

    def instances(self, gpu: int = 0) -> tuple[GpuInstance, ...]:
        """What is on the board, read past NVML."""
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
        tuple(Holder(pid, called(pid)) for pid in pids),
    )
