"""Changes of a GPU by two owners, killed anywhere, each followed by a recovery that is checked.

python -m support.gpu_chaos FOLDER --operations N
python -m support.gpu_chaos FOLDER --every-point STEP
Random operations on a GPU that others use too, or one course killed at each of its points, and each
recovery at every STEPth. Prints what happened as JSON; ends with a traceback where a promise is
broken.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from migrator.core.catalogue import Place, all_places, board, place_mask
from migrator.core.errors import InputError, MigratorError
from migrator.gpu.drivers import mig
from migrator.gpu.drivers.base import DriverKind, Gpu, GpuInstance
from migrator.gpu.journal import EntryState, Journal, JournalEntry, match_entries
from migrator.gpu.layout import Layout, Op, plan_steps
from migrator.gpu.partitioner import Partitioner
from support.fake_nvml.library import installed
from support.fake_nvml.machine import CHANGING, FakeNvml, FaultKind
from support.fake_nvml.state import gpu_uuid

OWNERS = ("migrator", "other")
BOARD = board("A100-40GB")
FAULTS = (
    FaultKind.IN_USE,
    FaultKind.TRANSIENT_DESTROY,
    FaultKind.INSUFFICIENT_RESOURCES,
    FaultKind.COMPUTE_REFUSED,
    FaultKind.NO_PERMISSION,
    FaultKind.GPU_LOST,
)
DONE, FAILED, AS_BEFORE, BROKEN = range(4)
"""Exit codes of a process; -9 if it was killed."""
Holdings = dict[str, frozenset[Place]]
"""Which places each owner has."""
Act = Callable[[dict[str, Partitioner]], object]


@dataclass(frozen=True)
class Operation:
    """An operation of one owner, and the owner's places after it."""

    owner: str
    act: Callable[[Partitioner], object]
    places: frozenset[Place]

    def __call__(self, partitioners: dict[str, Partitioner]) -> None:
        self.act(partitioners[self.owner])


def recover_all(partitioners: dict[str, Partitioner]) -> None:
    for partitioner in partitioners.values():
        partitioner.recover()


class Campaign:
    """One machine and its journal, on which processes work one after the other."""

    def __init__(self, folder: Path, foreign: dict[int, Place] | None = None) -> None:
        self.folder, self.draw = folder, random.Random(0)
        self.fake = FakeNvml(folder / "nvml", [BOARD.name])
        self.foreign = dict(foreign or {})
        """Places of foreign instances, by identity."""
        self.counts: Counter[str] = Counter()

    def copied(self, folder: Path) -> Campaign:
        return Campaign(shutil.copytree(self.folder, folder), self.foreign)

    def present(self) -> dict[int, GpuInstance]:
        """What is on the board, by serial numbers that are never given twice."""
        serials = {made.number: made.serial for made in self.fake.store.now().gpus[0].instances}
        return {serials[instance.number]: instance for instance in self.fake.instances()}

    def holdings(self) -> Holdings:
        """What each owner has, as journal and board say."""
        there = match_entries(self.fake.instances(), self._entries())
        return {
            owner: frozenset(place for place, (_, entry) in there.items() if entry.owner == owner)
            for owner in OWNERS
        }

    def _entries(self) -> tuple[JournalEntry, ...]:
        uuid = gpu_uuid(BOARD.name, 0)
        gpu = Gpu(0, uuid, "", BOARD, self.fake.boot_id(), "", True, DriverKind.MIG)
        with Journal(self.folder / "journal.db", read_only=True) as journal:
            return journal.entries(gpu)

    @contextmanager
    def _opened(self, points: int | None) -> Iterator[dict[str, Partitioner]]:
        """The owners' partitioners; this process is killed at the given point that it passes.

        Points are before each write to the journal, and before each change of the GPU.
        """
        left = count(points or 0, -1)

        def passed(name: str) -> None:
            if points is not None and next(left) == 1:
                with (self.folder / "points").open("a") as file:
                    print(name, file=file)
                os.kill(os.getpid(), signal.SIGKILL)

        def traced(statement: str) -> None:
            if statement.startswith(("INSERT", "UPDATE", "DELETE")):
                passed("journal")

        def before(name: str) -> None:
            if name in CHANGING:
                passed(name)

        with (
            installed(self.folder / "nvml", before=before) as fake,
            mig.open_mig(0, boot_id=fake.boot_id) as driver,
            Journal(self.folder / "journal.db", synchronous="OFF") as journal,
        ):
            journal._connection.set_trace_callback(traced)
            yield {
                owner: Partitioner(driver, journal, owner, sleep=lambda _: None) for owner in OWNERS
            }

    def run(self, act: Act, points: int | None = None) -> int:
        """The exit code of a process that does it."""
        child = os.fork()
        if child == 0:
            self._be(act, points)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code != BROKEN, "see above"
        self.counts["kills"] += code == -signal.SIGKILL
        return code

    def _be(self, act: Act, points: int | None) -> None:
        code = BROKEN
        try:
            with self._opened(points) as partitioners:
                act(partitioners)
            code = DONE
        except MigratorError as error:
            code = AS_BEFORE if "the GPU is as it was before" in str(error) else FAILED
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(code)

    def fixed(self) -> set[int]:
        """Instances that may not go: those of other programs, and those in use."""
        held = {identity for identity, there in self.present().items() if there.holders}
        return held | self.foreign.keys()

    def check(self, possible: list[Holdings] | None) -> None:
        """Recovers, and checks the board, the journal and what the owners have.

        `possible` is None where another program came before the recovery, which may then be barred.
        """
        self.fake.mend()
        fixed = self.fixed()
        with self._opened(None) as partitioners:
            unsettled: list[str] = []
            for owner in self.draw.sample(OWNERS, len(OWNERS)):
                unsettled += partitioners[owner].recover().unsettled
            assert possible is None or not unsettled, unsettled
            assert unsettled or not any(our.is_unfinished for our in partitioners.values())
        assert all(entry.state is EntryState.PRESENT for entry in self._entries())
        present, now = self.present(), self.holdings()
        assert fixed <= present.keys(), "an instance in use or not ours is gone"
        for identity, place in self.foreign.items():
            assert present[identity].place == place
        ours = [there for identity, there in present.items() if identity not in self.foreign]
        assert all(there.uuid for there in ours), f"half-made: {ours}"
        places = sorted(place for held in now.values() for place in held)
        assert places == sorted(there.place for there in ours)
        if possible is not None:
            assert now in possible, (now, possible)
            if possible[0] != possible[-1]:
                self.counts["forward" if now == possible[-1] else "back"] += 1

    # Random operations.

    def random_operation(self) -> None:
        """Others act, one of ours, perhaps with a fault or killed, and recovers."""
        while self.draw.random() < 0.4:
            self._others()
        before = self.holdings()
        operation = self._drawn(before)
        after = {**before, operation.owner: operation.places}
        faulty = self.draw.random() < 0.25
        if faulty:
            often, later = self.draw.choice([1, 2, 3, 12]), self.draw.choice([0, 0, 1, 2, 20])
            self.fake.fault(self.draw.choice(FAULTS), often, after=later)
        fixed = self.fixed()
        points = self.draw.randint(1, 12) if self.draw.random() < 0.6 else None
        code = self.run(operation, points)
        self.fake.mend()
        assert fixed <= self.present().keys(), "an instance in use or not ours is gone"
        if code == AS_BEFORE:
            assert self.holdings() == before
        possible: list[Holdings] | None = [before, after]
        if not faulty and code >= 0:
            possible = [before] if code else [after]
            assert self.holdings() == possible[0]
        if self.draw.random() < 0.1:
            self._others()
            possible = None
        if self.draw.random() < 0.2:
            self.run(recover_all, self.draw.randint(1, 8))
        self.check(possible)

    def _others(self) -> None:
        """Another program or the machine does something."""
        present = self.present()
        kind = self.draw.choices(
            ["make", "unmake", "take", "hold", "release", "reboot"], [3, 6, 3, 3, 6, 0.3]
        )[0]
        ours = {there for there in present if there not in self.foreign}
        if kind == "make":
            self._make(present.keys())
        elif kind == "unmake" and self.foreign:
            identity = self.draw.choice(sorted(self.foreign))
            self.fake.remove(self.foreign.pop(identity).start)
        elif kind == "take" and (free := [there for there in ours if not present[there].holders]):
            self.fake.remove(present[self.draw.choice(sorted(free))].place.start)
        elif kind == "hold" and (whole := [there for there in present.values() if there.uuid]):
            self.fake.hold(self.draw.choice(whole).place.start, os.getpid())
        elif kind == "release":
            self.fake.release()
        elif kind == "reboot":
            self.fake.reboot()
            self.foreign.clear()
            self.counts["reboots"] += 1

    def _make(self, there: Set[int]) -> None:
        """Only where the journal has nothing: what another makes there cannot be told from ours."""
        known = {entry.place for entry in self._entries()}
        place = self.draw.choice([place for place in all_places(BOARD) if place not in known])
        try:
            self.fake.foreign(place.start, place.profile, whole=self.draw.random() < 0.8)
        except InputError:  # no room
            return
        (made,) = self.present().keys() - there
        self.foreign[made] = place

    def _drawn(self, holdings: Holdings) -> Operation:
        owner = self.draw.choices(OWNERS, [2, 1])[0]
        mine, present = holdings[owner], self.fake.instances()
        kind = self.draw.choices(["apply", "clear", "create", "destroy"], [8, 1, 3, 3])[0]
        place = self.draw.choice(list(all_places(BOARD)))
        if kind == "create":
            return Operation(owner, lambda our: our.create(place), mine | {place})
        if kind == "destroy" and mine:
            gone = self.draw.choice(sorted(mine))
            return Operation(owner, lambda our: our.destroy(gone), mine - {gone})
        if kind == "clear":
            used = {there.place for there in present if there.holders}
            return Operation(owner, Partitioner.clear, mine & used)
        layout = self._layout()
        try:
            steps = plan_steps(BOARD, present, mine, layout)
        except MigratorError:
            steps = ()
        gone_places = {step.place for step in steps if step.op is Op.DESTROY}
        made = {step.place for step in steps if step.op is Op.CREATE}
        return Operation(owner, lambda our: our.apply(layout), mine - gone_places | made)

    def _layout(self) -> Layout:
        """Places and counts that mostly fit."""
        places, counts, taken = list[Place](), Counter[str](), 0
        every = list(all_places(BOARD))
        for place in self.draw.sample(every, self.draw.choice([1, 2, 6, len(every)])):
            if place_mask(BOARD, place) & taken:
                continue
            taken |= place_mask(BOARD, place)
            if self.draw.random() < 0.3:
                counts[place.profile] += 1
            else:
                places.append(place)
        return Layout(tuple(places), counts)


def _places(*places: tuple[int, str]) -> frozenset[Place]:
    return frozenset(Place(*place) for place in places)


FIRST = _places((0, "2g.10gb"), (2, "1g.5gb"), (3, "1g.5gb"), (4, "2g.10gb"))
THEN = _places((0, "2g.10gb"), (2, "2g.10gb"), (4, "1g.5gb"))
NEW, OLD = Place(5, "1g.5gb"), Place(2, "2g.10gb")
COURSE = (
    Operation(OWNERS[0], lambda our: our.apply(Layout(tuple(FIRST))), FIRST),
    Operation(OWNERS[0], lambda our: our.apply(Layout(tuple(THEN))), THEN),
    Operation(OWNERS[0], lambda our: our.create(NEW), THEN | {NEW}),
    Operation(OWNERS[0], lambda our: our.destroy(OLD), (THEN | {NEW}) - {OLD}),
    Operation(OWNERS[0], Partitioner.clear, _places((0, "2g.10gb"))),
)
"""Every kind of operation; a process uses the first instance from the second operation on."""


def every_point(folder: Path, step: int) -> Counter[str]:
    """Kill each operation at every point, and some of the recoveries too.

    A recovery is killed at every `step`th point, the next one at others.
    """
    counts: Counter[str] = Counter()
    base = Campaign(folder / "base")
    base.fake.foreign(6, "1g.5gb")
    base.foreign = {identity: there.place for identity, there in base.present().items()}
    for number, operation in enumerate(COURSE):
        before = base.holdings()
        possible = [before, {**before, operation.owner: operation.places}]
        for first in count(1):
            killed = base.copied(folder / f"{number}-{first}")
            if killed.run(operation, first) == DONE:
                break
            for second in count(1 + first % step, step):
                again = killed.copied(folder / f"{number}-{first}-{second}")
                code = again.run(recover_all, second)
                again.check(possible)
                counts += again.counts
                if code == DONE:
                    break
            counts += _points(killed)
        assert base.run(operation) == DONE
        base.check(possible[1:])
        if not number:
            base.fake.hold(0, os.getpid())
    return counts


def _points(campaign: Campaign) -> Counter[str]:
    """At which points a process was killed."""
    path = campaign.folder / "points"
    lines = path.read_text().splitlines() if path.exists() else []
    return campaign.counts + Counter(f"at {line}" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--operations", type=int)
    parser.add_argument("--every-point", type=int)
    chosen = parser.parse_args()
    gc.freeze()  # a collection in a child would copy every page of its parent
    if chosen.every_point:
        counts = every_point(chosen.folder, chosen.every_point)
    else:
        campaign = Campaign(chosen.folder)
        for _ in range(chosen.operations):
            campaign.random_operation()
        counts = _points(campaign)
    print(json.dumps(dict(sorted(counts.items()))))


if __name__ == "__main__":
    main()
