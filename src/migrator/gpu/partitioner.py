"""Brings a GPU to a wanted layout, touching nothing else, and surviving every crash.

The way in to `gpu`: plans the smallest change, journals and walks it, and goes back where it
fails. Everything that changes the GPU takes its lock and recovers first.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.gpu.change import BlockedError, Op, Step
from migrator.gpu.deed import Change, State, alive
from migrator.gpu.driver import GpuDriver, GpuInstance, Place
from migrator.gpu.hand import Hand, matched
from migrator.gpu.journal import Journal
from migrator.gpu.layout import Layout
from migrator.gpu.lock import GpuLock
from migrator.gpu.recovery import Recovered, in_words, recover, taken_up

PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


class Partitioner:
    """One owner's changes of the GPU a driver divides."""

    def __init__(
        self,
        driver: GpuDriver,
        journal: Journal,
        owner: str = "migrator",
        *,
        sleep: Callable[[float], None] = time.sleep,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        self.driver, self.journal, self.owner = driver, journal, owner
        self.recovered = Recovered()
        """What the last recovery found and did."""
        self._sleep, self._pauses_s = sleep, pauses_s
        self._lock = GpuLock.of(driver.gpu(), journal.path.parent)
        self._thread_lock = threading.RLock()
        self._depth = 0

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps every other process from changing this GPU; may be nested."""
        with self._thread_lock:
            if not self._depth:
                self._lock.take()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    self._lock.give_back()

    def ours(self) -> tuple[GpuInstance, ...]:
        """The instances on the board that this owner created."""
        return tuple(instance for instance, _ in self._hand().ours().values())

    def owners(self) -> Mapping[Place, str]:
        """Whose the instances on the board are, as far as the journal knows."""
        creates = alive(self.journal.deeds(self.driver.gpu()))
        there = matched(self.driver.instances(), creates)
        return {place: create.owner for place, (_, create) in there.items()}

    @property
    def cut_off(self) -> bool:
        """Whether a change of this owner was begun and neither finished nor taken back."""
        return bool(self._unfinished(self._hand()))

    def plan(self, layout: Layout) -> tuple[Step, ...]:
        """The steps that `apply` would take to `layout`; changes nothing."""
        return self._hand().steps_to(layout)

    def apply(self, layout: Layout) -> tuple[Step, ...]:
        """Brings the GPU to `layout`; the steps it took. Where one fails, the GPU goes back."""
        with self.locked():
            hand = self._hand()
            self.recovered = taken_up(hand)
            try:
                steps = hand.steps_to(layout)
            except BlockedError:
                # what was cut off may be what is in the way
                self.recovered = recover(hand)
                steps = hand.steps_to(layout)
            return self._changed(hand, steps)

    def clear(self) -> tuple[Step, ...]:
        """Destroys everything of this owner that nobody uses; the steps it took."""
        with self.locked():
            hand = self._hand()
            self.recovered = taken_up(hand)
            in_use = [place for place, (instance, _) in hand.ours().items() if instance.holders]
            return self._changed(hand, hand.steps_to(Layout(tuple(in_use))))

    def create(self, place: Place) -> GpuInstance:
        """Makes one instance of ours there, and changes nothing else."""
        with self._at_work() as hand:
            if any(each.place == place for each in hand.present()):
                raise GpuError(f"{place} is there already; `migrator gpu show` says whose it is")
            hand.steps_to(Layout((*hand.ours(), place)))
            with self._alone(hand):
                return hand.create(place)

    def destroy(self, place: Place) -> None:
        """Ends one instance of ours that nobody uses, and changes nothing else."""
        with self._at_work() as hand:
            ours = hand.ours()
            if place not in ours:
                raise GpuError(
                    f"{place} is no instance of {self.owner}'s and stays; `migrator gpu show` "
                    "lists what is there and whose it is"
                )
            hand.steps_to(Layout(tuple(each for each in ours if each != place)))
            with self._alone(hand):
                hand.destroy(*ours[place])

    def recover(self) -> Recovered:
        """Brings journal and board to agree, and settles what was begun and never finished."""
        with self.locked():
            self.recovered = recover(self._hand())
            return self.recovered

    def _hand(self) -> Hand:
        gpu = self.driver.gpu()
        return Hand(self.driver, gpu, self.journal, self.owner, self._sleep, self._pauses_s)

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[Hand]:
        """The lock, and a hand on a GPU where nothing is unfinished."""
        with self.locked():
            hand = self._hand()
            self.recovered = recover(hand)
            yield hand

    def _unfinished(self, hand: Hand) -> tuple[Change, ...]:
        return tuple(filter(hand.owns, self.journal.unfinished(hand.gpu)))

    def _supersede(self, changes: Iterable[Change]) -> None:
        """What was cut off, or no recovery could settle, is given up for what is asked now."""
        for change in changes:
            self.journal.end_change(change, State.SUPERSEDED)

    @contextlib.contextmanager
    def _alone(self, hand: Hand) -> Iterator[None]:
        """Around a single deed: what it left when it failed is cleared up, or told."""
        self._supersede(self._unfinished(hand))
        try:
            yield
        except MigratorError as error:
            try:
                self.recovered = recover(hand)
            except MigratorError as second:
                raise _like(error, f"{error}; clearing up failed as well: {second}") from error
            if self.recovered.unsettled:
                raise _like(error, _told_once(str(error), self.recovered.unsettled)) from error
            raise

    def _changed(self, hand: Hand, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        older = self._unfinished(hand)
        if not steps:
            self._supersede(older)
            return steps
        before, after = _ends(hand, steps)
        # a layout that nobody ever asked for is no layout to go back to
        before = older[0].before if older else before
        change = self.journal.begin_change(hand.gpu, self.owner, before, after)
        self._supersede(older)
        try:
            hand.walk(steps, change)
        except MigratorError as error:
            self._go_back(hand, change, error)
        except BaseException:
            # Ctrl-C: the journal knows enough for the next recovery, but now is better
            with contextlib.suppress(MigratorError):
                self.recovered = recover(hand, back_first=True)
            raise
        else:
            self.journal.end_change(change, State.DONE)
        return steps

    def _go_back(self, hand: Hand, change: Change, error: MigratorError) -> None:
        """After a failed step; returns only where the change could be finished after all."""
        why = str(error).removesuffix(f"; {_AS_BEFORE}")
        try:
            self.recovered = recover(hand, back_first=True)
            state = self.journal.state_of(change)
        except MigratorError as second:
            raise _like(error, f"{why}; going back failed as well: {second}") from error
        if state is State.UNDONE:
            raise _like(error, f"{why}; {_AS_BEFORE}") from error
        if state is not State.DONE:
            why += (
                f"; the GPU is not as it was before: of ours there are now "
                f"{_listed(hand)}, and there were {in_words(change.before)}"
            )
            raise _like(error, _told_once(why, self.recovered.unsettled)) from error


_AS_BEFORE = "the GPU is as it was before"


def _like(error: MigratorError, words: str) -> MigratorError:
    """An error of the same kind: what the operator must mend first, or what the GPU refused."""
    return InputError(words) if isinstance(error, InputError) else GpuError(words)


def _told_once(why: str, unsettled: Iterable[str]) -> str:
    """What failed and what it left unsettled; a cause that was named is not named again."""
    told = why
    for each in unsettled:
        what, _, cause = each.partition(": ")
        told += f"; {what if cause in told else each}"
    return told


def _listed(hand: Hand) -> str:
    """Our instances, those without compute instance marked."""
    ours = [
        f"{place}{'' if instance.uuid else ' (half-made)'}"
        for place, (instance, _) in sorted(hand.ours().items())
    ]
    return ", ".join(ours) or "no instances"


def _ends(hand: Hand, steps: tuple[Step, ...]) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """Our instances before the steps and after them."""
    before = {place for place, (instance, _) in hand.ours().items() if instance.uuid}
    after = before - {each.place for each in steps if each.op is Op.DESTROY}
    after |= {each.place for each in steps if each.op is Op.CREATE}
    return tuple(sorted(before)), tuple(sorted(after))
