"""Bring a GPU to a wanted layout with the fewest steps, recoverable after any crash.

The entry point of `gpu`. A failed change is undone. Every operation that changes the GPU takes its
lock and recovers first. The lock of a real GPU has one location for all users of the machine,
independent of their state folders.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from migrator.core.catalogue import Place
from migrator.core.errors import GpuError, MigratorError
from migrator.gpu.drivers.base import DriverKind, Gpu, GpuDriver, GpuInstance
from migrator.gpu.journal import Journal, LayoutChange, match_entries
from migrator.gpu.journaled_driver import (
    ChangeEnd,
    JournaledDriver,
    RecoveryReport,
    describe_places,
    recover,
)
from migrator.gpu.layout import Layout, Op, Step
from migrator.io.locks import LockHeldError, ProcessLock

MACHINE_WIDE = (Path("/run/lock"), Path("/var/lock"))
"""Folders for locks that all users of a machine share. The first writable one is used."""
NVIDIA_DEVICE = Path("/dev/nvidiactl")
"""Exists if the machine has a GPU that several users may share."""
_AS_BEFORE = "the GPU is as it was before"


class Partitioner:
    """One owner's changes to the GPU that a driver divides."""

    def __init__(
        self,
        driver: GpuDriver,
        journal: Journal,
        owner: str = "migrator",
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.driver, self.journal, self.owner = driver, journal, owner
        self.recovered = RecoveryReport()
        """Report of the last recovery."""
        self._sleep = sleep
        self._lock = GpuLock.of(driver.gpu(), journal.path.parent)
        self._thread_lock = threading.RLock()
        self._depth = 0

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Prevent all other processes from changing this GPU. May be nested."""
        with self._thread_lock:
            if not self._depth:
                self._lock.acquire()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    self._lock.release()

    def ours(self) -> tuple[GpuInstance, ...]:
        return tuple(instance for instance, _ in self._journaled().ours().values())

    def owners(self) -> Mapping[Place, str]:
        """The owners of the instances on the GPU, as far as the journal knows them."""
        entries = self.journal.entries(self.driver.gpu())
        there = match_entries(self.driver.instances(), entries)
        return {place: entry.owner for place, (_, entry) in there.items()}

    @property
    def is_unfinished(self) -> bool:
        """Whether a change of this owner was begun and neither finished nor undone."""
        return bool(self._journaled().unfinished())

    def plan(self, layout: Layout) -> tuple[Step, ...]:
        """The steps that `apply` would take to `layout`; changes nothing."""
        return self._journaled().steps_to(layout)

    def apply(self, layout: Layout) -> tuple[Step, ...]:
        """Bring the GPU to `layout` and return the steps. If one fails, undo all."""
        with self.locked():
            driver = self._recovered()
            return self._change(driver, driver.steps_to(layout))

    def clear(self) -> tuple[Step, ...]:
        """Destroy all unused instances of this owner and return the steps."""
        with self.locked():
            driver = self._recovered()
            in_use = [place for place, (instance, _) in driver.ours().items() if instance.holders]
            return self._change(driver, driver.steps_to(Layout(tuple(in_use))))

    def create(self, place: Place) -> GpuInstance:
        """Create one instance, and change nothing else."""
        with self.locked():
            driver = self._recovered()
            if any(instance.place == place for instance in driver.present()):
                raise GpuError(f"{place} is there already; `migrator gpu show` names its owner")
            driver.steps_to(Layout((*driver.ours(), place)))  # raises where there is no room
            self._change(driver, (Step(Op.CREATE, place),))
            return next(instance for instance in driver.present() if instance.place == place)

    def destroy(self, place: Place) -> None:
        """Destroy one unused instance of this owner, and change nothing else."""
        with self.locked():
            driver = self._recovered()
            ours = driver.ours()
            if place not in ours:
                raise GpuError(
                    f"{place} is not an instance of {self.owner} and stays; `migrator gpu show` "
                    "lists instances and owners"
                )
            kept = tuple(other for other in ours if other != place)
            driver.steps_to(Layout(kept))  # raises if it is in use
            self._change(driver, (Step(Op.DESTROY, place),))

    def recover(self) -> RecoveryReport:
        """Make the journal agree with the GPU, and settle unfinished operations."""
        with self.locked():
            self._recovered()
            return self.recovered

    def _journaled(self) -> JournaledDriver:
        gpu = self.driver.gpu()
        return JournaledDriver(self.driver, gpu, self.journal, self.owner, self._sleep)

    def _recovered(self) -> JournaledDriver:
        """The driver, without unfinished operations. The caller holds the lock."""
        driver = self._journaled()
        self.recovered = recover(driver)
        return driver

    def _change(self, driver: JournaledDriver, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        for unsettled in driver.unfinished():
            self.journal.end_change(unsettled)
        if not steps:
            return steps
        change = self.journal.begin_change(
            driver.gpu, self.owner, *_before_and_after(driver, steps)
        )
        try:
            driver.run(steps)
        except MigratorError as error:
            self._undo(driver, change, error)
        except BaseException:
            # Ctrl-C: undo immediately instead of leaving it to the next recovery.
            with contextlib.suppress(MigratorError):
                self.recovered = recover(driver, back_first=True)
            raise
        else:
            self.journal.end_change(change)
        return steps

    def _undo(self, driver: JournaledDriver, change: LayoutChange, error: MigratorError) -> None:
        """Undo a failed change. Returns only if the change could be finished."""
        why = str(error).removesuffix(f"; {_AS_BEFORE}")
        try:
            self.recovered = recover(driver, back_first=True)
        except MigratorError as second:
            why += f"; undoing it failed as well: {second}"
        else:
            if self.recovered.change is ChangeEnd.FINISHED:
                return
            if self.recovered.change is ChangeEnd.UNDONE:
                why += f"; {_AS_BEFORE}"
            else:
                why += (
                    f"; the GPU is not as it was before: of ours there are now "
                    f"{_describe_ours(driver)}, and there were {describe_places(change.before)}"
                )
                why = _append_unsettled(why, self.recovered.unsettled)
        error.args = (why,)
        raise error


def _append_unsettled(why: str, unsettled: Iterable[str]) -> str:
    """The failure and what it left unsettled, with each cause named once."""
    text = why
    for sentence in unsettled:
        what, _, cause = sentence.partition(": ")
        text += f"; {what if cause in text else sentence}"
    return text


def _describe_ours(driver: JournaledDriver) -> str:
    ours = [
        f"{place}{'' if instance.uuid else ' (half-made)'}"
        for place, (instance, _) in sorted(driver.ours().items())
    ]
    return ", ".join(ours) or "no instances"


def _before_and_after(
    driver: JournaledDriver, steps: tuple[Step, ...]
) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    before = {place for place, (instance, _) in driver.ours().items() if instance.uuid}
    after = before - {step.place for step in steps if step.op is Op.DESTROY}
    after |= {step.place for step in steps if step.op is Op.CREATE}
    return tuple(sorted(before)), tuple(sorted(after))


class GpuLock(ProcessLock):
    """The lock of the GPU `gpu_uuid`."""

    def __init__(self, folder: Path, gpu_uuid: str, *, machine_wide: bool = True) -> None:
        """`folder` contains the lock unless it is `machine_wide`.

        Locks of emulated GPUs are not.
        """
        shared = _machine_wide_folder() if machine_wide else None
        prefix = "" if shared is None else "migrator-"
        path = (shared or folder) / f"{prefix}gpu-{gpu_uuid}.lock"
        super().__init__(path, for_all_users=shared is not None)
        self._gpu_uuid = gpu_uuid

    @classmethod
    def of(cls, gpu: Gpu, folder: Path) -> GpuLock:
        """The lock of a GPU whose journal is in `folder`."""
        return cls(folder, gpu.uuid, machine_wide=gpu.driver != DriverKind.EMULATED)

    def acquire(self) -> None:
        """Take the lock without waiting. Raises GpuError if another process holds it."""
        try:
            super().acquire()
        except LockHeldError as error:
            raise GpuError(
                f"GPU {self._gpu_uuid} is being changed by {error}; try again when it has ended"
            ) from error
        except OSError as error:
            raise GpuError(
                f"{self.path}: the lock cannot be made ({error.strerror}) and nothing was changed; "
                "make it readable and its folder writable, or name another state folder in "
                "MIGRATOR_STATE"
            ) from error


def _machine_wide_folder() -> Path | None:
    """A folder for all users; None without a shared GPU or without such a folder."""
    if not NVIDIA_DEVICE.exists():
        return None
    writable = (path for path in MACHINE_WIDE if os.access(path, os.W_OK | os.X_OK))
    return next(writable, None)
