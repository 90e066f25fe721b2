"""The head of a cluster: knows who lives where, brings tenants back, moves them where it pays.

It keeps nothing: a new head asks the agents and knows what the one before knew. Its epoch is
higher than any an agent has heard, and agents refuse orders of older ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from migrator.cluster.fleet.cluster_run import ClusterRun
from migrator.cluster.fleet.errands import Errands
from migrator.cluster.fleet.homes import homeless, homes_from, missing, strays
from migrator.cluster.fleet.knowledge import Knowledge
from migrator.cluster.fleet.links import DeposedError, Links
from migrator.cluster.fleet.moving import Moving
from migrator.cluster.fleet.placer import NEVER, Aside, Placer, in_a_thread
from migrator.cluster.fleet.reports import ClusterMap, Report
from migrator.cluster.fleet.watch import Watch
from migrator.cluster.placement.simulate import require_all_placed
from migrator.core.errors import InputError, MigratorError

BEAT_S = 0.5
"""Between two looks at the agents."""
FIRST_S, GATHER_S = 60.0, 4.0
"""A head waits so long for agents that say nothing: before anything is served, and after."""
TOLD_S = 2.0
"""A store that does not take the map holds nobody up for longer."""
STORE_S = 10.0
"""A store that takes longer to take the map is named as the trouble."""
NO_ROOM_S = 20.0
"""Who has no room is placed again so often; at once where a GPU comes."""
STOP_S = 40.0
_PUBLISHING, _PLACING, _BRINGING = "the map", "placing", "bringing back"
_EMPTYING = "emptying drained GPUs"
"""Errands that are nobody's own; no tenant's name has a blank."""


class Head:
    """One head; `run` is its life."""

    def __init__(
        self,
        cluster: ClusterRun,
        links: Links,
        *,
        publish: Callable[[ClusterMap], None] = lambda _: None,
        aside: Aside = in_a_thread,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`publish`: called for a new map, in a thread of its own; again where it fails.

        `aside`: where placements are thought about.
        """
        self.cluster, self._links, self._publish, self._clock = cluster, links, publish, clock
        self.scenario = cluster.scenario
        self.watch = Watch(links, clock)
        self.known = Knowledge([each.name for each in self.scenario.tenants])
        self._placer = Placer(self.scenario, aside)
        self._errands = Errands(clock)
        self._moving = Moving(
            links, self.watch, self.known, self._errands, self._look, self._told_all
        )
        self.move = self._moving.move
        self._published = self.known.map.order
        self._publishing_s: float | None = None
        """Since when a map is being written."""
        self.store_trouble = ""
        """Why the shared store cannot be used now, if it cannot."""
        self._window = 0

    async def run(self, stop: asyncio.Event, least: int = 1) -> None:
        """Lead until told to stop; DeposedError where another head has begun to.

        `least`: its epoch at least, above any that gateways may know of.
        """
        await self._gather(least)
        while not stop.is_set():
            began_s = self._clock()
            await self.beat()
            left_s = BEAT_S - (self._clock() - began_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), max(0.01, left_s))

    async def beat(self) -> None:
        """One look at everybody, and what follows from it."""
        if self._errands.deposed is not None:
            raise self._errands.deposed
        await self._look()
        for words in self.watch.judge():
            self.known.note(words)
            self._errands.at_once()
        self._begin_those_that_wait()
        self._bring_back()
        self._empty_drained()
        self._tidy()
        self._consider()
        self._tell()

    async def drain(self, gpu: str, drained: bool) -> str:
        """Move every tenant off that GPU, or let tenants be placed on it again.

        Its agent remembers it, so that the next head goes on with it. Returns at once; InputError
        where a tenant would have no room elsewhere.
        """
        if gpu not in self.watch.alive:
            raise InputError(f"{gpu} is not there; see `migrator status --cluster`")
        if drained:
            others = [each for each in self.watch.open if each != gpu]
            names = self._to_move({gpu})
            found = self._room_at_once(names, others)
            found |= await self._room_searched([e for e in names if e not in found], others)
            if without := [each for each in names if each not in found]:
                raise InputError(
                    f"no other GPU has room for {', '.join(without)}; add one, or undrain another"
                )
        answer = await self._moving.order(gpu, "drain", drained)
        if not answer.done:
            raise MigratorError(f"{gpu} cannot be drained now: {answer.words}")
        await self._look()
        self._errands.at_once()
        words = f"{gpu} is drained" if drained else f"{gpu} takes tenants again"
        self.known.note(words)
        return words

    async def stop_all(self) -> tuple[str, ...]:
        """End every daemon; GPUs whose agents did not say that it was done."""
        gpus = tuple(self.watch.heard)
        stopped = await asyncio.gather(*map(self._stopped, gpus))
        return tuple(gpu for gpu, done in zip(gpus, stopped, strict=True) if not done)

    async def _stopped(self, gpu: str) -> bool:
        order = self._links.order(gpu, "stop", self.known.epoch)
        with suppress(TimeoutError):
            answer = await asyncio.wait_for(order, STOP_S)
            return answer is not None and answer.done
        return False

    async def _gather(self, least: int) -> None:
        """Hear everybody once, lead with a higher epoch, and know who lives where."""
        await self._hear_all()
        reports = self._heard()
        self.known.epoch = max(least, 1 + max(each.epoch for each in reports.values()))
        await self._look()
        # as agents were told: the store may not have been there to say it
        told = (e.began_s for e in self._heard().values() if e.begun and e.began_s)
        since_s = next(told, self.cluster.began_s)
        if since_s != self.cluster.began_s:
            self.cluster = replace(self.cluster, began_s=since_s)
        self._window = self._window_now()
        self.known.homes = homes_from(self._heard())
        if not self.known.homes and not any(each.begun for each in reports.values()):
            plan = await self._placer.placed(self.watch.open, {})
            require_all_placed(plan)
            self.known.homes = dict(plan.placement)
        self.known.note(f"epoch {self.known.epoch} leads {len(reports)} GPUs")

    async def _hear_all(self) -> None:
        began_s = self._clock()
        while True:
            there = await self._links.known()
            await self._look()
            reports = self._heard()
            if there and set(there) <= set(reports):
                return
            begun = any(each.begun for each in reports.values())
            waited_s = self._clock() - began_s
            if reports and waited_s > (GATHER_S if begun else FIRST_S):
                return
            if waited_s > FIRST_S:
                raise MigratorError(f"no agent answers: {self._links.trouble or 'Ray is busy'}")
            await asyncio.sleep(BEAT_S)

    def _heard(self) -> Mapping[str, Report]:
        return {gpu: each.report for gpu, each in self.watch.heard.items()}

    async def _look(self) -> None:
        for report in await self.watch.look(self.known.epoch):
            self._placer.measured.heard(report, self._clock())

    def _begin_those_that_wait(self) -> None:
        for gpu, report in self.watch.reports.items():
            if not report.begun:
                names = tuple(name for name, home in self.known.homes.items() if home == gpu)
                self._errands.begin(f"begin {gpu}", self._moving.order(gpu, "begin", names))

    def _bring_back(self) -> None:
        """Tenants that nobody serves are served elsewhere, the others stay where they are."""
        lost = homeless(self.known.tenants, self.known.homes, self.watch.alive)
        wanting = [each for each in lost if self._errands.may(each)]
        if wanting:
            self._errands.begin(_BRINGING, self._rehome(wanting))

    def _empty_drained(self) -> None:
        """Tenants leave GPUs that an operator has drained: make before break."""
        drained = set(self.watch.alive).difference(self.watch.open)
        names = [each for each in self._to_move(drained) if self._errands.may(each)]
        if names and self._errands.may(_EMPTYING):
            self._errands.begin(_EMPTYING, self._move_off(names))

    def _to_move(self, gpus: Collection[str]) -> list[str]:
        """Tenants that live there, but those that an operator has drained: they are not served."""
        reports = self.watch.reports
        here = [(name, reports[gpu]) for name, gpu in self.known.homes.items() if gpu in gpus]
        return [n for n, r in here if n not in r.tenants or not r.tenants[n].drained]

    async def _move_off(self, names: list[str]) -> None:
        found = self._room_at_once(names, self.watch.open)
        left = [each for each in names if each not in found]
        found |= await self._room_searched(left, self.watch.open)
        for name, gpu in found.items():
            if gpu in self.watch.open:
                await self._moved(name, gpu)
        self._errands.later(_EMPTYING)

    def _tidy(self) -> None:
        reports, homes = self.watch.reports, self.known.homes
        for gpu, name in strays(homes, reports, self.watch.answering):
            if self._errands.may(name):
                self._errands.begin(name, self._moving.let_go(name, gpu))
        for name in missing(homes, reports):
            if self._errands.may(name):
                self._errands.begin(name, self._moving.take(name, homes[name]))

    def _consider(self) -> None:
        """Once a window, where nothing else is going on: does another placement pay?"""
        reports, homes, window = self.watch.reports, self.known.homes, self._window_now()
        if self._errands.any or not set(homes.values()) <= set(self.watch.open):
            return
        if all(each.up for each in reports.values()):
            if window > self._window:
                self._window = window
                self._errands.begin(_PLACING, self._moves_that_pay())
            elif not self._placer.knows(homes, self.watch.open):
                self._errands.begin(_PLACING, self._placer.look_ahead(homes, self.watch.open))

    def _window_now(self) -> int:
        return int((time.time() - self.cluster.began_s) / self.scenario.window_s)

    def _tell(self) -> None:
        """A new map where something in it has changed."""
        self.known.renew_map(self.watch.serving)
        if self._publishing_s is not None and self._clock() - self._publishing_s > STORE_S:
            self.store_trouble = f"no map was written for {STORE_S:g} s"
        if self.known.map.order != self._published and self._errands.may(_PUBLISHING):
            self._errands.begin(_PUBLISHING, self._publish_newest())

    async def _publish_newest(self) -> None:
        newest, self._publishing_s = self.known.map, self._clock()
        try:
            await asyncio.to_thread(self._publish, newest)
        except BaseException as error:
            self._errands.later(_PUBLISHING)
            self.store_trouble = str(error) or type(error).__name__
            raise
        finally:
            self._publishing_s = None
        self._published, self.store_trouble = newest.order, ""

    async def _told_all(self) -> None:
        """Gateways can have the newest map, wherever they get it from; or cannot for a while."""
        until_s = self._clock() + TOLD_S
        self._tell()
        wanted = self.known.map.order
        while self._published < wanted and self._clock() < until_s:
            await asyncio.sleep(BEAT_S / 10)
            self._tell()

    async def _rehome(self, names: list[str]) -> None:
        """Elsewhere: as was thought out before, or at once wherever there is room."""
        found = self._room_at_once(names, self.watch.open)
        for name, gpu in found.items():
            self._errands.begin(name, self._moving.take(name, gpu))
        left = [each for each in names if each not in found]
        for name, gpu in (await self._room_searched(left, self.watch.open)).items():
            self._errands.begin(name, self._moving.take(name, gpu))

    def _room_at_once(self, names: list[str], gpus: Sequence[str]) -> dict[str, str]:
        """Tenant -> one of these GPUs, for those that find room; the others stay where they are."""
        homes, alive = self.known.homes, self.watch.alive
        planned = self._placer.thought_out(names, homes, gpus)
        if planned is None:
            kept = {n: gpu for n, gpu in homes.items() if gpu in alive and n not in names}
            planned = self._placer.refuge(names, kept, gpus)
        return {name: planned[name] for name in names if name in planned}

    async def _room_searched(self, names: list[str], gpus: Sequence[str]) -> dict[str, str]:
        """The same by a placement of all, which takes seconds; why a tenant has no room is kept."""
        if not names:
            return {}
        kept = {n: g for n, g in self.known.homes.items() if g in gpus and n not in names}
        plan = await self._placer.placed(gpus, kept, NEVER)
        self.known.words |= {each.tenant: each.why for each in plan.unplaced}
        for name in names:
            self._errands.later(name, NO_ROOM_S)
        return {} if plan.moved else {n: plan.placement[n] for n in names if n in plan.placement}

    async def _moves_that_pay(self) -> None:
        plan = await self._placer.placed(self.watch.open, self.known.homes)
        if plan.unplaced:
            return
        wanted = {name: plan.placement[name] for name in plan.moved if self._may_move(name)}
        while (move := self._placer.next_move(wanted, self.known.homes)) is not None:
            del wanted[move[0]]
            if move[1] in self.watch.open:
                await self._moved(*move)

    def _may_move(self, name: str) -> bool:
        """Not while it is retrained, and not where an operator has drained it."""
        here = self.watch.heard[self.known.homes[name]].report.tenants.get(name)
        return here is not None and not here.retraining and not here.drained

    async def _moved(self, name: str, gpu: str) -> None:
        try:
            await self.move(name, gpu)
        except DeposedError:
            raise
        except MigratorError as error:
            self.known.note(str(error))
            self._errands.later(name)
