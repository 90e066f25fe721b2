"""Machines to be cruel to: a GPU that others use too, that fails, and that a kill can strike.

A world lives in a folder, outlives every process, and knows what is really on its board.
`point` is called before everything that changes the board: where a process may be killed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from migrator.core.catalogue import Board, Place, board
from migrator.core.errors import GpuError, InputError
from migrator.gpu.drivers import mig
from migrator.gpu.drivers.base import (
    GpuDriver,
    GpuInstance,
    NotPermittedError,
    RefusedError,
    TransientError,
)
from migrator.gpu.drivers.virtual_board import BoardFile, BoardState, EmulatedDriver
from migrator.io.processes import Process
from support.fake_nvml.library import installed
from support.fake_nvml.machine import CHANGING, FakeNvml, FaultKind

Point = Callable[[str], None]


@dataclass(frozen=True)
class Seen:
    """An instance that is really there; `identity` tells it from every other life, if anything."""

    place: Place
    identity: int
    whole: bool
    held: bool


class MigWorld:
    """MIG through the real binding, on a fake NVML."""

    def __init__(self, folder: Path, board_name: str) -> None:
        self.board = board(board_name)
        self._folder = folder / "nvml"
        self._fake = FakeNvml(self._folder, [board_name])

    @contextmanager
    def opened(self, point: Point) -> Iterator[GpuDriver]:
        """The `mig` driver, as one process has it."""

        def before(name: str) -> None:
            if name in CHANGING:
                point(name)

        with (
            installed(self._folder, before=before) as fake,
            mig.open_mig(0, boot_id=fake.boot_id, pause=lambda _: None) as driver,
        ):
            yield driver

    def seen(self) -> list[Seen]:
        """What is really on the board, by serial numbers of the fake, never given twice."""
        serials = {
            instance.number: instance.serial
            for instance in self._fake.store.now().gpus[0].instances
        }
        return [
            Seen(
                instance.place,
                serials[instance.number],
                bool(instance.uuid),
                bool(instance.holders),
            )
            for instance in self._fake.instances()
        ]

    def instances(self) -> tuple[GpuInstance, ...]:
        """The same as a driver would tell it, read past NVML."""
        return self._fake.instances()

    def foreign(self, place: Place, whole: bool) -> bool:
        """Another program creates an instance, as with nvidia-smi; False without room."""
        try:
            self._fake.foreign(place.start, place.profile, whole=whole)
        except InputError:
            return False
        return True

    def remove(self, place: Place) -> None:
        """Another program removes an instance of any owner."""
        self._fake.remove(place.start)

    def hold(self, place: Place) -> None:
        """A process begins to use an instance: this one, as the fake does not ask for CUDA."""
        self._fake.hold(place.start, os.getpid())

    def release(self) -> None:
        """All processes that use an instance end."""
        self._fake.release()

    def reboot(self) -> None:
        """Ampere keeps MIG mode; elsewhere the operator switches it on again (nvidia-smi -mig 1).

        The driver itself never does.
        """
        self._fake.reboot()
        self._fake.mig(True)

    def fault(self, draw: random.Random) -> None:
        """One that strikes creates or destroys, some more often than any retry."""
        kind = draw.choice(
            [
                FaultKind.IN_USE,
                FaultKind.TRANSIENT_DESTROY,
                FaultKind.TRANSIENT_DESTROY,
                FaultKind.INSUFFICIENT_RESOURCES,
                FaultKind.COMPUTE_REFUSED,
                FaultKind.NO_PERMISSION,
                FaultKind.GPU_LOST,
            ]
        )
        self._fake.fault(kind, draw.choice([1, 1, 2, 3, 12]), after=draw.choice([0, 0, 1, 2, 20]))

    def outlast(self, attempts: int) -> None:
        """The next destroys of a GPU instance fail so often, its compute instance gone."""
        self._fake.fault(FaultKind.TRANSIENT_DESTROY, attempts)

    def mend(self) -> None:
        """No fault is left."""
        if self._fake.faults():
            self._fake.mend()


class EmulatedWorld:
    """The emulated driver; faults live in the process that asks for them."""

    def __init__(self, folder: Path, board_name: str) -> None:
        self.board = board(board_name)
        self._folder, self._boot = folder, folder / "boot"
        if not self._boot.exists():
            self._boot.write_text("boot-1")
        self._faults: list[GpuError] = []
        self._holder = os.getpid()

    @contextmanager
    def opened(self, point: Point) -> Iterator[GpuDriver]:
        """Killed before any change of its file."""
        really = BoardFile.replace

        def replaced(file: BoardFile, state: BoardState) -> None:
            point("virtual board")
            really(file, state)

        with mock.patch.object(BoardFile, "replace", replaced):
            yield self._driver(self._faults)

    def seen(self) -> list[Seen]:
        """Numbers are given again here: it knows an instance by number and place."""
        return [
            Seen(instance.place, instance.number, bool(instance.uuid), bool(instance.holders))
            for instance in self.instances()
        ]

    def instances(self) -> tuple[GpuInstance, ...]:
        """Read past the driver."""
        return self._driver([]).virtual.instances()

    def foreign(self, place: Place, whole: bool) -> bool:
        """Another program on the same board."""
        try:
            half = self._driver([]).virtual.create_gpu_instance(place)
        except RefusedError:
            return False
        if whole:
            self._driver([]).virtual.create_compute_instance(half)
        return True

    def remove(self, place: Place) -> None:
        """Another program, with force."""
        state = self._file.read()
        assert state
        (number,) = (instance.number for instance in state.instances if instance.place == place)
        self._file.replace(state.without(number))

    def hold(self, place: Place) -> None:
        """By the process that made the world: it lives longer than its children."""
        state = self._file.read()
        assert state
        users = (Process.of(self._holder),)
        for instance in state.instances:
            if instance.place == place:
                self._file.replace(state.with_instance(replace(instance, users=users)))

    def release(self) -> None:
        """All of them."""
        state = self._file.read()
        assert state
        for instance in state.instances:
            state = state.with_instance(replace(instance, users=()))
        self._file.replace(state)

    def reboot(self) -> None:
        """Another boot id: what is in the file counts no more."""
        number = int(self._boot.read_text().removeprefix("boot-"))
        self._boot.write_text(f"boot-{number + 1}")

    def fault(self, draw: random.Random) -> None:
        """The next calls fail, before they have done anything."""
        kind = draw.choice([TransientError, TransientError, RefusedError, NotPermittedError])
        self._faults += [kind("a fault")] * draw.choice([1, 2, 3, 12])

    def outlast(self, attempts: int) -> None:
        """Its faults come before anything is done, so that nothing is left by halves."""

    def mend(self) -> None:
        """No fault is left."""
        self._faults.clear()

    @property
    def _file(self) -> BoardFile:
        return BoardFile(self._folder / "emulated" / "gpu-0.json")

    def _driver(self, faults: list[GpuError]) -> _Failing:
        return _Failing(self._folder, self.board, self._boot.read_text(), faults)


class _Failing(EmulatedDriver):
    """Fails as often as there are faults, before it has done anything."""

    def __init__(self, folder: Path, kind: Board, boot: str, faults: list[GpuError]) -> None:
        super().__init__(folder, 0, kind, pace=0.0, boot=boot)
        self.virtual, self._faults = self._virtual, faults

    def create(self, place: Place) -> GpuInstance:
        if self._faults:
            raise self._faults.pop()
        return super().create(place)

    def destroy(self, instance: GpuInstance) -> None:
        if self._faults:
            raise self._faults.pop()
        super().destroy(instance)


World = MigWorld | EmulatedWorld
"""A machine with one GPU."""
