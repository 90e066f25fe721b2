"""The live system: requests come in, every window is forecast and planned, instances are changed
while requests flow, models are retrained beside them and swapped in.

One event loop holds the API, the router and the executor. Everything slow is elsewhere: models in
worker processes, plans in the policy's process, trainings in theirs, the GPU in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from migrator.control.events import CreateFailed, Event, Instruction, Ready, Replan, TrainingEnded
from migrator.control.executor import Executor
from migrator.core.errors import MigratorError
from migrator.forecast.registry import forecaster
from migrator.live import parts
from migrator.live.actions import Actions
from migrator.live.admission import Admission
from migrator.live.decisions import Decisions
from migrator.live.drained import Drained
from migrator.live.duties import TenantDuties
from migrator.live.estimates import Estimates
from migrator.live.even_split import even_split
from migrator.live.forecast_error import ForecastError
from migrator.live.gateway import limits_of, offered, router_of, server_of
from migrator.live.goodput import Goodput
from migrator.live.handover import Handover
from migrator.live.hands import Hands
from migrator.live.labelling import stored
from migrator.live.learning import Learning, Where
from migrator.live.metrics import collectors
from migrator.live.overheads import Overheads, assumed_s
from migrator.live.recorder import Recorder
from migrator.live.serving import Serving
from migrator.live.status import status
from migrator.live.surroundings import Surroundings
from migrator.live.tallies import ADOPTED, REFUSED, Tallies
from migrator.live.tenant_run import TenantRun, tenant_run
from migrator.live.thinking import Thinking
from migrator.live.training_job import TrainingResult
from migrator.live.versions import Version, Versions
from migrator.live.watched import watched
from migrator.live.window_clock import WindowClock
from migrator.policies.foresight import Foresight
from migrator.policies.policy import Decision
from migrator.policies.registry import policy
from migrator.serve.links import ServingWorker
from migrator.serve.tensors import Offered

LOOK_S = 0.05
"""Between two looks at what the policy has answered."""
START_S = 120.0
LEAVE_S = 15.0
PREPARED = 2
"""Workers that wait ready for every tenant."""

_log = logging.getLogger(__name__)


class Daemon:
    """One scenario, served on one GPU."""

    def __init__(self, serving: Serving, told: Callable[[str], None] = _log.info) -> None:
        scenario = serving.live.scenario
        self.serving, self._told = serving, told
        self._policy = Foresight(policy(scenario.policy), forecaster(scenario.forecaster))
        self._overheads_s = assumed_s(serving.live.tenants)
        self.tenants: dict[str, TenantRun] = {
            live.name: tenant_run(served, live, scenario.slot_s, self._overheads_s[live.name])
            for served, live in zip(scenario.tenants, serving.live.tenants, strict=True)
        }
        self.clock = WindowClock(scenario.window_s, scenario.slot_s)
        self.router = router_of(serving)
        self.executor = Executor(scenario.board, overheads_s=self._overheads_s)
        self.thinking = Thinking(
            self._policy, scenario.board, self.clock, self.tenants, self._unplanned
        )
        self.tallies = Tallies()
        self.decisions = Decisions(self.tallies, self.clock, scenario.policy)
        self.forecast_error = ForecastError(self.clock)
        self.url: str | None = None
        self._planning = False
        self._renewed: set[str] = set()
        """Tenants that have more to learn after a late retraining, which nobody was asked about."""
        self._followed = 0
        self._offered: dict[str, Offered] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop, then drain and free what was made."""
        self._limits = limits_of(self.serving)
        async with AsyncExitStack() as stack:
            opening = parts.opened(self.serving, self._learned_before)
            self.parts = await stack.enter_async_context(opening)
            stack.callback(self.thinking.close)
            self._wire()
            stack.push_async_callback(self.hands.close)
            await self._start(stack)
            await self._loop(stop)
            self._told("draining")
            await self._server.stop()
            await self._leave()

    def _wire(self) -> None:
        """What acts and what writes down, on the parts that were opened."""
        serving, board = self.serving, self.serving.live.scenario.board
        labels, records = self.parts.labels, self.parts.records
        last = records.last_window()
        begun = labels.last_window if last is None else max(last, labels.last_window)
        self.clock.first = max(begun + 1, self._window_of_all())
        self.recorder = Recorder(
            records, self.router, labels, self.clock, self.tenants, board, self.tallies
        )
        self.recorder.report_damaged(self.parts.lane.damaged, labels.damaged, records.damaged)
        self.goodput = Goodput(self.router.counts, self.tenants, self.clock, labels.counts)
        self._models = models = serving.models
        self.handover = Handover(
            self.tenants,
            self._workers_of,
            self._versions_of,
            serving.shared,
            self.recorder,
            self.decisions,
        )
        self.learning = Learning(
            Where(serving.folder, labels.path, board, serving.device, serving.emulated),
            self.tenants,
            models,
            self.parts.trainings,
            self.handover.swap,
            self._trained,
        )
        duties = TenantDuties(
            self.tenants, models, self.learning, board, serving.device, emulated=serving.emulated
        )
        self.hands = Hands(self.parts.lane, self.parts.workers, self.router, duties, self._heard)
        self.surroundings = Surroundings(
            self.parts.lane, board, self.thinking, self.recorder, self._beside_others
        )
        self._overheads = Overheads(
            self._overheads_s,
            self.tenants,
            self.clock,
            self.executor,
            self.hands,
            self.recorder,
            self.decisions,
        )
        self._estimates = Estimates(
            self.tenants,
            self.clock,
            labels,
            self.learning,
            None if serving.emulated else self.hands,
            lambda: self.thinking.board,
        )
        self.actions = Actions(
            self.tenants,
            self.router,
            self.executor,
            self.thinking,
            self.learning,
            self.clock,
            Drained(serving.folder / "drained.json"),
            self.hands.workers_of,
            self._do,
            self.recorder.action,
            self.recorder.begin_version,
        )
        self.actions.begin()
        self.admission = Admission(
            serving=serving,
            tenants=self.tenants,
            models=models,
            offered=self._offered,
            overheads_s=self._overheads_s,
            router=self.router,
            executor=self.executor,
            thinking=self.thinking,
            learning=self.learning,
            workers=self.parts.workers,
            trainings=self.parts.trainings,
            labels=labels,
            recorder=self.recorder,
            clock=self.clock,
            do=self._do,
            split=self._split_evenly,
            planning=lambda: self._planning,
            claim=self._claim,
            followed=lambda: self._followed,
        )

    def _workers_of(self, tenant: str) -> list[ServingWorker]:
        return self.hands.workers_of(tenant)

    def _versions_of(self, tenant: str) -> Versions:
        return self.learning.versions_of(tenant)

    async def _claim(self, tenant: str) -> bool:
        return await self.handover.share(tenant, claim=True)

    def _window_of_all(self) -> int:
        """Which one it is where several daemons count together."""
        since_s = self.serving.windows_since_s
        return 0 if since_s is None else int((time.time() - since_s) / self.clock.window_s)

    async def _start(self, stack: AsyncExitStack) -> None:
        """The API up, and something ready for everybody before the first window begins."""
        workers = self.parts.workers
        self._told("importing and building the models")
        self.clock.start()
        self.thinking.rehearse()
        await asyncio.gather(*map(self.admission.begin, self.tenants))
        await asyncio.gather(workers.start(), self.learning.first_versions(self._whole_gpu))
        # windows that a version has learned are over, though no label or record of them is left
        self.clock.first = max([self.clock.first, *(e.since for e in self.tenants.values())])
        self.clock.start()
        await asyncio.gather(*map(self.admission.claim_first, self.tenants))
        self._aside(self.admission.catch_up())
        self._offered |= {
            name: offered(name, workers.inputs[name], spec.classes)
            for name, spec in self._models.items()
        }
        self._server = server = server_of(
            self.serving,
            self._limits,
            self.router,
            self.tenants,
            self._offered,
            self.clock,
            partial(stored, self.parts.labels, self.tallies, self.recorder.label_refused),
            lambda: status(self),
            self.actions.act,
            collectors(watched(self)),
            self._admit,
            self.admission.dismiss,
        )
        await server.start()
        stack.push_async_callback(server.stop)
        self.url = server.url
        self.parts.records.add_about(url=self.url)
        await asyncio.gather(*(workers.prepare(name, PREPARED) for name in self.tenants))
        self._told("creating the first instances")
        await self.parts.lane.cleared()
        self.clock.start()
        await self.surroundings.look()
        self._split_evenly()
        try:
            await asyncio.wait_for(self._all_ready(), START_S)
        except TimeoutError as error:
            raise MigratorError(
                f"no instance served every tenant within {START_S:g} s; see {workers.log} and "
                "`migrator gpu show`"
            ) from error
        for name, tenant in self.tenants.items():
            if tenant.version is not None:
                self.recorder.begin_version(name, tenant.version)
        self._told(f"serving at {self.url}")

    def _split_evenly(self) -> None:
        """Until the first plan."""
        tenants, clock = self.tenants.values(), self.clock
        even = even_split(self._policy.sharing, self.thinking.board, tenants, clock)
        self._do(self.executor.follow(clock.now_s(), [even], clock.slot_s))

    def _beside_others(self, words: str) -> None:
        """Others hold something else than before."""
        if self._planning:
            self.thinking.changed(words)
        else:
            self._split_evenly()

    async def _all_ready(self) -> None:
        # looked at anew each time: a tenant may go before it was ever ready
        while not all(self.router.ready(n) for n, each in self.tenants.items() if each.planned):
            await asyncio.sleep(LOOK_S)
            self._do(self.executor.tick(self.clock.now_s()))

    async def _loop(self, stop: asyncio.Event) -> None:
        ending = asyncio.create_task(stop.wait())
        try:
            self.clock.start()
            if self.serving.from_first_request:
                await self._first_request(ending)
            self._begin_window()
            while not ending.done():
                await self._slot(ending)
                if self._last_window_is_over():
                    return
        finally:
            ending.cancel()

    async def _first_request(self, ending: asyncio.Task[bool]) -> None:
        """The window that is shown begins over and over until somebody asks."""
        counts = self.router.counts.values()
        while not ending.done() and not any(each.total.received for each in counts):
            self.clock.start()
            await asyncio.wait([ending], timeout=LOOK_S)

    async def _slot(self, ending: asyncio.Task[bool]) -> None:
        """Until the next slot begins: the policy's answers are taken as they come."""
        until_s = self.clock.now_s() + self.clock.until_next_slot_s()
        while (left_s := until_s - self.clock.now_s()) > 0 and not ending.done():
            self._think()
            await asyncio.wait([ending], timeout=min(LOOK_S, left_s))
        came = self.recorder.slot(self.executor.units, int(self.router.clock()))
        for name, count in came.items():
            self.tenants[name].saw(count)
        self.forecast_error.slot(came)
        if self.clock.over:
            self._end_window()
            self.clock.advance()
            if not self._last_window_is_over():
                self._begin_window()
        for estimate in self._estimates.due():
            self._aside(estimate)
        self._do(self.executor.tick(self.clock.now_s()))
        await self.recorder.flush()

    def _begin_window(self) -> None:
        self._estimates.begin_window()
        # what the retrainings of this window take is ready when they begin
        self._aside(self.parts.trainings.prepare(len(self.tenants)))
        scenario = self.serving.live.scenario
        self.recorder.begin_window(scenario.policy, scenario.forecaster)
        self._planning = True
        self._aside(self.surroundings.look())
        self.thinking.begin_window()
        self._think()

    def _learned_before(self, name: str) -> int | None:
        tenant = self.tenants.get(name)
        return None if tenant is None else tenant.learned_before

    def _end_window(self) -> None:
        self._estimates.end_window(paused=self.executor.paused)
        first = int(self.clock.began_s)
        self.recorder.end_window(first, first + round(self.clock.window_s))
        self.goodput.end_window()
        self.forecast_error.end_window()

    def _last_window_is_over(self) -> bool:
        windows = self.serving.windows
        return windows is not None and self.clock.number - self.clock.first >= windows

    def _think(self) -> None:
        found = self.thinking.answer()
        if found is not None:
            self._follow(*found)
        why = self.thinking.ask(self.executor.units, self._overheads_s)
        if why is not None:
            # only now: what was asked before did not know that there is more to learn
            while self._renewed:
                self.executor.renew(self._renewed.pop())
            self.recorder.asked(why)
            self.decisions.asked(why)

    def _follow(self, decision: Decision, seconds: float) -> None:
        """What was decided, where it can be; else what is held serves on."""
        now_s, slot_s, window = self.clock.now_s(), self.clock.slot_s, self.clock.number
        try:
            # its slots are the clock's: one that begins late does not make the others late
            since_s = self.clock.slot_began_s
            told = self.executor.follow(
                now_s,
                decision.slots,
                slot_s,
                window=window,
                since_s=since_s,
                available=self.thinking.board,
            )
        except Exception as error:  # a policy may be anybody's, and answer anything
            self.thinking.refuse(f"{type(error).__name__}: {error}")
            return
        self._followed += 1
        self.recorder.decided(decision, seconds)
        self.decisions.taken(decision, seconds)
        if decision.problem is not None:
            self.forecast_error.foretold(decision.problem)
        self._do(told)

    def _unplanned(self, why: str) -> None:
        _log.warning("%s", why)
        self.recorder.event("plan", why)

    @asynccontextmanager
    async def _whole_gpu(self) -> AsyncIterator[Mapping[str, str] | None]:
        """Where models are pre-trained; emulated GPUs compute nothing."""
        if self.serving.emulated:
            yield None
        else:
            async with self.parts.lane.whole() as environment:
                yield environment

    def _heard(self, event: Event) -> None:
        """What became of an instruction, and what follows from it."""
        self.decisions.heard(event)
        if isinstance(event, Ready):
            self._overheads.measure(event)
        elif isinstance(event, TrainingEnded):
            self.thinking.completed()
            trained = self.tenants.get(event.tenant)  # None: it went meanwhile
            if trained is not None and trained.outlasted(self.clock.number):
                self._estimates.begin(trained, None)
                self._renewed.add(trained.name)
            if trained is not None and trained.drained:
                self.thinking.changed(f"the retraining of {event.tenant}, which is drained, ended")
            if not event.ok:
                words = f"{event.tenant}: {event.why}"
                self.recorder.event("retraining", words, tenant=event.tenant)
        elif why := getattr(event, "why", ""):
            if isinstance(event, CreateFailed):
                self._aside(self.surroundings.look())
            held = str(event.instance)
            self.recorder.event(type(event).__name__, f"{held}: {why}", instance=held)
        self._do(self.executor.on(self.clock.now_s(), event))
        self.recorder.units(self.executor.units)

    def _do(self, instructions: list[Instruction]) -> None:
        for each in instructions:
            if isinstance(each, Replan):
                self.thinking.because(each.reason)
                self.recorder.event("replan", each.reason)
            self.decisions.told(each)
            self.hands.do(each)

    async def _admit(self, entry: object) -> str:
        """A tenant comes; the records know of it from now on."""
        words = await self.admission.admit(entry)
        # those that have gone stay in the records as well
        self.parts.records.add_about(tenants=list(self.router.counts))
        return words

    def _trained(self, tenant: str, result: TrainingResult, version: Version | None) -> None:
        number = version.number if version else 0
        self.tallies.retrainings[tenant, ADOPTED if result.adopted else REFUSED] += 1
        self.recorder.version(tenant, number, result.accuracy_after, result.adopted, result.why)

    async def _leave(self) -> None:
        """Drain, end, free; a training that still runs is left to its checkpoints."""
        await self.parts.trainings.close()
        self.decisions.leaving()
        self._do(self.executor.leave(self.clock.now_s()))
        until_s = self.clock.now_s() + LEAVE_S
        while self.executor.units and self.clock.now_s() < until_s:
            await asyncio.sleep(LOOK_S)
            self._do(self.executor.tick(self.clock.now_s()))
        self.recorder.units(self.executor.units)

    def _aside(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
