"""A driver that writes each intent to the journal first, for one owner, and recovery after a crash.

The partitioner decides, `JournaledDriver` records, and the driver acts. The caller holds the GPU's
lock.

Recovery makes the journal agree with the GPU and settles an unfinished layout change, at the start
of every operation that changes a GPU. It destroys only unused instances that this owner created
according to the journal. Unknown instances are reported and left alone. Two cases cannot be
distinguished: an instance that another program created at the same place after ours was gone, with
the same number and UUID; and one that another program created where we had written an intent and
were killed before we acted on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from migrator.core.catalogue import Place
from migrator.core.errors import InputError, MigratorError
from migrator.gpu.drivers.base import (
    Gpu,
    GpuDriver,
    GpuInstance,
    HalfMadeError,
    NotPermittedError,
    RefusedError,
    TransientError,
)
from migrator.gpu.journal import (
    EntryState,
    Journal,
    JournalEntry,
    LayoutChange,
    find_instance,
    match_entries,
)
from migrator.gpu.layout import (
    BlockedError,
    Layout,
    Op,
    Step,
    clear_command,
    plan_steps,
    removal_command,
)

PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds to wait before each retry of a destroy that failed temporarily."""
_NOTHING_MADE = (RefusedError, NotPermittedError, InputError)
"""Errors that a driver raises before it begins. An instance at the place is then not ours."""


@dataclass
class JournaledDriver:
    """One owner's instances on one GPU."""

    driver: GpuDriver
    gpu: Gpu
    journal: Journal
    owner: str
    sleep: Callable[[float], None]
    _present: tuple[GpuInstance, ...] | None = None

    def present(self) -> tuple[GpuInstance, ...]:
        """All instances on the GPU, read again after every action."""
        if self._present is None:
            self._present = self.driver.instances()
        return self._present

    def owns(self, record: JournalEntry | LayoutChange) -> bool:
        return record.owner == self.owner

    def ours(self) -> dict[Place, tuple[GpuInstance, JournalEntry]]:
        return match_entries(self.present(), filter(self.owns, self.journal.entries(self.gpu)))

    def unfinished(self) -> tuple[LayoutChange, ...]:
        return tuple(filter(self.owns, self.journal.unfinished(self.gpu)))

    def steps_to(self, layout: Layout) -> tuple[Step, ...]:
        """The fewest steps to `layout`. Raises BlockedError or InputError."""
        ours = self.ours()
        return plan_steps(self.gpu.board, self.present(), ours, layout, remedy=self._remedy)

    def run(self, steps: Iterable[Step]) -> None:
        """Run the steps of a layout change in order, up to the first that fails."""
        ours = self.ours()
        for step in steps:
            if step.op is Op.CREATE:
                self.create(step.place)
            else:
                self.destroy(*ours[step.place])

    def create(self, place: Place) -> None:
        """Create an instance. What a failure leaves, the next recovery removes."""
        entry = self.journal.begin_create(self.gpu, self.owner, place)
        self._present = None
        try:
            made = self.driver.create(place)
        except HalfMadeError as error:
            self.journal.set_number(entry, error.number)
            raise
        except MigratorError as error:
            with contextlib.suppress(MigratorError):
                if not self._left(entry, error):
                    self.journal.remove(entry)
            raise
        self.journal.set_present(entry, made)

    def _left(self, entry: JournalEntry, error: MigratorError) -> bool:
        """Whether a failed create left an incomplete instance.

        A complete one is not ours, because ours never got its compute instance.
        """
        if isinstance(error, _NOTHING_MADE):
            return False
        left = find_instance(self.present(), entry)
        return left is not None and not left.uuid

    def destroy(self, instance: GpuInstance, entry: JournalEntry) -> None:
        """Destroy an instance of ours. What a failure leaves, the next recovery settles."""
        entry = self.journal.begin_destroy(entry)
        self.remove(instance)
        self.journal.remove(entry)

    def remove(self, instance: GpuInstance) -> None:
        """Destroy an instance whose intent is on disk. Retry temporary failures."""
        self._present = None
        for pause_s in PAUSES_S:
            try:
                return self.driver.destroy(instance)
            except TransientError:
                self.sleep(pause_s)
        try:
            return self.driver.destroy(instance)
        except TransientError as error:
            raise TransientError(f"{error} (tried {len(PAUSES_S) + 1} times)") from error

    def _remedy(self, instance: GpuInstance) -> str:
        for entry in self.journal.entries(self.gpu):
            if entry.is_about(instance):
                clear = clear_command(self.gpu, entry.owner, self.journal.path.parent)
                return f"it is {entry.owner}'s, `{clear}` removes it"
        command = removal_command(self.gpu, instance)
        return f"remove it with {f'`{command}`' if command else 'the program that made it'}"


class ChangeEnd(StrEnum):
    """What a recovery did with an unfinished layout change."""

    FINISHED = "finished"
    UNDONE = "undone"


@dataclass
class RecoveryReport:
    """Findings and actions of a recovery."""

    finished: tuple[Step, ...] = ()
    """Steps that were begun before and are complete, including those that finished a change."""
    undone: tuple[Step, ...] = ()
    """Steps that were begun before and are undone, including those that undid a change."""
    forgotten: tuple[Place, ...] = ()
    """Places in the journal without an instance. Another program or a reboot removed it."""
    change: ChangeEnd | None = None
    """What was done with an unfinished change; None if there was none or it is not settled."""
    unsettled: tuple[str, ...] = ()
    """Sentences about what could not be settled. If the GPU failed, the next recovery tries again.
    """


def recover(driver: JournaledDriver, *, back_first: bool = False) -> RecoveryReport:
    """Settle unfinished operations. `back_first`: finish a change only if it cannot be undone."""
    report = RecoveryReport()
    _settle_entries(driver, report)
    for change in driver.unfinished():
        _settle_change(driver, change, report, back_first)
    return report


def describe_places(places: tuple[Place, ...]) -> str:
    """Places for use in a sentence."""
    return ", ".join(map(str, sorted(places))) or "no instances"


def _settle_entries(driver: JournaledDriver, report: RecoveryReport) -> None:
    """Settle all unfinished entries.

    Includes entries of other owners without an instance, because an identical new instance of ours
    would match them.
    """
    report.forgotten += driver.journal.forget_other_boots(driver.gpu)
    for entry in driver.journal.entries(driver.gpu):
        if entry.state is EntryState.PRESENT:
            continue
        instance = find_instance(driver.present(), entry)
        if instance and not driver.owns(entry):
            continue
        try:
            _settle(driver, entry, instance, report)
        except MigratorError as error:
            report.unsettled += (f"{entry.step} was begun and is not finished: {error}",)
    _forget_missing(driver, report)


def _settle(
    driver: JournaledDriver,
    entry: JournalEntry,
    instance: GpuInstance | None,
    report: RecoveryReport,
) -> None:
    creates = entry.state is EntryState.CREATING
    # A complete instance stays, because undoing the change may need it.
    kept = instance is not None and bool(instance.uuid)
    if instance and kept:
        driver.journal.set_present(entry, instance)
    else:
        if instance:
            driver.remove(instance)
        driver.journal.remove(entry)
    if kept is creates:
        report.finished += (entry.step,)
    else:
        report.undone += (entry.step,)


def _forget_missing(driver: JournaledDriver, report: RecoveryReport) -> None:
    """Forget missing instances of all owners. A later instance at the same place is another one."""
    entries = driver.journal.entries(driver.gpu)
    there = {entry.id for _, entry in match_entries(driver.present(), entries).values()}
    for entry in entries:
        if entry.id not in there and entry.state is EntryState.PRESENT:
            driver.journal.remove(entry)
            report.forgotten += (entry.place,)


def _settle_change(
    driver: JournaledDriver, change: LayoutChange, report: RecoveryReport, back_first: bool
) -> None:
    """Undo or finish the change, whichever is possible. After a crash, the shorter way first."""
    back, forward = (ChangeEnd.UNDONE, change.before), (ChangeEnd.FINISHED, change.wanted)
    forward_is_shorter = _distance(driver, change.wanted) < _distance(driver, change.before)
    ways = (forward, back) if forward_is_shorter and not back_first else (back, forward)
    problems: list[MigratorError] = []
    for end, places in ways:
        try:
            steps = driver.steps_to(Layout(places))
            driver.run(steps)
        except MigratorError as error:
            problems.append(error)
            continue
        driver.journal.end_change(change)
        report.change = end
        if end is ChangeEnd.FINISHED:
            report.finished += steps
        else:
            report.undone += steps
        return
    if all(isinstance(problem, BlockedError) for problem in problems):
        # Other programs have taken the slices: a later attempt would be unexpected.
        driver.journal.end_change(change)
    report.unsettled += (
        f"a change to {describe_places(change.wanted)} could neither be finished nor undone to "
        f"{describe_places(change.before)}: {'; '.join(dict.fromkeys(map(str, problems)))}",
    )


def _distance(driver: JournaledDriver, places: tuple[Place, ...]) -> float:
    try:
        return len(driver.steps_to(Layout(places)))
    except MigratorError:
        return float("inf")
