"""Shares as MIG instances, created for the measurements and always removed afterwards.

Uses `migrator.gpu`, whose journal records the profiler's instances. The next run removes the
instances of a killed one, and instances of other owners are never touched. MIG mode is never
switched. With a fake NVML the CPU computes, and the provenance states it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar, Self

from migrator.core.catalogue import MigProfile
from migrator.core.errors import InputError
from migrator.core.placement import Place
from migrator.gpu.drivers import nvidia_smi, registry
from migrator.gpu.drivers import nvml as nvml_errors
from migrator.gpu.drivers.base import Gpu, GpuInstance, InUseError
from migrator.gpu.drivers.mig import FAKE_NVML, MigDriver
from migrator.gpu.journal.journal import Journal, journal_path
from migrator.gpu.partition.layout import Layout
from migrator.gpu.partition.partitioner import Partitioner
from migrator.gpu.partition.steps import BlockedError
from migrator.io.state_folder import state_folder
from migrator.profiling.shares import OTHERWISE, OWNER, Json, Reconfiguration, Share, memory_gib

_PAUSE_S = 0.05


class Mig:
    """Divides one GPU that is in MIG mode."""

    name: ClassVar[str] = "mig"
    coexist: ClassVar[bool] = False

    def __init__(self, gpu: Gpu, *, end_s: float = 10.0) -> None:
        """`end_s` is the time in seconds for processes to leave an instance."""
        self.board, self._gpu, self._end_s = gpu.board, gpu, end_s
        self._fake = bool(os.environ.get(FAKE_NVML))
        self.device = "cpu" if self._fake else "cuda"
        self.words = (
            "instances of a fake GPU, one CPU thread in place of each"
            if self._fake
            else "MIG instances"
        )
        self.reconfigured: list[Reconfiguration] = []
        self._partitioner: Partitioner | None = None

    @classmethod
    def found(cls, index: int) -> Self:
        """The GPU with this index. Raises InputError if MIG mode is off."""
        try:
            with registry.open_driver(MigDriver.name, index, state=state_folder()) as driver:
                gpu = driver.gpu()
        except InputError as error:
            # The suggestion to use an emulated GPU does not apply, because it cannot be measured.
            said = str(error).replace(nvml_errors.INSTEAD, OTHERWISE)
            raise InputError(said) from error
        if not gpu.divides:
            raise InputError(
                f"--driver: MIG mode of GPU {index} is off; switch it on with `sudo nvidia-smi "
                f"-i {index} -mig 1`, or measure shares of the same sizes with --driver mps"
            )
        return cls(gpu)

    def about(self) -> Json:
        """The GPU and its driver."""
        return {"gpu": self._gpu.name, "driver_version": self._gpu.driver_version}

    def readings(self) -> Json:
        """Clocks, temperature and power; empty without nvidia-smi."""
        if not self._fake:
            with suppress(InputError):
                return {**nvidia_smi.readings(self._gpu.index)}
        return {}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Prevent other changes to the GPU, and first remove the instances of a killed run."""
        state = state_folder()
        with (
            registry.open_driver(self.name, self._gpu.index, state=state) as driver,
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
    def share(self, sms: int) -> Iterator[Share]:
        """An instance of this size at any start. Raises GpuError that names the blocker."""
        assert self._partitioner is not None, "the driver is not open"
        partitioner = self._partitioner
        place = self._room(partitioner, self._profile(sms))
        began_s = time.monotonic()
        made = partitioner.create(place)
        create_s = time.monotonic() - began_s
        try:
            environment = partitioner.driver.environment(made)
            yield Share(sms, memory_gib(self.board, sms), environment)
        finally:
            destroy_s = self._destroyed(partitioner, made)
            if destroy_s is not None:
                self.reconfigured.append(Reconfiguration(sms, create_s, destroy_s))

    def whole(self) -> Share:
        """Raise InputError, because in MIG mode all work runs on instances."""
        raise InputError("--driver: in MIG mode nothing runs without instances; use --driver mps")

    def _profile(self, sms: int) -> MigProfile:
        for each in self.board.plain_profiles.values():
            if each.sms == sms:
                return each
        known = ", ".join(str(each.sms) for each in self.board.plain_profiles.values())
        raise InputError(
            f"gpu: {self.board.name} has no instance of {sms} SMs; this GPU has sizes of {known}"
        )

    def _room(self, partitioner: Partitioner, profile: MigProfile) -> Place:
        """A place for such an instance beside all existing ones."""
        there = {each.place for each in partitioner.driver.instances()}
        ours = tuple(each.place for each in partitioner.ours())
        reasons: list[str] = []
        for start in profile.starts:
            place = Place(start, profile.name)
            if place in there:
                reasons.append(f"{place} is there already (`migrator gpu show` says whose it is)")
                continue
            try:
                partitioner.plan(Layout((*ours, place)))
            except BlockedError as error:
                reasons.append(str(error))
                continue
            return place
        raise BlockedError(
            f"GPU {self._gpu.index} has no room for {profile.name}, which is to be measured: "
            f"{min(reasons, key=len)}"
        )

    def _clear(self, partitioner: Partitioner) -> None:
        """Destroy all instances of the profiler on the GPU."""
        partitioner.recover()
        for each in partitioner.ours():
            self._destroyed(partitioner, each)

    def _destroyed(self, partitioner: Partitioner, made: GpuInstance) -> float | None:
        """Destroy an instance once it is unused, and return the seconds it took.

        None if another program had removed it.
        """
        until_s = time.monotonic() + self._end_s
        while made.place in {each.place for each in partitioner.ours()}:
            began_s = time.monotonic()
            try:
                partitioner.destroy(made.place)
                return time.monotonic() - began_s
            except (BlockedError, InUseError):
                if time.monotonic() > until_s:
                    raise
                time.sleep(_PAUSE_S)  # an ended process stays listed for a moment
        return None
