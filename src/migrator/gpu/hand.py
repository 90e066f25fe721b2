"""What acts on one GPU for one owner: the intent on disk, then the driver, then the result.

Between `partitioner`, which decides, and the driver, which obeys. Whoever uses a hand holds the
GPU's lock for as long as the hand lives.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from migrator.core.errors import InputError, MigratorError
from migrator.gpu.change import Op, Step, by_hand, clearing, planned
from migrator.gpu.deed import Change, Deed, State, alive
from migrator.gpu.driver import (
    Gpu,
    GpuDriver,
    GpuInstance,
    HalfMadeError,
    NotPermittedError,
    Place,
    RefusedError,
    TransientError,
)
from migrator.gpu.journal import Journal
from migrator.gpu.layout import Layout

Ours = dict[Place, tuple[GpuInstance, Deed]]
"""Instances with the creates that made them."""


@dataclass
class Hand:
    """One owner's hand on one GPU."""

    driver: GpuDriver
    gpu: Gpu
    journal: Journal
    owner: str
    sleep: Callable[[float], None]
    pauses_s: Sequence[float]
    """Before each further attempt at a destroy that failed for a moment."""
    _present: tuple[GpuInstance, ...] | None = None

    def present(self) -> tuple[GpuInstance, ...]:
        """What is on the board, asked again after everything this hand did."""
        if self._present is None:
            self._present = self.driver.instances()
        return self._present

    def known(self) -> tuple[Deed, ...]:
        """The creates of this owner whose instances should be there."""
        return tuple(each for each in alive(self.journal.deeds(self.gpu)) if self.owns(each))

    def owns(self, record: Deed | Change) -> bool:
        """Whether a record of the journal is this owner's."""
        return record.owner == self.owner

    def ours(self) -> Ours:
        """The instances there that this owner created."""
        return matched(self.present(), self.known())

    def steps_to(self, layout: Layout) -> tuple[Step, ...]:
        """The fewest steps from what is there; BlockedError, InputError."""
        return planned(self.gpu.board, self.present(), self.ours(), layout, remedy=self.remedy)

    def remedy(self, instance: GpuInstance) -> str:
        """What to do about an instance that is not this owner's."""
        for deed in alive(self.journal.deeds(self.gpu)):
            if deed.is_about(instance):
                return f"it is {deed.owner}'s, `{clearing(self.gpu, deed.owner)}` removes it"
        command = by_hand(self.gpu, instance)
        return f"remove it with {f'`{command}`' if command else 'the program that made it'}"

    def walk(self, steps: Iterable[Step], change: Change | None = None) -> None:
        """Does the steps in order; the first that fails ends it."""
        ours = self.ours()
        for step in steps:
            if step.op is Op.CREATE:
                self.create(step.place, change)
            else:
                self.destroy(*ours[step.place], change)

    def create(self, place: Place, change: Change | None = None) -> GpuInstance:
        """Makes an instance, or nothing."""
        deed = self.journal.begin(self.gpu, self.owner, Op.CREATE, place, change=change)
        self._present = None
        try:
            made = self.driver.create(place)
        except MigratorError as error:
            # what cannot be cleared up now stays begun in the journal, for the next recovery
            with contextlib.suppress(MigratorError):
                self._clear_up(deed, error)
            raise
        self.journal.end(deed, State.DONE, made)
        return made

    def destroy(self, instance: GpuInstance, create: Deed, change: Change | None = None) -> None:
        """Ends an instance of ours; what fails for a moment is tried again, up to a limit."""
        self._end_begun(create, Op.DESTROY)  # this one takes the place of any that failed
        deed = self.journal.begin(
            self.gpu, self.owner, Op.DESTROY, create.place, known=create, change=change
        )
        try:
            self.remove(instance)
        except MigratorError:
            left = find(self.present(), create)
            if left and left.uuid:
                self.journal.end(deed, State.UNDONE)
            # half of it is gone: nobody can use it, and the next recovery finishes the destroy
            if left:
                raise
        self.journal.end(deed, State.DONE)
        self._end_begun(create, Op.CREATE)

    def remove(self, instance: GpuInstance) -> None:
        """Destroys what has its intent on disk, again and again if it fails for a moment only."""
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

    def _clear_up(self, deed: Deed, error: MigratorError) -> None:
        """Removes what a failed create left: what the driver names, else nothing it denies."""
        if isinstance(error, HalfMadeError):
            deed = self.journal.found(deed, error.number)
        if isinstance(error, HalfMadeError) or not isinstance(error, _NOTHING_MADE):
            left = find(self.present(), deed)
            # a whole one there is somebody else's: ours never got its compute instance
            if left and not left.uuid:
                self.remove(left)
        self.journal.end(deed, State.UNDONE)

    def _end_begun(self, create: Deed, op: Op) -> None:
        """Ends what was begun in that life and must not be taken up again."""
        for deed in self.journal.deeds(self.gpu):
            begun = deed.state is State.BEGUN and deed.intent is op
            if begun and deed.generation == create.generation:
                self.journal.end(deed, State.UNDONE)


_NOTHING_MADE = (RefusedError, NotPermittedError, InputError)
"""What a driver raises when the board would not begin: whatever is there is not ours."""


def find(present: Iterable[GpuInstance], deed: Deed) -> GpuInstance | None:
    """The instance a deed is about, where it is there."""
    return next((each for each in present if deed.is_about(each)), None)


def matched(present: Iterable[GpuInstance], creates: Iterable[Deed]) -> Ours:
    """The instances that these creates made, by place."""
    creates = tuple(creates)
    return {
        instance.place: (instance, create)
        for instance in present
        for create in creates
        if create.is_about(instance)
    }
