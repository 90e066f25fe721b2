"""A driver that writes each intent to the journal first, on behalf of one owner.

The partitioner decides, this class records, and the driver acts. The caller holds the GPU's lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from migrator.core.errors import InputError, MigratorError
from migrator.core.placement import Place
from migrator.gpu.drivers.base import (
    Gpu,
    GpuDriver,
    GpuInstance,
    HalfMadeError,
    NotPermittedError,
    RefusedError,
    TransientError,
)
from migrator.gpu.journal.journal import (
    EntryState,
    Journal,
    JournalEntry,
    LayoutChange,
    find_instance,
    live_creates,
    match_creates,
)
from migrator.gpu.partition.layout import (
    Layout,
    Op,
    Step,
    clear_command,
    plan_steps,
    removal_command,
)

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
    pauses_s: Sequence[float]
    """Seconds to wait before each retry of a destroy that failed temporarily."""
    _present: tuple[GpuInstance, ...] | None = None

    def present(self) -> tuple[GpuInstance, ...]:
        """All instances on the GPU, read again after every action."""
        if self._present is None:
            self._present = self.driver.instances()
        return self._present

    def owns(self, record: JournalEntry | LayoutChange) -> bool:
        """Whether a record of the journal is this owner's."""
        return record.owner == self.owner

    def ours(self) -> dict[Place, tuple[GpuInstance, JournalEntry]]:
        """The existing instances that this owner created, with their creates."""
        creates = live_creates(self.journal.entries(self.gpu))
        return match_creates(self.present(), filter(self.owns, creates))

    def unfinished(self) -> tuple[LayoutChange, ...]:
        """The layout changes of this owner that were begun and never ended."""
        return tuple(filter(self.owns, self.journal.unfinished(self.gpu)))

    def steps_to(self, layout: Layout) -> tuple[Step, ...]:
        """The fewest steps to `layout`. Raises BlockedError or InputError."""
        ours = self.ours()
        return plan_steps(self.gpu.board, self.present(), ours, layout, remedy=self._remedy)

    def run(self, steps: Iterable[Step], change: LayoutChange | None = None) -> None:
        """Run the steps in order, up to the first that fails."""
        ours = self.ours()
        for step in steps:
            if step.op is Op.CREATE:
                self.create(step.place, change)
            else:
                self.destroy(*ours[step.place], change)

    def create(self, place: Place, change: LayoutChange | None = None) -> GpuInstance:
        """Create an instance, or nothing."""
        entry = self.journal.begin(self.gpu, self.owner, Op.CREATE, place, change=change)
        self._present = None
        try:
            made = self.driver.create(place)
        except MigratorError as error:
            # What cannot be cleaned up stays begun in the journal, for the next recovery.
            with contextlib.suppress(MigratorError):
                self._clean_up(entry, error)
            raise
        self.journal.end(entry, EntryState.DONE, made)
        return made

    def destroy(
        self, instance: GpuInstance, create: JournalEntry, change: LayoutChange | None = None
    ) -> None:
        """Destroy an instance of ours. Retry temporary failures a limited number of times."""
        self._end_begun(create, Op.DESTROY)  # replaces any destroy that failed
        entry = self.journal.begin(
            self.gpu, self.owner, Op.DESTROY, create.place, create=create, change=change
        )
        try:
            self.remove(instance)
        except MigratorError:
            left = find_instance(self.present(), create)
            if left and left.uuid:
                self.journal.end(entry, EntryState.UNDONE)
            # A part of it is gone: the instance is unusable, and the next recovery finishes the
            # destroy.
            if left:
                raise
        self.journal.end(entry, EntryState.DONE)
        self._end_begun(create, Op.CREATE)

    def remove(self, instance: GpuInstance) -> None:
        """Destroy an instance whose intent is on disk. Retry temporary failures."""
        self._present = None
        for pause_s in self.pauses_s:
            try:
                return self.driver.destroy(instance)
            except TransientError:
                self.sleep(pause_s)
        try:
            return self.driver.destroy(instance)
        except TransientError as error:
            raise TransientError(f"{error} (tried {len(self.pauses_s) + 1} times)") from error

    def _remedy(self, instance: GpuInstance) -> str:
        """Suggestion for an instance that is not this owner's."""
        for entry in live_creates(self.journal.entries(self.gpu)):
            if entry.is_about(instance):
                clear = clear_command(self.gpu, entry.owner)
                return f"it is {entry.owner}'s, `{clear}` removes it"
        command = removal_command(self.gpu, instance)
        return f"remove it with {f'`{command}`' if command else 'the program that made it'}"

    def _clean_up(self, entry: JournalEntry, error: MigratorError) -> None:
        """Remove what a failed create left, unless the driver reports that it left nothing."""
        if isinstance(error, HalfMadeError):
            entry = self.journal.set_number(entry, error.number)
        if isinstance(error, HalfMadeError) or not isinstance(error, _NOTHING_MADE):
            left = find_instance(self.present(), entry)
            # A complete instance is not ours, because ours never got its compute instance.
            if left and not left.uuid:
                self.remove(left)
        self.journal.end(entry, EntryState.UNDONE)

    def _end_begun(self, create: JournalEntry, op: Op) -> None:
        """End the unfinished entries of an instance, which must not be resumed."""
        for entry in self.journal.entries(self.gpu):
            begun = entry.state is EntryState.BEGUN and entry.intent is op
            if begun and entry.generation == create.generation:
                self.journal.end(entry, EntryState.UNDONE)
