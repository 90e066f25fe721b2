"""MIG's rules without MIG: the board beneath the emulated driver and beneath MPS shares.

GPU and compute instances are made and removed one by one, as on a real board, so that whoever is
killed in between leaves the same half-made instance behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from migrator.core.catalogue import Board
from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.gpu.driver import (
    GpuInstance,
    HalfMadeError,
    Holder,
    InUseError,
    Place,
    RefusedError,
)
from migrator.gpu.layout import check_start
from migrator.gpu.processes import Process, boot_id
from migrator.gpu.virtual_state import Made, State, StateFile

INSTANCE, INSTANCE_FILE = "MIGRATOR_INSTANCE", "MIGRATOR_INSTANCE_FILE"
"""What a worker finds in its environment: its instance's UUID, and where it says that it runs."""


def refusal(board: Board, present: Iterable[Place], place: Place) -> str | None:
    """Why there is no room for `place` beside what is there; InputError where it can never be."""
    check_start(board, place)
    profile = board.profile(place.profile)
    there = [(each, board.profile(each.profile)) for each in present]
    for other, its in there:
        if (
            place.start < other.start + its.memory_slices
            and other.start < place.start + profile.memory_slices
        ):
            return f"it overlaps {other}"
    if sum(its.gpcs for _, its in there) + profile.gpcs > board.compute_slices:
        return f"all {board.compute_slices} compute slices together would not do"
    if sum(other.profile == place.profile for other, _ in there) >= profile.max_instances:
        return f"a {board.name} has {profile.max_instances} of that profile at most"
    return None


def left_half_made(half: GpuInstance, error: MigratorError) -> HalfMadeError:
    """What is told of an instance that could be neither finished nor removed."""
    words = f"{half.place} was not finished and could not be removed either: {error}"
    return HalfMadeError(words, half.number)


class VirtualBoard:
    """One GPU's instances, kept in a file that any number of processes use at once."""

    def __init__(
        self, path: Path, board: Board, gpu_uuid: str, *, boot: str | None = None, kind: str = "MIG"
    ) -> None:
        """`boot`: the boot id, by default the machine's; `kind`: how the UUIDs begin."""
        self.board, self.boot_id = board, boot or boot_id()
        self._file, self._gpu_uuid, self._kind = StateFile(path), gpu_uuid, kind
        self._state()  # refuses another board; the file is made by the first create

    def instances(self) -> tuple[GpuInstance, ...]:
        """Everything on the board, by start."""
        return tuple(_seen(each) for each in self._state().instances)

    def create_gpu_instance(self, place: Place, *, limited: bool = False) -> GpuInstance:
        """Take the slices; nobody can compute there yet. `limited`: an MPS share's memory."""
        with self._file.locked():
            state = self._state()
            why = refusal(self.board, [each.place for each in state.instances], place)
            if why is not None:
                raise RefusedError(
                    f"there is no room for {place}: {why}; destroy what is in the way, or choose "
                    "another place"
                )
            taken = {each.number for each in state.instances}
            number = next(each for each in count(1) if each not in taken)
            made = Made(place, number, None, limited=limited)
            self._file.replace(state.with_instance(made))
        return _seen(made)

    def create_compute_instance(self, instance: GpuInstance) -> GpuInstance:
        """Make it usable; the same profile at the same start always has the same UUID."""
        with self._file.locked():
            state = self._state()
            name = f"{self._gpu_uuid}/{instance.place.profile}/{instance.place.start}"
            uuid = f"{self._kind}-{uuid5(NAMESPACE_URL, name)}"
            made = replace(_there(state, instance), uuid=uuid)
            self._file.replace(state.with_instance(made))
        return _seen(made)

    def destroy_compute_instance(self, instance: GpuInstance) -> None:
        """InUseError while a registered process lives; what is gone already is fine."""
        with self._file.locked():
            state = self._state()
            made = _find(state, instance)
            if made is None:
                return
            users = _seen(made).holders
            if users:
                raise InUseError(
                    f"{instance.place} is in use by {', '.join(map(str, users))}; end that first"
                )
            self._file.replace(state.with_instance(replace(made, uuid=None, users=())))

    def destroy_gpu_instance(self, instance: GpuInstance) -> None:
        """Give the slices back; InUseError while it has its compute instance."""
        with self._file.locked():
            state = self._state()
            made = _find(state, instance)
            if made is None:
                return
            if made.uuid is not None:
                raise InUseError(
                    f"{instance.place} still has a compute instance; destroy that first"
                )
            self._file.replace(state.without(instance.number))

    def known(self, instance: GpuInstance) -> dict[str, str]:
        """What a worker's environment needs for `held`; GpuError where it is gone or half-made."""
        uuid = _there(self._state(), instance).uuid
        if uuid is None:
            raise GpuError(
                f"{instance.place} has no compute instance, so nobody can run there; destroy it"
            )
        return {INSTANCE: uuid, INSTANCE_FILE: str(self._file.path.absolute())}

    def limited(self, instance: GpuInstance) -> bool:
        """Whether it was made with a limit on its memory."""
        return _there(self._state(), instance).limited

    def _state(self) -> State:
        """What is on it in this boot: instances of another one are gone."""
        state = self._file.read() or State(self.board.name, self.boot_id)
        if state.board != self.board.name:
            raise InputError(
                f"gpu: {self._file.path} is of a {state.board}, not of a {self.board.name}; name "
                f"{state.board}, or remove that file to start anew without its instances"
            )
        return state if state.boot_id == self.boot_id else State(state.board, self.boot_id)


@contextmanager
def held(environment: Mapping[str, str] = os.environ, name: str | None = None) -> Iterator[None]:
    """Say that this process uses the instance its environment names, so that nobody removes it.

    Only virtual boards need to be told; elsewhere, where CUDA itself tells, nothing happens.
    """
    if INSTANCE not in environment:
        yield
        return
    file, uuid = StateFile(Path(environment[INSTANCE_FILE])), environment[INSTANCE]
    me = Process.of(os.getpid(), name)
    with file.locked():
        _register(file, uuid, me)
    try:
        yield
    finally:
        with suppress(GpuError), file.locked():
            state, made = _by_uuid(file, uuid)
            users = tuple(each for each in made.users if each != me)
            file.replace(state.with_instance(replace(made, users=users)))


def _register(file: StateFile, uuid: str, me: Process) -> None:
    state, made = _by_uuid(file, uuid)
    users = tuple(each for each in made.users if each != me and each.alive)
    file.replace(state.with_instance(replace(made, users=(*users, me))))


def _by_uuid(file: StateFile, uuid: str) -> tuple[State, Made]:
    state = file.read()
    for each in state.instances if state else ():
        if state and each.uuid == uuid:
            return state, each
    raise GpuError(f"{uuid}: there is no such instance any more; start the worker on another one")


def _find(state: State, instance: GpuInstance) -> Made | None:
    """That one, and not another that has its number by now."""
    for each in state.instances:
        if each.number == instance.number and each.place == instance.place:
            return each
    return None


def _there(state: State, instance: GpuInstance) -> Made:
    made = _find(state, instance)
    if made is None:
        raise GpuError(f"{instance.place} is not there any more; look again what is")
    return made


def _seen(made: Made) -> GpuInstance:
    holders = tuple(Holder(each.pid, each.name) for each in made.users if each.alive)
    return GpuInstance(made.place, made.number, made.uuid, holders)
