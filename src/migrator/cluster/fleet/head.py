"""The head of a cluster: places tenants on GPUs, replaces lost GPUs, moves tenants where it pays.

The head stores nothing: a new head learns the state from the agents. Its epoch is higher than any
that an agent has seen, and agents refuse orders with an older epoch. Tenants move make before
break; a head that dies during a move leaves the tenant on at most two GPUs, and the next head
releases one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from migrator.cluster.fleet.cluster_map import ClusterMap, next_map
from migrator.cluster.fleet.cluster_run import ClusterRun
from migrator.cluster.fleet.keyed_tasks import KeyedTasks
from migrator.cluster.fleet.messages import (
    AgentLinks,
    Answer,
    DeposedError,
    Report,
    homes_from,
    misplaced,
    missing_tenants,
    unserved,
)
from migrator.cluster.fleet.placer import NEVER, PlacementRunner, Placer, place_in_thread
from migrator.cluster.fleet.watch import Watch
from migrator.core.errors import InputError, MigratorError

RECONCILE_S = 0.5
"""Seconds between two rounds of reports from the agents."""
FIRST_S, GATHER_S = 60.0, 4.0
"""Seconds to wait for silent agents: before any tenant is served, and afterwards."""
PUBLISH_S = 2.0
"""Seconds to wait until a new map is published."""
STORE_S = 10.0
"""Seconds after which an unfinished write of the map is reported as a store problem."""
NO_ROOM_S = 20.0
"""Seconds between two attempts to place a tenant without room; a new GPU ends the wait."""
STOP_S = 40.0
READY_S = 5.0
"""Seconds for an agent to report a new tenant as ready."""
ROUTED_S = 1.0
"""Seconds until gateways have the new map. The old GPU refuses requests of late gateways,
which then refresh it."""
_POLL_S = 0.1
EVENTS = 100
_log = logging.getLogger(__name__)

_PUBLISHING, _PLACING, _BRINGING = "the map", "placing", "bringing back"
_EMPTYING = "emptying drained GPUs"
"""Keys of tasks that belong to no tenant; a tenant name contains no blank."""


@dataclass
class ClusterState:
    """The state of one head; a new head learns it from the agents."""

    tenants: Sequence[str]
    """All tenant names, in the scenario's order."""
    epoch: int = 0
    map: ClusterMap = field(default_factory=ClusterMap)
    homes: dict[str, str] = field(default_factory=dict)
    """Tenant -> GPU; the map says whether the tenant is served there yet."""
    problems: dict[str, str] = field(default_factory=dict)
    """Tenant -> why it is not served."""
    moves: int = 0
    events: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=EVENTS))
    """(time, description) pairs, newest last."""

    def note(self, event: str) -> None:
        _log.info("%s", event)
        self.events.append((time.time(), event))

    def renew_map(self, reports: Mapping[str, Report]) -> None:
        """Update the map from the reports of all daemons that accept requests."""
        newer = next_map(self.map, self.epoch, self.tenants, self.homes, reports, self.problems)
        if newer is not None:
            self.map = newer


class Head:
    """Controls one cluster while `run` runs."""

    def __init__(
        self,
        cluster: ClusterRun,
        links: AgentLinks,
        *,
        publish: Callable[[ClusterMap], None] = lambda _: None,
        run_placement: PlacementRunner = place_in_thread,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`publish`: called in a thread for every new map, and again after a failure.

        `run_placement`: computes placements outside the event loop.
        """
        self.cluster, self._links, self._publish, self._clock = cluster, links, publish, clock
        self.scenario = cluster.scenario
        self.watch = Watch(links, clock)
        self.state = ClusterState([tenant.name for tenant in self.scenario.tenants])
        self._placer = Placer(self.scenario, run_placement)
        self._tasks = KeyedTasks(clock)
        self._published = self.state.map.order
        self._publishing_s: float | None = None
        """When the current write of the map began; None if no write is in progress."""
        self.store_trouble = ""
        """Why the shared store cannot be used; "" if it can."""
        self._window = 0

    async def run(self, stop: asyncio.Event, least: int = 1) -> None:
        """Control the cluster until `stop` is set; DeposedError if a newer head takes over.

        `least`: minimum epoch, above any epoch that gateways may know.
        """
        await self._gather(least)
        while not stop.is_set():
            began_s = self._clock()
            await self.reconcile()
            left_s = RECONCILE_S - (self._clock() - began_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), max(0.01, left_s))

    async def reconcile(self) -> None:
        """Collect all reports and start the tasks that follow from them."""
        if self._tasks.deposed is not None:
            raise self._tasks.deposed
        await self._read_reports()
        for event in self.watch.update_lost():
            self.state.note(event)
            self._tasks.retry_all()
        self._begin_waiting_gpus()
        self._replace_lost_tenants()
        self._empty_drained_gpus()
        self._correct_placements()
        self._consider_moves()
        self._update_map()

    async def drain(self, gpu: str, drained: bool) -> str:
        """Move every tenant off the GPU, or allow placements on it again.

        The agent stores the flag, so that the next head continues the drain. Returns at once;
        InputError if a tenant has no room elsewhere.
        """
        if gpu not in self.watch.alive:
            raise InputError(f"{gpu} is not there; see `migrator status --cluster`")
        if drained:
            others = [other for other in self.watch.open if other != gpu]
            names = self._to_move({gpu})
            new_homes = await self._new_homes(names, others)
            if without := [name for name in names if name not in new_homes]:
                raise InputError(
                    f"no other GPU has room for {', '.join(without)}; add one, or undrain another"
                )
        answer = await self._order(gpu, "drain", drained)
        if not answer.done:
            raise MigratorError(f"{gpu} cannot be drained now: {answer.message}")
        await self._read_reports()
        self._tasks.retry_all()
        event = f"{gpu} is drained" if drained else f"{gpu} takes tenants again"
        self.state.note(event)
        return event

    async def move(self, tenant: str, gpu: str) -> str:
        """Serve the tenant on the new GPU, route requests there, then release it on the old one."""
        source = self.state.homes.get(tenant)
        if source is None or gpu not in self.watch.open:
            raise InputError(
                f"{tenant} cannot move to {gpu}: one of them is not there, or {gpu} is drained; "
                "see status"
            )
        if source == gpu:
            return f"{tenant} is on {gpu} already"
        return await self._tasks.run(tenant, self._make_then_break(tenant, source, gpu))

    async def _take(self, tenant: str, gpu: str) -> None:
        answer, state = await self._order(gpu, "take", tenant), self.state
        if answer.done:
            await self._wait_until_ready(tenant, gpu)
            state.homes[tenant] = gpu
            state.problems.pop(tenant, None)
            state.note(f"{tenant} is served on {gpu}")
            await self._wait_for_map()
        else:
            state.problems[tenant] = answer.message
            state.note(f"{tenant} is not on {gpu}: {answer.message}")
            self._tasks.delay(tenant)

    async def _release(self, tenant: str, gpu: str) -> None:
        """Release a tenant that is served elsewhere; its new GPU then gets the new labels."""
        answer = await self._order(gpu, "release", tenant)
        if not answer.done:
            self._tasks.delay(tenant)
        elif (home := self.state.homes.get(tenant)) is not None:
            # `take` lets a daemon that already has the tenant load shared data
            await self._order(home, "take", tenant)

    async def _order(self, gpu: str, order: str, *arguments: object) -> Answer:
        """Return the agent's answer; DeposedError if a newer head leads."""
        epoch = self.state.epoch
        request = asyncio.ensure_future(self._links.order(gpu, order, epoch, *arguments))
        while not request.done():
            await asyncio.wait([request], timeout=_POLL_S)
            # a machine without power never responds
            if not request.done() and gpu in self.watch.dead and gpu not in self.watch.answering:
                request.cancel()
                return Answer(False, f"{gpu} went meanwhile", epoch)
        answer = request.result()
        if answer is None:
            return Answer(False, f"the agent of {gpu} does not answer", epoch)
        if answer.epoch > epoch:
            raise DeposedError(answer.message)
        return answer

    async def _make_then_break(self, tenant: str, source: str, gpu: str) -> str:
        state = self.state
        answer = await self._order(gpu, "take", tenant)
        if not answer.done:
            raise MigratorError(f"{tenant} stays on {source}: {answer.message}")
        if not await self._wait_until_ready(tenant, gpu):
            raise MigratorError(f"{tenant} stays on {source}: {gpu} does not say that it serves it")
        state.homes[tenant] = gpu
        state.moves += 1
        state.note(f"{tenant} moved from {source} to {gpu}")
        await self._wait_for_map()
        await asyncio.sleep(ROUTED_S)
        await self._release(tenant, source)
        return f"{tenant} moved from {source} to {gpu}"

    async def _wait_until_ready(self, tenant: str, gpu: str) -> bool:
        """Wait until the agent reports the tenant as ready."""
        for _ in range(round(READY_S / _POLL_S)):
            await self._read_reports()
            served = self.watch.last[gpu].report.tenants.get(tenant)
            if served is not None and served.ready:
                return True
            await asyncio.sleep(_POLL_S)
        return False

    async def stop_all(self) -> tuple[str, ...]:
        """Stop every daemon; return the GPUs whose agents did not confirm it."""
        gpus = tuple(self.watch.last)
        stopped = await asyncio.gather(*map(self._stop, gpus))
        return tuple(gpu for gpu, done in zip(gpus, stopped, strict=True) if not done)

    async def _stop(self, gpu: str) -> bool:
        order = self._links.order(gpu, "stop", self.state.epoch)
        with suppress(TimeoutError):
            answer = await asyncio.wait_for(order, STOP_S)
            return answer is not None and answer.done
        return False

    async def _gather(self, least: int) -> None:
        """Collect every report once, choose a higher epoch, and learn the placement."""
        await self._wait_for_agents()
        reports = self._reports()
        self.state.epoch = max(least, 1 + max(report.epoch for report in reports.values()))
        await self._read_reports()
        # the start time that agents report: the store may have been unavailable
        began_s = (
            report.began_s for report in self._reports().values() if report.begun and report.began_s
        )
        since_s = next(began_s, self.cluster.began_s)
        if since_s != self.cluster.began_s:
            self.cluster = replace(self.cluster, began_s=since_s)
        self._window = self._window_now()
        self.state.homes = homes_from(self._reports())
        if not self.state.homes and not any(report.begun for report in reports.values()):
            plan = await self._placer.place(self.watch.open, {})
            plan.require_all_placed()
            self.state.homes = dict(plan.placement)
        self.state.note(f"epoch {self.state.epoch} leads {len(reports)} GPUs")

    async def _wait_for_agents(self) -> None:
        """Wait until every agent has reported, or until the time limit."""
        began_s = self._clock()
        while True:
            gpus = await self._links.gpus()
            await self._read_reports()
            reports = self._reports()
            if gpus and set(gpus) <= set(reports):
                return
            begun = any(report.begun for report in reports.values())
            waited_s = self._clock() - began_s
            if reports and waited_s > (GATHER_S if begun else FIRST_S):
                return
            if waited_s > FIRST_S:
                raise MigratorError(f"no agent answers: {self._links.trouble or 'Ray is busy'}")
            await asyncio.sleep(RECONCILE_S)

    def _reports(self) -> Mapping[str, Report]:
        return {gpu: report.report for gpu, report in self.watch.last.items()}

    async def _read_reports(self) -> None:
        for report in await self.watch.collect(self.state.epoch):
            self._placer.measured.add(report, self._clock())

    def _begin_waiting_gpus(self) -> None:
        for gpu, report in self.watch.reports.items():
            if not report.begun:
                names = tuple(name for name, home in self.state.homes.items() if home == gpu)
                self._tasks.start(f"begin {gpu}", self._order(gpu, "begin", names))

    def _replace_lost_tenants(self) -> None:
        """Place tenants that no GPU serves; the other tenants stay."""
        lost = unserved(self.state.tenants, self.state.homes, self.watch.alive)
        waiting = [name for name in lost if self._tasks.may_start(name)]
        if waiting:
            self._tasks.start(_BRINGING, self._place_lost(waiting))

    def _empty_drained_gpus(self) -> None:
        """Move tenants off drained GPUs, make before break."""
        drained = set(self.watch.alive).difference(self.watch.open)
        names = [name for name in self._to_move(drained) if self._tasks.may_start(name)]
        if names and self._tasks.may_start(_EMPTYING):
            self._tasks.start(_EMPTYING, self._move_off(names))

    def _to_move(self, gpus: Collection[str]) -> list[str]:
        """Tenants on these GPUs, except drained tenants, which are not served."""
        reports = self.watch.reports
        tenants = [(name, reports[gpu]) for name, gpu in self.state.homes.items() if gpu in gpus]
        return [n for n, r in tenants if n not in r.tenants or not r.tenants[n].drained]

    async def _move_off(self, names: list[str]) -> None:
        for name, gpu in (await self._new_homes(names, self.watch.open)).items():
            if gpu in self.watch.open:
                await self._try_move(name, gpu)
        self._tasks.delay(_EMPTYING)

    def _correct_placements(self) -> None:
        reports, homes = self.watch.reports, self.state.homes
        for gpu, name in misplaced(homes, reports, self.watch.answering):
            if self._tasks.may_start(name):
                self._tasks.start(name, self._release(name, gpu))
        for name in missing_tenants(homes, reports):
            if self._tasks.may_start(name):
                self._tasks.start(name, self._take(name, homes[name]))

    def _consider_moves(self) -> None:
        """Once per window, if no task runs, check whether another placement pays."""
        reports, homes, window = self.watch.reports, self.state.homes, self._window_now()
        if self._tasks.busy or not set(homes.values()) <= set(self.watch.open):
            return
        if window > self._window and all(report.up for report in reports.values()):
            self._window = window
            self._tasks.start(_PLACING, self._moves_that_pay())

    def _window_now(self) -> int:
        return int((time.time() - self.cluster.began_s) / self.scenario.window_s)

    def _update_map(self) -> None:
        """Publish a new map if its content has changed."""
        self.state.renew_map(self.watch.serving)
        if self._publishing_s is not None and self._clock() - self._publishing_s > STORE_S:
            self.store_trouble = f"no map was written for {STORE_S:g} s"
        if self.state.map.order != self._published and self._tasks.may_start(_PUBLISHING):
            self._tasks.start(_PUBLISHING, self._publish_newest())

    async def _publish_newest(self) -> None:
        newest, self._publishing_s = self.state.map, self._clock()
        try:
            await asyncio.to_thread(self._publish, newest)
        except BaseException as error:
            self._tasks.delay(_PUBLISHING)
            self.store_trouble = str(error) or type(error).__name__
            raise
        finally:
            self._publishing_s = None
        self._published, self.store_trouble = newest.order, ""

    async def _wait_for_map(self) -> None:
        """Wait until gateways can get the newest map, or until the time limit."""
        until_s = self._clock() + PUBLISH_S
        self._update_map()
        wanted = self.state.map.order
        while self._published < wanted and self._clock() < until_s:
            await asyncio.sleep(RECONCILE_S / 10)
            self._update_map()

    async def _place_lost(self, names: list[str]) -> None:
        """Place lost tenants at once where there is room, else wherever a search finds it."""
        new_homes = self._quick_homes(names, self.watch.open)
        for name, gpu in new_homes.items():
            self._tasks.start(name, self._take(name, gpu))
        unplaced = [name for name in names if name not in new_homes]
        for name, gpu in (await self._searched_homes(unplaced, self.watch.open)).items():
            self._tasks.start(name, self._take(name, gpu))

    def _quick_homes(self, names: list[str], gpus: Sequence[str]) -> dict[str, str]:
        """Tenant -> one of these GPUs, for tenants that fit without moving any other tenant."""
        alive = self.watch.alive
        homes = self.state.homes.items()
        staying = {name: gpu for name, gpu in homes if gpu in alive and name not in names}
        return self._placer.place_at_once(names, staying, gpus)

    async def _new_homes(self, names: list[str], gpus: Sequence[str]) -> dict[str, str]:
        """Tenant -> one of these GPUs: at once where there is room, else by a full search."""
        homes = self._quick_homes(names, gpus)
        unplaced = [name for name in names if name not in homes]
        return homes | await self._searched_homes(unplaced, gpus)

    async def _searched_homes(self, names: list[str], gpus: Sequence[str]) -> dict[str, str]:
        """Find room by a full search, which takes seconds; record why a tenant has no room."""
        if not names:
            return {}
        staying = {n: g for n, g in self.state.homes.items() if g in gpus and n not in names}
        plan = await self._placer.place(gpus, staying, NEVER)
        self.state.problems |= {unplaced.tenant: unplaced.why for unplaced in plan.unplaced}
        for name in names:
            self._tasks.delay(name, NO_ROOM_S)
        return {} if plan.moved else {n: plan.placement[n] for n in names if n in plan.placement}

    async def _moves_that_pay(self) -> None:
        plan = await self._placer.place(self.watch.open, self.state.homes)
        if plan.unplaced:
            return
        wanted = {name: plan.placement[name] for name in plan.moved if self._may_move(name)}
        while (move := self._placer.next_move(wanted, self.state.homes)) is not None:
            del wanted[move[0]]
            if move[1] in self.watch.open:
                await self._try_move(*move)

    def _may_move(self, name: str) -> bool:
        """Whether the tenant may move: not during its retraining and not while it is drained."""
        tenant = self.watch.last[self.state.homes[name]].report.tenants.get(name)
        return tenant is not None and not tenant.retraining and not tenant.drained

    async def _try_move(self, name: str, gpu: str) -> None:
        try:
            await self.move(name, gpu)
        except DeposedError:
            raise
        except MigratorError as error:
            self.state.note(str(error))
            self._tasks.delay(name)
