"""Tenants taken on and let go as the head says, and moved: make before break.

A head that dies in between leaves a tenant on two GPUs at most; the next one lets one of them go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from migrator.cluster.fleet.errands import Errands
from migrator.cluster.fleet.knowledge import Knowledge
from migrator.cluster.fleet.links import DeposedError, Links
from migrator.cluster.fleet.reports import Answer
from migrator.cluster.fleet.watch import Watch
from migrator.core.errors import InputError, MigratorError

SEEN_S = 5.0
"""An agent says within so long that it has a tenant."""
ROUTED_S = 1.0
"""Gateways have the new map by then; one that has not is refused by the old home, and asks."""
_LOOK_S = 0.1


class Moving:
    """Gives the orders of one head."""

    def __init__(
        self,
        links: Links,
        watch: Watch,
        known: Knowledge,
        errands: Errands,
        look: Callable[[], Awaitable[None]],
        told: Callable[[], Awaitable[None]],
    ) -> None:
        """`look`: hear every agent now; `told`: returns when everybody can have the new map."""
        self._links, self._watch, self._known, self._errands = links, watch, known, errands
        self._look, self._told = look, told

    async def move(self, tenant: str, gpu: str) -> str:
        """Serve it there, send requests there, then let it go here."""
        source = self._known.homes.get(tenant)
        if source is None or gpu not in self._watch.open:
            raise InputError(
                f"{tenant} cannot move to {gpu}: one of them is not there, or {gpu} is drained; "
                "see status"
            )
        if source == gpu:
            return f"{tenant} is on {gpu} already"
        return await self._errands.alone(tenant, self._make_then_break(tenant, source, gpu))

    async def take(self, tenant: str, gpu: str) -> None:
        """It lives there from now on."""
        answer, known = await self.order(gpu, "take", tenant), self._known
        if answer.done:
            await self._seen(tenant, gpu)
            known.homes[tenant] = gpu
            known.words.pop(tenant, None)
            known.note(f"{tenant} is served on {gpu}")
            await self._told()
        else:
            known.words[tenant] = answer.words
            known.note(f"{tenant} is not on {gpu}: {answer.words}")
            self._errands.later(tenant)

    async def let_go(self, tenant: str, gpu: str) -> None:
        """It lives elsewhere; what that GPU accepted meanwhile is brought there."""
        answer = await self.order(gpu, "release", tenant)
        if answer.done:
            await self._brought(tenant)
        else:
            self._errands.later(tenant)

    async def order(self, gpu: str, order: str, *what: object) -> Answer:
        """What came of an order; DeposedError where a newer head has given others."""
        epoch = self._known.epoch
        asked = asyncio.ensure_future(self._links.order(gpu, order, epoch, *what))
        while not asked.done():
            await asyncio.wait([asked], timeout=_LOOK_S)
            # a machine without power answers nothing at all
            if not asked.done() and gpu in self._watch.dead and gpu not in self._watch.answering:
                asked.cancel()
                return Answer(False, f"{gpu} went meanwhile", epoch)
        answer = asked.result()
        if answer is None:
            return Answer(False, f"the agent of {gpu} does not answer", epoch)
        if answer.epoch > epoch:
            raise DeposedError(answer.words)
        return answer

    async def _make_then_break(self, tenant: str, source: str, gpu: str) -> str:
        known = self._known
        answer = await self.order(gpu, "take", tenant)
        if not answer.done:
            raise MigratorError(f"{tenant} stays on {source}: {answer.words}")
        if not await self._seen(tenant, gpu):
            raise MigratorError(f"{tenant} stays on {source}: {gpu} does not say that it serves it")
        known.homes[tenant] = gpu
        known.moves += 1
        known.note(f"{tenant} moved from {source} to {gpu}")
        await self._told()
        await asyncio.sleep(ROUTED_S)
        await self.let_go(tenant, source)
        return f"{tenant} moved from {source} to {gpu}"

    async def _seen(self, tenant: str, gpu: str) -> bool:
        """Its agent says so too, so that the map can."""
        for _ in range(round(SEEN_S / _LOOK_S)):
            await self._look()
            there = self._watch.heard[gpu].report.tenants.get(tenant)
            if there is not None and there.ready:
                return True
            await asyncio.sleep(_LOOK_S)
        return False

    async def _brought(self, tenant: str) -> None:
        """Whoever has a tenant and is told to take it learns what others have shared of it."""
        home = self._known.homes.get(tenant)
        if home is not None:
            await self.order(home, "take", tenant)
