"""Campaigns of lives that end in kills, each followed by a recovery that is held to its promises.

python -m support.gpu_chaos FOLDER --operations N
python -m support.gpu_chaos FOLDER --every-point STEP
Random operations, or one course killed at each of its points. Prints what happened as JSON; ends
with a traceback where a promise is broken.
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
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from migrator.core.catalogue import Place
from migrator.core.errors import MigratorError
from migrator.gpu.layout import Layout
from support.gpu_lives import OWNERS, Diary, Holdings, Life, Trap, opened_journal
from support.gpu_worlds import World


@dataclass
class Boot:
    """What was done between two reboots."""

    succeeded: int = 0
    created: int = 0


class Campaign:
    """One machine, many lives."""

    def __init__(self, folder: Path) -> None:
        self.world, self.folder = World(folder), folder
        self.draw = random.Random(0)
        self.diary = Diary(folder / "diary")
        self.foreign: dict[int, Place] = {}
        self.counts: Counter[str] = Counter()
        self.boots = [Boot()]
        self._begun: dict[str, Any] | None = None

    def life(
        self, lived: Callable[[Life], object], points: int | None, *, interrupts: bool = False
    ) -> bool:
        """Forks a life and waits for its end; whether it was killed."""
        child = os.fork()
        if child == 0:
            self._be(lived, points, interrupts)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        assert killed or status == 0, "a life broke a promise, see above"
        self.counts["kills"] += killed
        return killed

    def _be(self, lived: Callable[[Life], object], points: int | None, interrupts: bool) -> None:
        try:
            trap = Trap(points, interrupts, lambda point: self.diary.write(event="trap", at=point))
            with ExitStack() as stack:
                lived(self.opened(stack, trap))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def opened(self, stack: ExitStack, trap: Trap) -> Life:
        """A life in this process."""
        driver = stack.enter_context(self.world.opened(trap))
        journal = stack.enter_context(opened_journal(self.folder, trap))
        seed = random.Random(self.draw.random())
        return Life(self.world, driver, journal, self.diary, seed, dict(self.foreign), trap)

    def random_life(self, most: int) -> int:
        """One life with random operations, what may happen after it, and the recovery."""
        self.draw.random()
        points = self.draw.choice([None, *[self.draw.randint(1, 40)] * 9])
        interrupts = self.draw.random() < 0.15
        self.life(lambda life: life.lived(most), points, interrupts=interrupts)
        last, operations = self.digested()
        self.world.mend()
        disturbed = self._meanwhile() if self.draw.random() < 0.2 else False
        while self.draw.random() < 0.3:
            self.draw.random()
            recovery = self.draw.choice([_recover_all, _recover_with_faults])
            self.life(recovery, self.draw.randint(1, 8))
            self.world.mend()
            self.digested()
        self.check(last, disturbed)
        return operations

    def digested(self) -> tuple[dict[str, Any] | None, int]:
        """What the diary says: the last word about ours, and how much was done."""
        last: dict[str, Any] | None = None
        operations = 0
        for event in self.diary.read():
            kind = event["event"]
            operations += kind in ("begin", "others")
            if kind == "foreign":
                self.foreign[event["identity"]] = Place(*event["place"])
            elif kind == "removed":
                self.foreign.pop(event["identity"], None)
                last = None
            elif kind == "reboot":
                self._rebooted()
                last = {"event": "reboot"}
            elif kind in ("begin", "end"):
                last = event
                self._count(event)
                self.counts["failed"] += bool(event.get("failed"))
                self.counts["stubborn"] += bool(event.get("stubborn"))
            elif kind == "trap":
                self.counts[f"at {event['at']}"] += 1
        return last, operations

    def _rebooted(self) -> None:
        self.foreign.clear()
        self.boots.append(Boot())

    def _count(self, event: dict[str, Any]) -> None:
        """Operations that ended without an error, and those among them that made an instance."""
        if event["event"] == "begin":
            self._begun = event
        elif self._begun and not event.get("failed"):
            before, now = _holdings(self._begun["before"]), _holdings(event["holdings"])
            self.boots[-1].succeeded += 1
            self.boots[-1].created += any(now[owner] - before[owner] for owner in OWNERS)

    def _meanwhile(self) -> bool:
        """Between the crash and the recovery others go on; whether that can block us."""
        with ExitStack() as stack:
            life = self.opened(stack, Trap())
            open_places = life.open_places()
        kind = self.draw.choice(["reboot", "foreign", "remove"])
        self.counts[f"meanwhile {kind}"] += 1
        if kind == "reboot":
            self.world.reboot()
            self._rebooted()
        elif kind == "foreign":
            place = self.draw.choice(open_places)
            before = {instance.identity for instance in self.world.seen()}
            if self.world.foreign(place, whole=True):
                (new,) = (
                    instance for instance in self.world.seen() if instance.identity not in before
                )
                self.foreign[new.identity] = place
        else:
            seen = [instance for instance in self.world.seen() if not instance.held]
            for instance in seen[: self.draw.randint(1, 3)]:
                self.world.remove(instance.place)
                self.foreign.pop(instance.identity, None)
        return True

    def check(self, last: dict[str, Any] | None, disturbed: bool) -> None:
        """Recovers, and holds the result against the board and against what was meant."""
        self.world.mend()
        held = {instance.identity for instance in self.world.seen() if instance.held}
        with ExitStack() as stack:
            life = self.opened(stack, Trap())
            owners = list(OWNERS)
            self.draw.shuffle(owners)
            unsettled = [
                problem
                for owner in owners
                for problem in life.partitioner(owner).recover().unsettled
            ]
            assert disturbed or not unsettled, unsettled
            self._check_board(life, held)
            self._check_journal(life, bool(unsettled))
            if last and not disturbed:
                self._check_layout(life.holdings(), last)
        self.counts["recoveries"] += 1
        self.counts["unsettled"] += bool(unsettled)

    def _check_board(self, life: Life, held: set[int]) -> None:
        """No orphan of ours; no foreign instance touched; the rest is ours in the journal."""
        seen = {instance.identity: instance for instance in self.world.seen()}
        assert held <= seen.keys(), "an instance in use is gone"
        for identity, place in self.foreign.items():
            assert seen[identity].place == place, "a foreign instance was touched"
        ours = [instance for identity, instance in seen.items() if identity not in self.foreign]
        assert all(instance.whole for instance in ours), f"half-made: {ours}"
        journal = [place for places in life.holdings().values() for place in places]
        assert sorted(journal) == sorted(instance.place for instance in ours), (journal, ours)

    def _check_journal(self, life: Life, unsettled: bool) -> None:
        assert all(entry.state == "done" for entry in life.journal.entries(life.gpu))
        assert unsettled or not life.journal.unfinished(life.gpu)

    def _check_layout(self, now: Holdings, last: dict[str, Any]) -> None:
        """The layout before the last operation or the one it was to bring."""
        if last["event"] == "reboot":
            assert not any(now.values())
            return
        there = {instance.identity for instance in self.world.seen()}
        assert set(last.get("fixed", ())) <= there, "an instance in use or not ours is gone"
        names = ("before", "after") if last["event"] == "begin" else ("holdings",)
        possible = [_holdings(last[name]) for name in names]
        assert now in possible, (now, possible)
        if last["event"] == "begin" and possible[0] != possible[1]:
            self.counts["forward" if now == possible[1] else "back"] += 1


def _holdings(raw: dict[str, list[list[Any]]]) -> Holdings:
    return {owner: frozenset(Place(*place) for place in places) for owner, places in raw.items()}


def _recover_all(life: Life) -> None:
    for owner in OWNERS:
        life.partitioner(owner).recover()


def _recover_with_faults(life: Life) -> None:
    """What it cannot settle is the next one's."""
    life.world.fault(life.draw)
    with suppress(MigratorError):
        _recover_all(life)


LONG_BOOT = 10
"""Operations that succeeded after a reboot, of which some must have made instances."""


def course(life: Life) -> None:
    """Every kind of operation, with a foreign instance and one in use on the board."""
    world, partitioner = life.world, life.partitioner(OWNERS[0])
    with life.trap.off():
        assert world.foreign(Place(6, "1g.5gb"), whole=True)
    (other,) = world.seen()
    life.foreign[other.identity] = other.place
    life.diary.write(event="foreign", identity=other.identity, place=other.place)
    first = _places((0, "2g.10gb"), (2, "1g.5gb"), (3, "1g.5gb"), (4, "2g.10gb"))
    then = _places((0, "2g.10gb"), (2, "2g.10gb"), (4, "1g.5gb"))
    life.done(partitioner, lambda: partitioner.apply(Layout(tuple(first))), first)
    with life.trap.off():
        world.hold(Place(0, "2g.10gb"))
    life.done(partitioner, lambda: partitioner.apply(Layout(tuple(then))), then)
    new, old = Place(5, "1g.5gb"), Place(2, "2g.10gb")
    life.done(partitioner, lambda: partitioner.create(new), then | {new})
    life.done(partitioner, lambda: partitioner.destroy(old), (then | {new}) - {old})
    life.done(partitioner, partitioner.clear, _places((0, "2g.10gb")))


def _places(*places: tuple[int, str]) -> frozenset[Place]:
    return frozenset(Place(*place) for place in places)


def every_point(folder: Path, step: int) -> Counter[str]:
    """The course killed at every point, and each recovery killed too, at every point.

    With a `step` above 1 a recovery is killed at every so manieth point, another one's at others.
    """
    counts: Counter[str] = Counter()
    for first in count(1):
        begun = folder / f"{first}"
        begun.mkdir()
        campaign = Campaign(begun)
        if not campaign.life(course, first):
            campaign.check(campaign.digested()[0], disturbed=False)
            return counts
        last, _ = campaign.digested()
        counts += campaign.counts
        for second in count(1 + first % step, step):
            copied = shutil.copytree(begun, folder / f"{first}-{second}")
            again = Campaign(copied)
            again.foreign = campaign.foreign
            killed = again.life(_recover_all, second)
            again.digested()
            again.check(last, disturbed=False)
            counts += again.counts
            if not killed:
                break
    raise AssertionError


def random_campaign(campaign: Campaign, operations: int) -> None:
    """Run lives until this many operations were done."""
    while campaign.counts["operations"] < operations:
        campaign.counts["operations"] += campaign.random_life(16)
        campaign.counts["lives"] += 1
    long = [boot for boot in campaign.boots[1:] if boot.succeeded >= LONG_BOOT]
    campaign.counts["reboots"] = len(campaign.boots) - 1
    campaign.counts["long boots"] = len(long)
    campaign.counts["fewest creates"] = min((boot.created for boot in long), default=0)


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
        random_campaign(campaign, chosen.operations)
        counts = campaign.counts
    print(json.dumps(dict(sorted(counts.items()))))


if __name__ == "__main__":
    main()
