"""A machine to be cruel to: a GPU that others use too, that fails, and that a kill can strike.

It lives in a folder, outlives every process, and knows what is really on its board. `point` is
called before everything that changes the board: where a process may be killed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from migrator.core.catalogue import Place, board
from migrator.core.errors import InputError
from migrator.gpu.drivers import mig
from migrator.gpu.drivers.base import GpuDriver, GpuInstance
from support.fake_nvml.library import installed
from support.fake_nvml.machine import CHANGING, FakeNvml, FaultKind

Point = Callable[[str], None]


@dataclass(frozen=True)
class Seen:
    """An instance that is really there; `identity` tells it from every other one."""

    place: Place
    identity: int
    whole: bool
    held: bool


class World:
    """An A100 in MIG mode: the real binding on a fake NVML."""

    def __init__(self, folder: Path) -> None:
        self.board = board("A100-40GB")
        self._folder = folder / "nvml"
        self._fake = FakeNvml(self._folder, [self.board.name])

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
        """An A100 keeps its MIG mode."""
        self._fake.reboot()

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
