"""Drivers that divide a GPU into shares, on which worker processes measure.

`mps` and `mig` use `migrator.gpu`; `cpu` needs no GPU and is for trials only. MIG mode is never
switched. What a driver creates is removed at the end, or by the next run after a kill.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from migrator.core.catalogue import Board, MigProfile, Place
from migrator.core.errors import InputError
from migrator.core.registry import pick
from migrator.gpu.drivers import nvidia_smi, registry
from migrator.gpu.drivers.base import (
    DriverKind,
    Gpu,
    GpuInstance,
    Holder,
    InUseError,
)
from migrator.gpu.drivers.mig import open_mig
from migrator.gpu.drivers.mps import (
    PERCENTAGE,
    MpsDaemon,
    daemon_folder,
    find_shareable,
    percentage,
)
from migrator.gpu.drivers.nvidia_smi import SmiGpu
from migrator.gpu.drivers.nvml import INSTEAD
from migrator.gpu.journal import Journal, journal_path
from migrator.gpu.layout import BlockedError, Layout, arrangements
from migrator.gpu.partitioner import GpuLock, Partitioner
from migrator.io.folders import state_folder
from migrator.io.processes import process_name

Json = dict[str, Any]

OWNER = "profile"
"""Owner of the daemons and instances that the profiler creates, by which a later run finds them."""
OTHERWISE = (
    "use the packaged profiles, which tenants have unless they name their own (`migrator profiles` "
    "lists them)"
)
"""Suggestion if the GPU cannot be measured."""
_PAUSE_S = 0.05
_END_S = 10.0
"""Seconds for the MPS daemon to exit, and for processes to leave an instance."""


@dataclass(frozen=True)
class GpuShare:
    """A part of a GPU, with the environment of a process that runs on it."""

    sms: int
    memory_gib: float | None
    """Memory of an instance of this size; None if it is not published."""
    environment: Mapping[str, str] = field(default_factory=dict)


class Driver(ABC):
    """Divides a GPU into shares."""

    name: ClassVar[str]
    coexist: ClassVar[bool] = True
    """Whether shares of all sizes can be open at once, and the GPU can be used without shares."""
    alike: ClassVar[bool] = False
    """Whether shares of all sizes are the same, so that one process measures them all."""
    device = "cuda"
    """torch's device: "cuda" or "cpu"."""
    description: str
    """Description of the division, for the provenance."""

    def __init__(self, board: Board, index: int, gpu_name: str, driver_version: str | None) -> None:
        self.board, self.index = board, index
        self.about: Json = {"gpu": gpu_name, "driver_version": driver_version}
        """The hardware and its driver, the same in every run."""
        self.reconfigurations: list[Json] = []
        """Seconds to create and destroy each instance since the list was last emptied."""

    @classmethod
    @abstractmethod
    def find(cls, index: int, board: Board | None = None) -> Self:
        """The driver of a GPU. Raises InputError if it cannot divide it."""

    @abstractmethod
    def open(self) -> AbstractContextManager[None]:
        """Prepare for the first share, and always clean up."""

    @abstractmethod
    def share(self, sms: int) -> AbstractContextManager[GpuShare]:
        """A share with this number of SMs."""

    @abstractmethod
    def whole(self) -> GpuShare:
        """The undivided GPU, for work without shares."""

    def readings(self) -> Json:
        """Current clocks, temperature and power; empty without nvidia-smi."""
        if self.device == "cuda":
            with suppress(InputError):
                return {**nvidia_smi.readings(self.index)}
        return {}

    def instances(self) -> tuple[GpuInstance, ...]:
        """The instances on the GPU; none where MIG does not divide it."""
        return ()

    def processes(self) -> tuple[Holder, ...]:
        """The processes that compute on the GPU."""
        return ()

    def left_behind(self) -> str | None:
        """What of this driver still runs after it was closed; None if nothing does."""
        return None

    def has_room(self, sizes: Sequence[int]) -> bool:
        """Whether instances with these numbers of SMs fit beside those that are there."""
        del sizes
        return True

    def memory_gib(self, sms: int) -> float | None:
        """The smallest memory of an instance with this number of SMs."""
        profiles = [profile for profile in self.board.plain_profiles.values() if profile.sms == sms]
        return min((profile.memory_gib for profile in profiles if profile.memory_gib), default=None)


class Cpu(Driver):
    """No GPU: a process with one thread stands for every share."""

    name = "cpu"
    alike = True
    device = "cpu"
    description = "one CPU thread in place of every share"

    @classmethod
    def find(cls, index: int, board: Board | None = None) -> Self:
        """The CPU, which stands for any board."""
        if board is None:
            raise InputError("--driver: cpu has no sizes of its own; name a board")
        return cls(board, index, "CPU", None)

    @contextmanager
    def open(self) -> Iterator[None]:
        yield

    @contextmanager
    def share(self, sms: int) -> Iterator[GpuShare]:
        """An ordinary process. The number of SMs has no effect."""
        yield GpuShare(sms, self.memory_gib(sms))

    def whole(self) -> GpuShare:
        """The whole CPU, without a memory limit."""
        return GpuShare(self.board.sms, None)


class Mps(Driver):
    """Shares as MPS percentages. Their sum may exceed the GPU, because they are measured in turn.

    The daemon's folder is the same in every run, so that a run stops the daemon of a killed one.
    """

    name = "mps"
    description = "MPS shares of the SMs that MIG instances have"

    def __init__(self, gpu: SmiGpu, board: Board) -> None:
        super().__init__(board, gpu.index, gpu.name, gpu.driver_version)
        self._gpu, self._sms = gpu, board.sms
        self._client: dict[str, str] = {}

    @classmethod
    def find(cls, index: int, board: Board | None = None) -> Self:
        """The GPU with this index, if its board has MIG instance sizes."""
        gpu = find_shareable(index, otherwise=OTHERWISE)
        board = nvidia_smi.find_board(gpu.name, gpu.memory_mib)
        if board is None:
            raise InputError(
                f"--gpu: {gpu.name} with {gpu.memory_mib / 1024:.0f} GiB is no board that is known "
                "to have MIG instances (`migrator boards` lists them); use another GPU"
            )
        return cls(gpu, board)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Run a daemon in folders of its own, and prevent other changes to the GPU."""
        daemon = self._daemon()
        lock = GpuLock(state_folder(), self._gpu.uuid)
        with ExitStack() as stack:
            lock.acquire()
            stack.callback(lock.release)
            stack.callback(daemon.quit)
            daemon.quit()  # the daemon of a killed run may still run
            self._sms = nvidia_smi.device_sms(self._gpu.visible) or self.board.sms
            daemon.start()
            self._client = daemon.environment
            yield

    @contextmanager
    def share(self, sms: int) -> Iterator[GpuShare]:
        """A share by percentage. Processes need nothing else, and there is nothing to remove."""
        part = {PERCENTAGE: percentage(sms, self._sms)}
        yield GpuShare(sms, self.memory_gib(sms), {**self._client, **part})

    def whole(self) -> GpuShare:
        """The whole GPU without MPS, which needs the daemon's folder in the environment."""
        return GpuShare(self._sms, None, self._gpu.visible)

    def processes(self) -> tuple[Holder, ...]:
        """Those that nvidia-smi lists."""
        pids = nvidia_smi.compute_processes(self._gpu.uuid)
        return tuple(Holder(pid, process_name(pid)) for pid in pids)

    def left_behind(self) -> str | None:
        """The daemon, if it has not quit."""
        pid = self._daemon().running()
        return None if pid is None else f"the MPS daemon (process {pid}) still runs"

    def _daemon(self) -> MpsDaemon:
        folder = daemon_folder(state_folder(), OWNER, self._gpu)
        return MpsDaemon(folder, self._gpu.visible, _END_S)


class Mig(Driver):
    """Shares as MIG instances, recorded in the journal."""

    name = "mig"
    coexist = False
    description = "MIG instances"

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(gpu.board, gpu.index, gpu.name, gpu.driver_version)
        self._partitioner: Partitioner | None = None

    @classmethod
    def find(cls, index: int, board: Board | None = None) -> Self:
        """The GPU with this index, if MIG mode is on."""
        del board
        try:
            with registry.open_driver(DriverKind.MIG, index, state=state_folder()) as driver:
                gpu = driver.gpu()
        except InputError as error:
            # An emulated GPU cannot be measured, so it is not suggested.
            raise InputError(str(error).replace(INSTEAD, OTHERWISE)) from error
        if not gpu.divides:
            raise InputError(
                f"--driver: MIG mode of GPU {index} is off; switch it on with `sudo nvidia-smi "
                f"-i {index} -mig 1`, or measure shares of the same sizes with --driver mps"
            )
        return cls(gpu)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Prevent other changes to the GPU, and first remove the instances of a killed run."""
        state = state_folder()
        with (
            registry.open_driver(self.name, self.index, state=state) as driver,
            Journal(journal_path(state)) as journal,
        ):
            partitioner = Partitioner(driver, journal, OWNER)
            with partitioner.locked():
                self._clear(partitioner)
                self._partitioner = partitioner
                try:
                    yield
                finally:
                    self._partitioner = None
                    self._clear(partitioner)

    @contextmanager
    def share(self, sms: int) -> Iterator[GpuShare]:
        """An instance of this size at any start. Raises GpuError that names the blocker."""
        assert self._partitioner is not None, "the driver is not open"
        partitioner = self._partitioner
        place = self._free_place(partitioner, self._profile(sms))
        began_s = time.monotonic()
        instance = partitioner.create(place)
        create_s = time.monotonic() - began_s
        try:
            environment = partitioner.driver.environment(instance)
            yield GpuShare(sms, self.memory_gib(sms), environment)
        finally:
            destroy_s = self._destroy(partitioner, instance)
            if destroy_s is not None:
                took = {"sms": sms, "create_s": create_s, "destroy_s": destroy_s}
                self.reconfigurations.append(took)

    def whole(self) -> GpuShare:
        """Raise InputError, because in MIG mode all work runs on instances."""
        raise InputError("--driver: in MIG mode nothing runs without instances; use --driver mps")

    def instances(self) -> tuple[GpuInstance, ...]:
        """All instances, also those of other programs."""
        with open_mig(self.index) as driver:
            return driver.instances()

    def processes(self) -> tuple[Holder, ...]:
        """On an instance or on the whole GPU."""
        with open_mig(self.index) as driver:
            on_instances = {
                holder for instance in driver.instances() for holder in instance.holders
            }
            return tuple(sorted(on_instances | set(driver.holders())))

    def has_room(self, sizes: Sequence[int]) -> bool:
        """Whether instances with these numbers of SMs fit beside those that are there."""
        there = tuple(instance.place for instance in self.instances())
        wanted = Counter(self._profile(sms).name for sms in sizes)
        try:
            next(arrangements(self.board, Layout(there, wanted)))
        except InputError:
            return False
        return True

    def _profile(self, sms: int) -> MigProfile:
        for profile in self.board.plain_profiles.values():
            if profile.sms == sms:
                return profile
        sizes = ", ".join(str(profile.sms) for profile in self.board.plain_profiles.values())
        raise InputError(
            f"gpu: {self.board.name} has no instance of {sms} SMs; this GPU has sizes of {sizes}"
        )

    def _free_place(self, partitioner: Partitioner, profile: MigProfile) -> Place:
        """A place for such an instance beside all existing ones."""
        there = {instance.place for instance in partitioner.driver.instances()}
        ours = tuple(instance.place for instance in partitioner.ours())
        reasons: list[str] = []
        for place in (Place(start, profile.name) for start in profile.starts):
            if place in there:
                reasons.append(f"{place} is there already (`migrator gpu show` names its owner)")
                continue
            try:
                partitioner.plan(Layout((*ours, place)))
            except BlockedError as error:
                reasons.append(str(error))
            else:
                return place
        raise BlockedError(
            f"GPU {self.index} has no room for {profile.name}, which is to be measured: "
            f"{min(reasons, key=len)}"
        )

    def _clear(self, partitioner: Partitioner) -> None:
        """Destroy all instances of the profiler on the GPU."""
        partitioner.recover()
        for instance in partitioner.ours():
            self._destroy(partitioner, instance)

    def _destroy(self, partitioner: Partitioner, instance: GpuInstance) -> float | None:
        """Destroy an instance once it is unused, and return the seconds it took.

        None if another program had removed it.
        """
        until_s = time.monotonic() + _END_S
        while any(own.place == instance.place for own in partitioner.ours()):
            began_s = time.monotonic()
            try:
                partitioner.destroy(instance.place)
                return time.monotonic() - began_s
            except (BlockedError, InUseError):
                if time.monotonic() > until_s:
                    raise
                time.sleep(_PAUSE_S)  # an ended process stays listed for a moment
        return None


DRIVERS: dict[str, type[Driver]] = {kind.name: kind for kind in (Mps, Mig, Cpu)}


def driver(name: str, gpu: int, board: Board | None) -> Driver:
    """The driver called `name` on this GPU. Raises InputError if it cannot be used here."""
    chosen = pick("--driver", name, DRIVERS).find(gpu, board)
    if board is not None and board.name != chosen.board.name:
        raise InputError(
            f"gpu: the scenario is of a {board.name}, GPU {gpu} is a {chosen.board.name}; write "
            f"gpu: {chosen.board.name}, or run this on the other machine"
        )
    return chosen
