"""The head of a cluster: knows who lives where, brings tenants back, moves them where it pays.

It keeps nothing: a new head asks the agents and knows what the one before knew. Its epoch is
higher than any an agent has heard, and agents refuse orders of older ones.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from migrator.agents.cluster_run import ClusterRun
from migrator.agents.homes import homeless, homes_from, missing, next_map, strays
from migrator.agents.links import DeposedError, Links
from migrator.agents.placer import NEVER, Aside, Placer, in_a_thread
from migrator.agents.reports import Answer, ClusterMap
from migrator.agents.watch import Watch
from migrator.cluster.simulate import require_all_placed
from migrator.core.errors import InputError, MigratorError

BEAT_S = 0.5
"""Between two looks at the agents."""
FIRST_S, GATHER_S = 60.0, 4.0
"""A head waits so long for agents that say nothing: before anything is served, and after."""
SEEN_S = 5.0
AGAIN_S = 2.0
"""What went wrong is not tried again sooner."""
EVENTS = 100

_log = logging.getLogger(__name__)


class Head:
    """One head; `run` is its life."""

    def __init__(
        self,
        cluster: ClusterRun,
        links: Links,
        *,
        publish: Callable[[], None] = lambda: None,
        aside: Aside = in_a_thread,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`publish`: called when there is a new map, in a thread of its own.

        `aside`: where placements are thought about.
        """
        self.cluster, self._links, self._publish, self._clock = cluster, links, publish, clock
        self.scenario = cluster.scenario
        self.epoch = 0
        self.map = ClusterMap()
        self.homes: dict[str, str] = {}
        self.watch = Watch(links, clock)
        self.words: dict[str, str] = {}
        """Tenants with whom something is wrong, and what."""
        self.moves = 0
        self.events: deque[tuple[float, str]] = deque(maxlen=EVENTS)
        """When, and what, the newest last."""
        self._placer = Placer(self.scenario, aside)
        self._busy: dict[str, asyncio.Future[Any]] = {}
        self._not_before: dict[str, float] = {}
        self._thinking: asyncio.Task[None] | None = None
        self._window = 0
        self._deposed: DeposedError | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Lead until told to stop; DeposedError where another head has begun to."""
        await self._gather()
        while not stop.is_set():
            began_s = self._clock()
            await self.beat()
            left_s = BEAT_S - (self._clock() - began_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), max(0.01, left_s))

    async def beat(self) -> None:
        """One look at everybody, and what follows from it."""
        if self._deposed is not None:
            raise self._deposed
        await self._look()
        for words in self.watch.judge():
            self._note(words)
        self._begin_those_that_wait()
        self._bring_back()
        self._tidy()
        self._consider()
        self._tell()

    async def move(self, tenant: str, gpu: str) -> str:
        """Make before break: serve it there, send requests there, then let it go here."""
        source = self.homes.get(tenant)
        if source is None or gpu not in self.watch.alive:
            raise InputError(f"{tenant} cannot move to {gpu}: one of them is not there; see status")
        if tenant in self._busy:
            raise MigratorError(f"{tenant} is on its way already; try again in some seconds")
        moving = asyncio.ensure_future(self._make_then_break(tenant, source, gpu))
        self._busy[tenant] = moving
        try:
            return await moving
        finally:
            self._busy.pop(tenant, None)

    async def _make_then_break(self, tenant: str, source: str, gpu: str) -> str:
        answer = await self._order(gpu, "take", tenant)
        if not answer.done:
            raise MigratorError(f"{tenant} stays on {source}: {answer.words}")
        await self._seen(tenant, gpu)
        self.homes[tenant] = gpu
        self.moves += 1
        self._tell()
        self._note(f"{tenant} moved from {source} to {gpu}")
        await self._order(source, "release", tenant)
        return f"{tenant} moved from {source} to {gpu}"

    async def stop_all(self) -> None:
        """End every daemon."""
        await asyncio.gather(*(self._order(gpu, "stop") for gpu in self.watch.heard))

    async def _gather(self) -> None:
        """Hear everybody once, lead with a higher epoch, and know who lives where."""
        began_s = self._clock()
        while True:
            known = await self._links.known()
            await self._look()
            if known and set(known) <= set(self.watch.heard):
                break
            begun = any(each.report.begun for each in self.watch.heard.values())
            waited_s = self._clock() - began_s
            if self.watch.heard and waited_s > (GATHER_S if begun else FIRST_S):
                break
            if waited_s > FIRST_S:
                raise MigratorError(f"no agent answers: {self._links.trouble or 'Ray is busy'}")
            await asyncio.sleep(BEAT_S)
        self.epoch = 1 + max(each.report.epoch for each in self.watch.heard.values())
        await self._look()
        self.homes = homes_from({gpu: each.report for gpu, each in self.watch.heard.items()})
        if not self.homes and not any(each.report.begun for each in self.watch.heard.values()):
            await self._first_placement()
        self._note(f"epoch {self.epoch} leads {len(self.watch.heard)} GPUs")

    async def _look(self) -> None:
        for report in await self.watch.look(self.epoch):
            self._placer.measured.heard(report, self._clock())

    async def _first_placement(self) -> None:
        plan = await self._placer.placed(self.watch.alive, {})
        require_all_placed(plan)
        self.homes = dict(plan.placement)

    def _begin_those_that_wait(self) -> None:
        for gpu, report in self.watch.reports.items():
            if not report.begun:
                names = tuple(name for name, home in self.homes.items() if home == gpu)
                self._aside(f"begin {gpu}", self._begin(gpu, names))

    async def _begin(self, gpu: str, names: tuple[str, ...]) -> None:
        await self._order(gpu, "begin", names)

    def _bring_back(self) -> None:
        """Tenants that nobody serves are served elsewhere, the others stay where they are."""
        names = [each.name for each in self.scenario.tenants]
        lost = homeless(names, self.homes, self.watch.alive)
        wanting = [each for each in lost if self._may(each)]
        if wanting:
            self._aside("bring back", self._rehome(wanting))

    def _tidy(self) -> None:
        reports = self.watch.reports
        for gpu, name in strays(self.homes, reports):
            if self._may(name):
                self._aside(name, self._let_go(gpu, name))
        for name in missing(self.homes, reports):
            if self._may(name):
                self._aside(name, self._take(name, self.homes[name]))

    def _consider(self) -> None:
        """Once a window, where nothing else is going on: does another placement pay?"""
        window = int((time.time() - self.cluster.began_s) / self.scenario.window_s)
        reports = self.watch.reports
        served = set(self.homes.values()) <= set(reports)
        if self._busy or self._thinking is not None or not served:
            return
        if all(each.up for each in reports.values()):
            if window > self._window:
                self._window = window
                self._think(self._moves_that_pay())
            elif not self._placer.knows(self.homes, self.watch.alive):
                self._think(self._placer.look_ahead(self.homes, self.watch.alive))

    def _tell(self) -> None:
        """A new map where something in it has changed."""
        names = [each.name for each in self.scenario.tenants]
        found = next_map(self.map, self.epoch, names, self.homes, self.watch.reports, self.words)
        if found is not None:
            self.map = found
            self._aside(f"map {found.version}", asyncio.to_thread(self._publish))

    async def _rehome(self, names: list[str]) -> None:
        """Elsewhere: as was thought out before, or at once wherever there is room."""
        alive = self.watch.alive
        kept = {name: gpu for name, gpu in self.homes.items() if gpu in alive}
        planned = self._placer.thought_out(names, self.homes, alive)
        if planned is None:
            planned = self._placer.refuge(names, kept, alive)
        for name in names:
            if name in planned:
                self._aside(name, self._take(name, planned[name]))
        left = [each for each in names if each not in planned]
        if left:
            plan = await self._placer.placed(alive, kept, NEVER)
            self.words |= {each.tenant: each.why for each in plan.unplaced}
            self._not_before |= dict.fromkeys(left, self._clock() + AGAIN_S)
            for name in left:
                if name in plan.placement and not plan.moved:
                    self._aside(name, self._take(name, plan.placement[name]))

    async def _moves_that_pay(self) -> None:
        plan = await self._placer.placed(self.watch.alive, self.homes)
        if plan.unplaced:
            return
        wanted = {name: plan.placement[name] for name in plan.moved if not self._retrained(name)}
        while (move := self._placer.next_move(wanted, self.homes)) is not None:
            del wanted[move[0]]
            if move[1] in self.watch.alive:
                await self._moved(*move)

    def _retrained(self, name: str) -> bool:
        here = self.watch.heard[self.homes[name]].report.tenants.get(name)
        return here is None or here.retraining

    async def _moved(self, name: str, gpu: str) -> None:
        try:
            await self.move(name, gpu)
        except MigratorError as error:
            _log.warning("%s", error)
            self._not_before[name] = self._clock() + AGAIN_S

    async def _take(self, name: str, gpu: str) -> None:
        answer = await self._order(gpu, "take", name)
        if answer.done:
            await self._seen(name, gpu)
            self.homes[name] = gpu
            self.words.pop(name, None)
            self._note(f"{name} is served on {gpu}")
            self._tell()
        else:
            self.words[name] = answer.words
            self._note(f"{name} is not on {gpu}: {answer.words}")
            self._not_before[name] = self._clock() + AGAIN_S

    async def _seen(self, name: str, gpu: str) -> None:
        """Its agent says so too, so that the map can."""
        until_s = self._clock() + SEEN_S
        while self._clock() < until_s:
            await self._look()
            there = self.watch.heard[gpu].report.tenants.get(name)
            if there is not None and there.ready:
                return
            await asyncio.sleep(BEAT_S / 5)

    async def _let_go(self, gpu: str, name: str) -> None:
        answer = await self._order(gpu, "release", name)
        if not answer.done:
            self._not_before[name] = self._clock() + AGAIN_S

    async def _order(self, gpu: str, order: str, *what: object) -> Answer:
        asked = asyncio.ensure_future(self._links.order(gpu, order, self.epoch, *what))
        while not asked.done():
            await asyncio.wait([asked], timeout=BEAT_S)
            if gpu in self.watch.dead:  # a machine without power answers nothing at all
                asked.cancel()
                return Answer(False, f"{gpu} went meanwhile", self.epoch)
        answer = asked.result()
        if answer is None:
            return Answer(False, f"the agent of {gpu} does not answer", self.epoch)
        if answer.epoch > self.epoch:
            raise DeposedError(answer.words)
        return answer

    def _note(self, words: str) -> None:
        _log.info("%s", words)
        self.events.append((time.time(), words))

    def _may(self, name: str) -> bool:
        return name not in self._busy and self._not_before.get(name, 0.0) <= self._clock()

    def _think(self, doing: Coroutine[Any, Any, None]) -> None:
        async def thinking() -> None:
            try:
                await doing
            except MigratorError as error:
                _log.warning("no placement: %s", error)
            except Exception:
                _log.exception("placing failed in a way nobody thought of")
            finally:
                self._thinking = None

        self._thinking = asyncio.create_task(thinking())

    def _aside(self, key: str, doing: Coroutine[Any, Any, None]) -> None:
        """One thing at a time for every tenant."""
        if key in self._busy:
            doing.close()
            return

        async def done() -> None:
            try:
                await doing
            except DeposedError as error:
                self._deposed = error
            except Exception:
                _log.exception("%s failed in a way nobody thought of", key)
            finally:
                self._busy.pop(key, None)

        self._busy[key] = asyncio.create_task(done())
