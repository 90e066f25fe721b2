"""One process's life on a cruel machine: random operations until it is killed, or had enough.

What it is about to do, and the result, is in its diary, which its parent reads afterwards.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrator.core.catalogue import Place, all_places
from migrator.core.errors import MigratorError
from migrator.gpu.drivers.base import GpuDriver
from migrator.gpu.journal import Journal, live_creates, match_creates
from migrator.gpu.journaled_driver import PAUSES_S
from migrator.gpu.layout import Layout, Op, plan_steps
from migrator.gpu.partitioner import Partitioner
from support.gpu_worlds import World

OWNERS = ("migrator", "other")
ATTEMPTS = len(PAUSES_S) + 1
"""At a destroy that fails for a moment."""
AS_BEFORE = "the GPU is as it was before"
Holdings = dict[str, frozenset[Place]]
"""Which places each owner has."""


@dataclass
class Trap:
    """Kills the process, or interrupts it, at the n-th point it passes."""

    left: int | None = None
    interrupts: bool = False
    sprung: Callable[[str], None] = lambda _: None

    def __call__(self, point: str) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left > 0 or (self.interrupts and point == "journal"):
            return
        self.left = None
        self.sprung(point)
        if self.interrupts:
            raise KeyboardInterrupt
        os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def off(self) -> Iterator[None]:
        """While another program acts."""
        left, self.left = self.left, None
        yield
        self.left = left


def opened_journal(folder: Path, trap: Trap) -> Journal:
    """The journal, with a point before each of its writes; nothing is synced."""
    journal = Journal(folder / "journal.db", synchronous="OFF")

    def traced(statement: str) -> None:
        if statement.startswith(("INSERT", "DELETE")):
            trap("journal")

    journal._connection.set_trace_callback(traced)
    return journal


@dataclass
class Diary:
    """Lines that survive a kill."""

    path: Path

    def write(self, **event: Any) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event, default=_plain) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """What was written since last time."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines()
        self.path.unlink()
        return [json.loads(line) for line in lines]


def _plain(value: object) -> object:
    if isinstance(value, Place):
        return [value.start, value.profile]
    assert isinstance(value, frozenset | set)
    return sorted(value)


@dataclass
class Life:
    """A process that works on the machine, with actions of other programs in between."""

    world: World
    driver: GpuDriver
    journal: Journal
    diary: Diary
    draw: random.Random
    foreign: dict[int, Place]
    """Foreign instances by identity."""
    trap: Trap

    def __post_init__(self) -> None:
        self.gpu = self.driver.gpu()
        self._partitioners = {
            owner: Partitioner(self.driver, self.journal, owner, sleep=lambda _: None)
            for owner in OWNERS
        }

    def partitioner(self, owner: str) -> Partitioner:
        return self._partitioners[owner]

    def holdings(self) -> Holdings:
        """What each owner has, as journal and board say."""
        creates = live_creates(self.journal.entries(self.gpu))
        there = match_creates(self.world.instances(), creates)
        return {
            owner: frozenset(place for place, (_, create) in there.items() if create.owner == owner)
            for owner in OWNERS
        }

    def lived(self, operations: int) -> None:
        """This many random operations."""
        for _ in range(operations):
            if self.draw.random() < 0.4:
                with self.trap.off():
                    self._others()
            else:
                self._ours()

    def open_places(self) -> list[Place]:
        """Where another program can create an instance that can be distinguished from ours.

        What the journal has at a place, and another makes there anew, cannot.
        """
        ours = {entry.place for entry in self.journal.entries(self.gpu)}
        return [place for place in all_places(self.world.board) if place not in ours]

    def _others(self) -> None:
        """Another program or the machine does something."""
        seen = self.world.seen()
        kind = self.draw.choices(
            ["make", "unmake", "take", "hold", "release", "reboot"], [3, 6, 3, 3, 6, 0.3]
        )[0]
        if kind == "make":
            self._make()
        elif kind == "unmake" and self.foreign:
            self._remove(self.draw.choice(sorted(self.foreign)))
        elif kind == "take":
            ours = [
                instance
                for instance in seen
                if instance.identity not in self.foreign and not instance.held
            ]
            if ours:
                self._remove(self.draw.choice(ours).identity)
        elif kind == "hold" and any(instance.whole for instance in seen):
            self.world.hold(
                self.draw.choice([instance for instance in seen if instance.whole]).place
            )
        elif kind == "release":
            self.world.release()
        elif kind == "reboot":
            self.diary.write(event="reboot")
            self.world.reboot()
            os._exit(0)
        self.diary.write(event="others")

    def _make(self) -> None:
        before = {instance.identity for instance in self.world.seen()}
        place = self.draw.choice(self.open_places())
        if self.world.foreign(place, whole=self.draw.random() < 0.8):
            (new,) = (instance for instance in self.world.seen() if instance.identity not in before)
            self.foreign[new.identity] = place
            self.diary.write(event="foreign", identity=new.identity, place=place)

    def _remove(self, identity: int) -> None:
        (place,) = (
            instance.place for instance in self.world.seen() if instance.identity == identity
        )
        self.world.remove(place)
        self.foreign.pop(identity, None)
        self.diary.write(event="removed", identity=identity)

    def _ours(self) -> None:
        """One operation of ours, perhaps with faults."""
        owner = self.draw.choices(OWNERS, [2, 1])[0]
        partitioner = self.partitioner(owner)
        if self.draw.random() < 0.05:
            self._stubborn(partitioner)
            return
        act, wanted = self._drawn(partitioner, self.holdings()[owner])
        self.done(partitioner, act, wanted, faulty=self.draw.random() < 0.25)

    def _stubborn(self, partitioner: Partitioner) -> None:
        """A destroy whose fault outlasts it and two recoveries; then its place is wanted again."""
        owner, before = partitioner.owner, self.holdings()
        held = {instance.place for instance in self.world.seen() if instance.held}
        if not before[owner] - held:
            return
        gone = self.draw.choice(sorted(before[owner] - held))
        without = {**before, owner: before[owner] - {gone}}
        self.diary.write(event="begin", owner=owner, before=before, after=without)
        self.world.outlast(3 * ATTEMPTS)
        try:
            with suppress(MigratorError):
                partitioner.destroy(gone)
            partitioner.recover()
            self.diary.write(event="begin", owner=owner, before=without, after=before)
            partitioner.apply(Layout(tuple(sorted(before[owner]))))
            possible = [before]
        except KeyboardInterrupt:
            self.trap.left = None
            possible = [before, without]
        self.world.mend()
        partitioner.recover()
        now = self.holdings()
        assert now in possible, (now, possible)
        self.diary.write(event="end", holdings=now, stubborn=True)

    def done(
        self,
        partitioner: Partitioner,
        act: Callable[[], object],
        wanted: frozenset[Place],
        *,
        faulty: bool = False,
    ) -> None:
        """Does it, with the intent and the result in the diary."""
        owner = partitioner.owner
        before = self.holdings()
        fixed = {
            instance.identity
            for instance in self.world.seen()
            if instance.held or instance.identity in self.foreign
        }
        after = {**before, owner: wanted}
        self.diary.write(event="begin", owner=owner, before=before, after=after, fixed=fixed)
        if faulty:
            self.world.fault(self.draw)
        try:
            act()
            failed = ""
        except MigratorError as error:
            failed = str(error) or "?"
        except KeyboardInterrupt:
            failed = "interrupted"
        self._judge(partitioner, failed, faulty, before, after)
        self._check_fixed(fixed)
        self.diary.write(event="end", holdings=self.holdings(), failed=failed)

    def _judge(
        self, partitioner: Partitioner, failed: str, faulty: bool, before: Holdings, after: Holdings
    ) -> None:
        """Success is what was wanted, failure is what was before; after faults either."""
        if faulty:
            self.world.mend()
        if AS_BEFORE in failed:
            assert self.holdings() == before, failed
        if faulty or failed == "interrupted":
            if self.trap.interrupts:
                self.trap.left = None
            partitioner.recover()
            assert not partitioner.recovered.unsettled, partitioner.recovered
        expected = [before] if failed else [after]
        if failed and (faulty or failed == "interrupted"):
            expected.append(after)
        now = self.holdings()
        assert now in expected, (failed, faulty, now, before, after, partitioner.recovered)

    def _check_fixed(self, fixed: Iterable[int]) -> None:
        there = {instance.identity for instance in self.world.seen()}
        assert set(fixed) <= there, "an instance in use or not ours is gone"

    def _drawn(
        self, partitioner: Partitioner, mine: frozenset[Place]
    ) -> tuple[Callable[[], object], frozenset[Place]]:
        """Something to do, and the owner's places where it succeeds."""
        kind = self.draw.choices(["apply", "clear", "create", "destroy"], [8, 1, 3, 3])[0]
        place = self.draw.choice(list(all_places(self.world.board)))
        if kind == "create":
            return lambda: partitioner.create(place), mine | {place}
        if kind == "destroy" and mine:
            gone = self.draw.choice(sorted(mine))
            return lambda: partitioner.destroy(gone), mine - {gone}
        if kind == "clear":
            used = {instance.place for instance in self.world.seen() if instance.held}
            return partitioner.clear, mine & used
        layout = self._layout()
        return lambda: partitioner.apply(layout), self._after(layout, mine)

    def _after(self, layout: Layout, mine: frozenset[Place]) -> frozenset[Place]:
        """What the plan makes of our places; the same where it cannot be reached."""
        try:
            steps = plan_steps(self.world.board, self.world.instances(), mine, layout)
        except MigratorError:
            return mine
        gone = {step.place for step in steps if step.op is Op.DESTROY}
        return mine - gone | {step.place for step in steps if step.op is Op.CREATE}

    def _layout(self) -> Layout:
        """Places and counts that mostly fit."""
        chosen: list[Place] = []
        taken: set[int] = set()
        every = list(all_places(self.world.board))
        self.draw.shuffle(every)
        for place in every[: self.draw.choice([1, 2, 6, 30])]:
            width = self.world.board.profile(place.profile).memory_slices
            cells = set(range(place.start, place.start + width))
            if not cells & taken:
                chosen.append(place)
                taken |= cells
        counts: dict[str, int] = {}
        places = []
        for place in chosen:
            if self.draw.random() < 0.3:
                counts[place.profile] = counts.get(place.profile, 0) + 1
            else:
                places.append(place)
        return Layout(tuple(places), counts)
