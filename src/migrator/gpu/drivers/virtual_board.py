"""MIG's placement rules without MIG: the board of MPS shares, and the emulated driver.

The emulated driver is for trials, tests and machines without a GPU.

Several processes share the state of a board in a file. Every change replaces the file under a lock,
so that a process killed at any point leaves the state before the change or after it. The file is
not synced to the disk, because instances do not survive a reboot. GPU instances and compute
instances are created and destroyed separately, as on a real GPU, so a crash leaves the same
incomplete instance.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from migrator.core import catalogue
from migrator.core.catalogue import Board, Place, conflict
from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.gpu.drivers.base import (
    DriverEntry,
    DriverKind,
    DriverOptions,
    Gpu,
    GpuInstance,
    HalfMadeError,
    Holder,
    InUseError,
    RefusedError,
)
from migrator.io.atomic_write import replace_file
from migrator.io.locks import hold_lock
from migrator.io.processes import Process, boot_id

INSTANCE, INSTANCE_FILE = "MIGRATOR_INSTANCE", "MIGRATOR_INSTANCE_FILE"
"""Environment variables of a worker: the UUID of its instance, and the file to register in."""
STANDBY = "MIGRATOR_STANDBY"
"""Environment variable of a worker that may wait on a share: it does not prevent its removal."""
PACE = "MIGRATOR_EMULATED_PACE"
"""Environment variable: factor on the duration of emulated operations; 0 disables the delays."""
_VERSION = 1
DEFAULT_BOARD = "A100-40GB"
CREATE_S, DESTROY_S = (0.16, 0.24), (0.20, 0.26)
"""Range of seconds to create or destroy an instance.

Published for an A100, the GPU instance and its compute instance together.
"""
_NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class VirtualInstance:
    """An instance on a virtual board."""

    place: Place
    number: int
    uuid: str | None
    """None while its compute instance is missing."""
    users: tuple[Process, ...] = ()
    """Processes that registered. Some may have ended since."""

    def as_gpu_instance(self) -> GpuInstance:
        """The instance as drivers report it, used by the registered processes that still run."""
        holders = tuple(Holder(user.pid, user.name) for user in self.users if user.alive)
        return GpuInstance(self.place, self.number, self.uuid, holders)


@dataclass(frozen=True)
class MemoryUse:
    """What a process has taken of a GPU's memory, or of that of its instance."""

    process: Process
    uuid: str
    """Of its instance."""
    mib: float


@dataclass(frozen=True)
class BoardState:
    """All instances on one virtual board."""

    board: str
    boot_id: str
    instances: tuple[VirtualInstance, ...] = ()
    standbys: tuple[Process, ...] = ()
    """Processes on shares that may be removed and created again. Some may have ended since."""
    memory: tuple[MemoryUse, ...] = ()
    """Of processes on an emulated GPU. Some may have ended since."""

    def with_instance(self, made: VirtualInstance) -> BoardState:
        """The state with this instance added, or replacing the one with the same number."""
        others = [instance for instance in self.instances if instance.number != made.number]
        return replace(
            self, instances=tuple(sorted([*others, made], key=lambda other: other.place))
        )

    def without(self, number: int) -> BoardState:
        kept = tuple(instance for instance in self.instances if instance.number != number)
        return replace(self, instances=kept)

    def find(self, instance: GpuInstance) -> VirtualInstance | None:
        """The same instance; not a later one with the same number."""
        key = instance.number, instance.place
        return next((own for own in self.instances if (own.number, own.place) == key), None)

    def get(self, instance: GpuInstance) -> VirtualInstance:
        """The same instance. Raises GpuError if it is gone."""
        own = self.find(instance)
        if own is None:
            raise GpuError(f"{instance.place} is not there any more; list the instances again")
        return own


class BoardFile:
    """A virtual board's file and its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> BoardState | None:
        """The current state; None if none was ever written."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self.path, error) from error
        try:
            return _decode(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{self.path}: is damaged and cannot be read; remove it to begin with an empty GPU"
            ) from error

    def locked(self) -> AbstractContextManager[None]:
        return hold_state_lock(self.path.with_suffix(".lock"))

    def replace(self, state: BoardState) -> None:
        """Write `state`. The caller holds the lock."""
        content = json.dumps({"version": _VERSION, **asdict(state)})
        try:
            # One name is enough under the lock: a killed writer leaves at most one file.
            with replace_file(self.path, tag="new", sync=False) as draft:
                draft.write_text(content, encoding="utf-8")
        except OSError as error:
            raise _unusable(self.path, error) from error


@contextmanager
def hold_state_lock(path: Path) -> Iterator[None]:
    """Hold a lock file. Not reentrant. Its folder is created if it is missing, the state folder
    around it is not: one that was moved away could not be moved back."""
    with ExitStack() as held:
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            held.enter_context(hold_lock(path))
        except OSError as error:
            raise _unusable(path, error) from error
        yield


class VirtualBoard:
    """Instances of one GPU, in a file that several processes use at the same time."""

    def __init__(
        self, path: Path, board: Board, gpu_uuid: str, *, boot: str | None = None, kind: str = "MIG"
    ) -> None:
        """`boot`: the boot id, by default the machine's. `kind`: the prefix of the UUIDs."""
        self.board, self.boot_id = board, boot or boot_id()
        self._file, self._gpu_uuid, self._kind = BoardFile(path), gpu_uuid, kind
        self._state()  # raises for another board; the first create writes the file

    def instances(self) -> tuple[GpuInstance, ...]:
        return tuple(instance.as_gpu_instance() for instance in self._state().instances)

    def create(
        self,
        place: Place,
        *,
        meanwhile: Callable[[], object],
        remove: Callable[[GpuInstance], object],
    ) -> GpuInstance:
        """Create a GPU instance, call `meanwhile`, then create its compute instance.

        If a step fails, call `remove` on the instance.
        """
        half = self.create_gpu_instance(place)
        try:
            meanwhile()
            return self.create_compute_instance(half)
        except BaseException as error:
            try:
                remove(half)
            except MigratorError as second:
                raise HalfMadeError(
                    f"{place} was not finished and could not be removed either: {second}",
                    half.number,
                ) from error
            raise

    def create_gpu_instance(self, place: Place) -> GpuInstance:
        """Reserve the slices, which cannot be used yet."""
        with self._file.locked():
            state = self._state()
            why = conflict(self.board, [instance.place for instance in state.instances], place)
            if why is not None:
                raise RefusedError(
                    f"there is no room for {place}: {why}; destroy what is in the way, or choose "
                    "another place"
                )
            taken = {instance.number for instance in state.instances}
            number = next(unused for unused in count(1) if unused not in taken)
            made = VirtualInstance(place, number, None)
            self._file.replace(state.with_instance(made))
        return made.as_gpu_instance()

    def create_compute_instance(self, instance: GpuInstance) -> GpuInstance:
        """Make the instance usable.

        The same profile at the same start always gets the same UUID.
        """
        with self._file.locked():
            state = self._state()
            made = replace(state.get(instance), uuid=self._uuid(instance.place))
            self._file.replace(state.with_instance(made))
        return made.as_gpu_instance()

    def destroy_compute_instance(self, instance: GpuInstance) -> None:
        """Destroy the compute instance; no error if it is gone. InUseError while a user runs."""
        with self._file.locked():
            state = self._state()
            made = state.find(instance)
            if made is None:
                return
            users = made.as_gpu_instance().holders
            if users:
                raise InUseError(
                    f"{instance.place} is in use by {', '.join(map(str, users))}; end that first"
                )
            self._file.replace(state.with_instance(replace(made, uuid=None, users=())))

    def destroy_gpu_instance(self, instance: GpuInstance) -> None:
        """Free the slices. Raises InUseError while the instance has its compute instance."""
        with self._file.locked():
            state = self._state()
            made = state.find(instance)
            if made is None:
                return
            if made.uuid is not None:
                raise InUseError(
                    f"{instance.place} still has a compute instance; destroy that first"
                )
            self._file.replace(state.without(instance.number))

    def environment(self, instance: GpuInstance) -> dict[str, str]:
        """Variables that `register_use` needs in a worker.

        Raises GpuError if the instance is gone or incomplete.
        """
        if self._state().get(instance).uuid is None:
            raise GpuError(
                f"{instance.place} has no compute instance, so nothing can run there; destroy it"
            )
        return self._environment(instance.place)

    def environment_ahead(self, place: Place) -> dict[str, str]:
        """The same for a worker that may wait for its share, which need not exist."""
        return {**self._environment(place), STANDBY: "1"}

    def _environment(self, place: Place) -> dict[str, str]:
        return {INSTANCE: self._uuid(place), INSTANCE_FILE: str(self._file.path.absolute())}

    def standbys(self) -> tuple[int, ...]:
        """Running processes that serve or wait on shares, whether these exist or not."""
        return tuple(standby.pid for standby in self._state().standbys if standby.alive)

    def _uuid(self, place: Place) -> str:
        name = f"{self._gpu_uuid}/{place.profile}/{place.start}"
        return f"{self._kind}-{uuid5(NAMESPACE_URL, name)}"

    def _state(self) -> BoardState:
        """The state in this boot. Instances of another boot are gone."""
        state = self._file.read() or BoardState(self.board.name, self.boot_id)
        if state.board != self.board.name:
            raise InputError(
                f"gpu: {self._file.path} is of a {state.board}, not of a {self.board.name}; name "
                f"{state.board}, or remove that file to start anew without its instances"
            )
        return state if state.boot_id == self.boot_id else BoardState(state.board, self.boot_id)


@contextmanager
def register_use(
    environment: Mapping[str, str] = os.environ, name: str | None = None
) -> Iterator[None]:
    """Register this process as a user of the instance in its environment, to prevent its removal.

    Only virtual boards need it. On a real GPU, where CUDA reports processes, it does nothing.
    """
    if INSTANCE not in environment:
        yield
        return
    file, uuid = BoardFile(Path(environment[INSTANCE_FILE])), environment[INSTANCE]
    me = Process.of(os.getpid(), name)
    if STANDBY in environment:
        with file.locked():
            shares = file.read()
            if shares is None:
                raise GpuError(f"{file.path}: no share was ever created here")
            others = tuple(standby for standby in shares.standbys if standby.alive)
            file.replace(replace(shares, standbys=(*others, me)))
        yield  # a process that has ended is left out by the next one
        return
    with file.locked():
        state, made = _find_by_uuid(file, uuid)
        users = tuple(user for user in made.users if user != me and user.alive)
        file.replace(state.with_instance(replace(made, users=(*users, me))))
    try:
        yield
    finally:
        with suppress(GpuError), file.locked():
            state, made = _find_by_uuid(file, uuid)
            users = tuple(user for user in made.users if user != me)
            file.replace(state.with_instance(replace(made, users=users)))


def take_memory(least_mib: float, mib: float, environment: Mapping[str, str] = os.environ) -> None:
    """Take memory of the emulated GPU until this process ends: `mib`, or what is left.

    GpuError if that is less than `least_mib`, as torch would say on a real GPU. Instances have
    memory of their own, and shares the GPU's. Does nothing without an emulated GPU in the
    environment.
    """
    if INSTANCE not in environment or not mib:
        return
    file, uuid = BoardFile(Path(environment[INSTANCE_FILE])), environment[INSTANCE]
    with file.locked():
        state = file.read()
        if state is None:
            raise GpuError(f"{file.path}: no instance was ever created here")
        alive = tuple(use for use in state.memory if use.process.alive)
        board = catalogue.board(state.board)
        if board.is_of_shares:
            limit_mib, beside = board.memory_mib_of(board.sizes[-1]), alive
        else:
            place = _find_by_uuid(file, uuid)[1].place
            limit_mib = board.memory_mib_of(board.profile(place.profile).gpcs)
            beside = tuple(use for use in alive if use.uuid == uuid)
        left_mib = limit_mib - sum(use.mib for use in beside)
        if left_mib < least_mib:
            raise GpuError(
                f"out of memory: {least_mib:.0f} MiB are needed and {left_mib:.0f} of "
                f"{limit_mib:.0f} MiB are left; use a smaller batch or a larger instance"
            )
        taken = MemoryUse(Process.of(os.getpid()), uuid, min(mib, left_mib))
        file.replace(replace(state, memory=(*alive, taken)))


def _find_by_uuid(file: BoardFile, uuid: str) -> tuple[BoardState, VirtualInstance]:
    state = file.read()
    for instance in state.instances if state else ():
        if state and instance.uuid == uuid:
            return state, instance
    raise GpuError(f"{uuid}: there is no such instance any more; start the worker on another one")


def _unusable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path}: cannot be used ({error.strerror}); name another state folder in MIGRATOR_STATE"
    )


def _decode(content: dict[str, Any]) -> BoardState:
    """The state that `BoardFile.replace` wrote. Raises KeyError, TypeError or ValueError."""
    if content.pop("version") != _VERSION:
        raise ValueError("of another version")
    instances = [
        VirtualInstance(
            **{
                **entry,
                "place": Place(**entry["place"]),
                "users": tuple(Process(**user) for user in entry["users"]),
            }
        )
        for entry in content["instances"]
    ]
    standbys = tuple(Process(**entry) for entry in content.pop("standbys", ()))
    memory = tuple(
        MemoryUse(**{**entry, "process": Process(**entry["process"])})
        for entry in content.pop("memory", ())
    )
    lists = {"instances": tuple(instances), "standbys": standbys, "memory": memory}
    return BoardState(**{**content, **lists})


class EmulatedDriver:
    """A virtual board on which operations take as long as on a real GPU."""

    name = DriverKind.EMULATED.value

    def __init__(
        self,
        state: Path,
        index: int = 0,
        board: Board | None = None,
        *,
        pace: float = 1.0,
        boot: str | None = None,
    ) -> None:
        """`board` defaults to the previous run's. `pace` scales the delays; 0 disables them."""
        path = state / "emulated" / f"gpu-{index}.json"
        board = board or _remembered(path)
        uuid = f"GPU-{uuid5(NAMESPACE_URL, f'emulated/{board.name}/{index}')}"
        self._virtual = VirtualBoard(path, board, uuid, boot=boot)
        self._gpu = Gpu(
            index=index,
            uuid=uuid,
            name=f"Emulated {board.name}",
            board=board,
            boot_id=self._virtual.boot_id,
            driver_version="emulated",
            divides=True,
            driver=self.name,
        )
        self._pace = pace

    def gpu(self) -> Gpu:
        return self._gpu

    def instances(self) -> tuple[GpuInstance, ...]:
        return self._virtual.instances()

    def create(self, place: Place) -> GpuInstance:
        """Create a GPU instance with its compute instance. An interruption leaves neither."""
        return self._virtual.create(
            place, meanwhile=lambda: self._wait(CREATE_S), remove=self._remove
        )

    def destroy(self, instance: GpuInstance) -> None:
        self._remove(instance, wait=True)

    def environment(self, instance: GpuInstance) -> Mapping[str, str]:
        """Environment variables for `register_use`. They hide a real GPU from the worker."""
        return {**self._virtual.environment(instance), **_NO_GPU}

    def environment_ahead(self, place: Place) -> Mapping[str, str]:
        """The same for a share that may not exist yet."""
        return {**self._virtual.environment_ahead(place), **_NO_GPU}

    def _remove(self, instance: GpuInstance, *, wait: bool = False) -> None:
        self._virtual.destroy_compute_instance(instance)
        if wait:
            self._wait(DESTROY_S)
        self._virtual.destroy_gpu_instance(instance)

    def _wait(self, between_s: tuple[float, float]) -> None:
        time.sleep(self._pace * random.uniform(*between_s))


def _remembered(path: Path) -> Board:
    state = BoardFile(path).read()
    name = state.board if state else DEFAULT_BOARD
    try:
        return catalogue.board(name)
    except InputError as error:
        unknown = f"{path}: is of a {name}, which is unknown; remove it to start anew"
        raise InputError(unknown) from error


def _open(index: int, options: DriverOptions) -> nullcontext[EmulatedDriver]:
    return nullcontext(EmulatedDriver(options.state, index, options.board, pace=_pace()))


def _indices(state: Path) -> tuple[int, ...]:
    """The indices of all emulated GPUs that were ever used, and 0."""
    names = [path.name for path in (state / "emulated").glob("gpu-*.json")]
    numbers = {
        int(match[1]) for match in map(re.compile(r"gpu-(\d+)\.json").fullmatch, names) if match
    }
    return tuple(sorted(numbers | {0}))


def _pace() -> float:
    text = os.environ.get(PACE, "1")
    try:
        pace = float(text)
    except ValueError:
        pace = -1.0
    if not 0 <= pace <= 100:
        raise InputError(f"{PACE}: {text[:50]!r} is not a factor; use a number from 0 to 100")
    return pace


DRIVERS = (DriverEntry(DriverKind.EMULATED, _open, _indices, lambda _: True),)
