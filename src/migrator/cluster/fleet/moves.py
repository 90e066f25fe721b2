"""The head's orders to agents, moves of tenants (make before break), and its tasks.

A head that dies during a move leaves the tenant on at most two GPUs; the next head releases one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from migrator.cluster.fleet.map import ClusterState
from migrator.cluster.fleet.messages import AgentLinks, Answer, DeposedError
from migrator.cluster.fleet.watch import Watch
from migrator.core.errors import InputError, MigratorError

SEEN_S = 5.0
"""Seconds for an agent to report a new tenant as ready."""
ROUTED_S = 1.0
"""Seconds until gateways have the new map. The old GPU refuses requests of late gateways,
which then refresh it."""
_LOOK_S = 0.1


class TenantMoves:
    """Sends the orders of one head."""

    def __init__(
        self,
        links: AgentLinks,
        watch: Watch,
        state: ClusterState,
        tasks: KeyedTasks,
        look: Callable[[], Awaitable[None]],
        publish: Callable[[], Awaitable[None]],
    ) -> None:
        """`look` collects all reports; `publish` returns when gateways can get the new map."""
        self._links, self._watch, self._state, self._tasks = links, watch, state, tasks
        self._look, self._publish = look, publish

    async def move(self, tenant: str, gpu: str) -> str:
        """Serve the tenant on the new GPU, route requests there, then release it on the old one."""
        source = self._state.homes.get(tenant)
        if source is None or gpu not in self._watch.open:
            raise InputError(
                f"{tenant} cannot move to {gpu}: one of them is not there, or {gpu} is drained; "
                "see status"
            )
        if source == gpu:
            return f"{tenant} is on {gpu} already"
        return await self._tasks.run(tenant, self._make_then_break(tenant, source, gpu))

    async def take(self, tenant: str, gpu: str) -> None:
        """Serve the tenant on that GPU."""
        answer, known = await self.order(gpu, "take", tenant), self._state
        if answer.done:
            await self._seen(tenant, gpu)
            known.homes[tenant] = gpu
            known.words.pop(tenant, None)
            known.note(f"{tenant} is served on {gpu}")
            await self._publish()
        else:
            known.words[tenant] = answer.words
            known.note(f"{tenant} is not on {gpu}: {answer.words}")
            self._tasks.delay(tenant)

    async def release(self, tenant: str, gpu: str) -> None:
        """Release a tenant that is served elsewhere; its new GPU then gets the new labels."""
        answer = await self.order(gpu, "release", tenant)
        if answer.done:
            await self._brought(tenant)
        else:
            self._tasks.delay(tenant)

    async def order(self, gpu: str, order: str, *what: object) -> Answer:
        """Return the agent's answer; DeposedError if a newer head leads."""
        epoch = self._state.epoch
        asked = asyncio.ensure_future(self._links.order(gpu, order, epoch, *what))
        while not asked.done():
            await asyncio.wait([asked], timeout=_LOOK_S)
            # a machine without power never responds
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
        known = self._state
        answer = await self.order(gpu, "take", tenant)
        if not answer.done:
            raise MigratorError(f"{tenant} stays on {source}: {answer.words}")
        if not await self._seen(tenant, gpu):
            raise MigratorError(f"{tenant} stays on {source}: {gpu} does not say that it serves it")
        known.homes[tenant] = gpu
        known.moves += 1
        known.note(f"{tenant} moved from {source} to {gpu}")
        await self._publish()
        await asyncio.sleep(ROUTED_S)
        await self.release(tenant, source)
        return f"{tenant} moved from {source} to {gpu}"

    async def _seen(self, tenant: str, gpu: str) -> bool:
        """Wait until the agent reports the tenant as ready."""
        for _ in range(round(SEEN_S / _LOOK_S)):
            await self._look()
            there = self._watch.heard[gpu].report.tenants.get(tenant)
            if there is not None and there.ready:
                return True
            await asyncio.sleep(_LOOK_S)
        return False

    async def _brought(self, tenant: str) -> None:
        """Let the new daemon load shared data: `take` does that for a tenant it already has."""
        home = self._state.homes.get(tenant)
        if home is not None:
            await self.order(home, "take", tenant)


AGAIN_S = 2.0
"""Seconds before a failed task is retried."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


class KeyedTasks:
    """Background tasks, at most one per key; the key is usually the tenant."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._busy: dict[str, asyncio.Task[Any]] = {}
        self._not_before: dict[str, float] = {}
        self.deposed: DeposedError | None = None
        """Set when a task finds that a newer head leads."""

    @property
    def busy(self) -> bool:
        """Whether a task runs."""
        return bool(self._busy)

    def may_start(self, name: str) -> bool:
        """Whether a task may be started under that key now."""
        return name not in self._busy and self._not_before.get(name, 0.0) <= self._clock()

    def delay(self, name: str, after_s: float | None = None) -> None:
        """Do not start a task of that key before `after_s` seconds have passed."""
        self._not_before[name] = self._clock() + (AGAIN_S if after_s is None else after_s)

    def retry_all(self) -> None:
        """Drop all delays: failed tasks may succeed now."""
        self._not_before.clear()

    def start(self, name: str, doing: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine in the background, unless a task of that key runs."""
        if name in self._busy:
            doing.close()
        else:
            self._busy[name] = asyncio.create_task(self._done(name, doing))

    async def run(self, name: str, doing: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result; MigratorError if a task of that key runs."""
        if name in self._busy:
            doing.close()
            raise MigratorError(f"{name} is on its way already; try again in some seconds")
        self._busy[name] = task = asyncio.create_task(doing)
        try:
            return await asyncio.shield(task)
        finally:
            # cancelling the caller does not cancel the task
            task.add_done_callback(lambda _: self._busy.pop(name, None))

    async def _done(self, name: str, doing: Coroutine[Any, Any, object]) -> None:
        try:
            await doing
        except DeposedError as error:
            self.deposed = error
        except MigratorError as error:
            _log.warning("%s: %s", name, error)
        except Exception:
            _log.exception("%s failed: unexpected error", name)
        finally:
            self._busy.pop(name, None)
