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

from migrator.core.errors import MigratorError
from migrator.core.share import bare
from migrator.execute.events import CreateFailed, Event, Instruction, Ready, Replan, TrainingEnded
from migrator.execute.executor import Executor
from migrator.forecast.registry import forecaster
from migrator.gpu.driver import Place
from migrator.policies.foresight import Foresight
from migrator.policies.policy import Decision
from migrator.policies.registry import policy
from migrator.runtime import parts
from migrator.runtime.actions import Actions
from migrator.runtime.admission import Admission
from migrator.runtime.decisions import Decisions
from migrator.runtime.drained import Drained
from migrator.runtime.duties import TenantDuties
from migrator.runtime.even_split import even_split
from migrator.runtime.forecast_error import ForecastError
from migrator.runtime.gateway import offered, router_of, server_of
from migrator.runtime.goodput import Goodput
from migrator.runtime.handover import Handover
from migrator.runtime.hands import Hands
from migrator.runtime.labelling import stored
from migrator.runtime.learning import Learning, Where, enough
from migrator.runtime.metrics import collectors
from migrator.runtime.recorder import Recorder
from migrator.runtime.room import board_beside
from migrator.runtime.serving import Serving
from migrator.runtime.status import status
from migrator.runtime.tallies import ADOPTED, REFUSED, Tallies
from migrator.runtime.tenant_run import FEWEST_LABELS, TenantRun, tenant_run
from migrator.runtime.thinking import Thinking
from migrator.runtime.training_job import TrainingResult
from migrator.runtime.versions import Version, Versions
from migrator.runtime.watched import watched
from migrator.runtime.window_clock import WindowClock
from migrator.serve.links import ServingWorker
from migrator.serve.tensors import Offered

LOOK_S = 0.05
"""Between two looks at what the policy has answered."""
START_S = 120.0
LEAVE_S = 15.0
ESTIMATE_AHEAD = 0.35
"""Of a window: so long before its end the next retraining is estimated."""
MOST_ESTIMATE_AHEAD_S = 30.0
PREPARED = 2
"""Workers that wait ready for every tenant."""
_FOLLOWED = 0.5
"""How fast measured overheads replace what was known before."""

_log = logging.getLogger(__name__)


class Daemon:
    """One scenario, served on one GPU."""

    def __init__(self, serving: Serving, told: Callable[[str], None] = _log.info) -> None:
        scenario = serving.live.scenario
        self.serving, self._told = serving, told
        self._policy = Foresight(policy(scenario.policy), forecaster(scenario.forecaster))
        self._overheads_s = {
            each.name: each.service.profile.overhead.total_s(mig=True, prepared=True)
            for each in scenario.tenants
        }
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
        self._estimated: int | None = None
        self._others: tuple[Place, ...] = ()
        self._planning = False
        self._followed = 0
        self._offered: dict[str, Offered] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop, then drain and free what was made."""
        async with AsyncExitStack() as stack:
            self.parts = await stack.enter_async_context(parts.opened(self.serving))
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
        self.clock.first = max(0 if last is None else last + 1, self._window_of_all())
        self.recorder = Recorder(
            records, self.router, labels, self.clock, self.tenants, board, self.tallies
        )
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
            serving,
            self.tenants,
            models,
            self._offered,
            self._overheads_s,
            self.router,
            self.executor,
            self.thinking,
            self.learning,
            self.parts.workers,
            self.parts.trainings,
            labels,
            self.recorder,
            self.clock,
            self._do,
            self._split_evenly,
            lambda: self._planning,
            self._claim,
            lambda: self._followed,
        )

    def _workers_of(self, tenant: str) -> list[ServingWorker]:
        return self.hands.workers_of(tenant)

    def _versions_of(self, tenant: str) -> Versions:
        return self.learning.versions_of(tenant)

    async def _claim(self, tenant: str) -> None:
        await self.handover.share(tenant, claim=True)

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
        await asyncio.gather(*map(self.admission.bring, self.tenants))
        await asyncio.gather(workers.start(), self.learning.first_versions(self._whole_gpu))
        await asyncio.gather(*map(self._claim, self.tenants))
        self._offered |= {
            name: offered(name, workers.inputs[name], spec.classes)
            for name, spec in self._models.items()
        }
        self._server = server = server_of(
            self.serving,
            self.router,
            self.tenants,
            self._offered,
            self.clock,
            partial(stored, self.parts.labels, self.tallies),
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
        self.clock.start()
        await self._look_around()
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

    async def _look_around(self) -> None:
        """What others have on the board is planned around, from now on and while it is there."""
        try:
            others = await self.parts.lane.others()
            beside = board_beside(self.serving.live.scenario.board, others)
        except MigratorError as error:
            _log.warning("nobody could tell what else is on the GPU: %s", error)
            return
        if others == self._others:
            return
        self._others, self.thinking.board = others, beside
        words = f"others hold {', '.join(map(str, others)) or 'nothing any more'}"
        self.recorder.event("board", f"{words} on the GPU, which is planned around")
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
        self._estimate_in_time()
        self._do(self.executor.tick(self.clock.now_s()))
        await self.recorder.flush()

    def _begin_window(self) -> None:
        for tenant in self.tenants.values():
            last = self.parts.labels.counts(tenant.name, self.clock.number - 1)
            # a few late labels, perhaps of a version that is gone, say nothing about the model
            right = 1 - last.wrong / last.judged if last.judged >= FEWEST_LABELS else None
            tenant.begin(self.clock.number, self._unlearned(tenant), right)
        # what the retrainings of this window take is ready when they begin
        self._aside(self.parts.trainings.prepare(len(self.tenants)))
        scenario = self.serving.live.scenario
        self.recorder.begin_window(scenario.policy, scenario.forecaster)
        self._planning = True
        self._aside(self._look_around())
        self.thinking.begin_window()
        self._think()

    def _unlearned(self, tenant: TenantRun, before: int | None = None) -> int:
        """Labels from before a window, by default this one, that its model has not learned yet."""
        until = self.clock.number if before is None else before
        counts = self.parts.labels.counts
        return sum(counts(tenant.name, each).labelled for each in range(tenant.since, until))

    def _end_window(self) -> None:
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
            self.recorder.asked(why)
            self.decisions.asked(why)

    def _follow(self, decision: Decision, seconds: float) -> None:
        """What was decided, where it can be; else what is held serves on."""
        now_s, slot_s, window = self.clock.now_s(), self.clock.slot_s, self.clock.number
        try:
            # its slots are the clock's: one that begins late does not make the others late
            since_s = self.clock.slot_began_s
            told = self.executor.follow(
                now_s, decision.slots, slot_s, window=window, since_s=since_s
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

    def _estimate_in_time(self) -> None:
        """Before the window ends, what retraining on it would bring; late is better than never."""
        ahead_s = min(MOST_ESTIMATE_AHEAD_S, ESTIMATE_AHEAD * self.clock.window_s)
        window = self.clock.number
        if self._estimated == window or self.clock.into_s < self.clock.window_s - ahead_s:
            return
        self._estimated = window
        for name, tenant in self.tenants.items():
            if tenant.planned and enough(self._unlearned(tenant, window + 1)):
                self._aside(self.learning.estimate(name, window, self._beside(name)))

    @asynccontextmanager
    async def _whole_gpu(self) -> AsyncIterator[Mapping[str, str] | None]:
        """Where models are pre-trained; emulated GPUs compute nothing."""
        if self.serving.emulated:
            yield None
        else:
            async with self.parts.lane.whole() as environment:
                yield environment

    def _beside(self, tenant: str) -> Mapping[str, str] | None:
        """An instance of the tenant for its estimate, which takes seconds; None: on the host."""
        serving = [] if self.serving.emulated else self.hands.workers_of(tenant)
        return serving[0].assignment.environment if serving else None

    def _heard(self, event: Event) -> None:
        """What became of an instruction, and what follows from it."""
        self.decisions.heard(event)
        if isinstance(event, Ready):
            self._measured(event)
        elif isinstance(event, TrainingEnded):
            self.thinking.completed()
            trained = self.tenants.get(event.tenant)  # None: it went meanwhile
            if trained is not None and trained.outlasted(self.clock.number):
                trained.begin(self.clock.number, self._unlearned(trained), None)
                self.executor.renew(trained.name)
            if trained is not None and trained.drained:
                self.thinking.changed(f"the retraining of {event.tenant}, which is drained, ended")
            if not event.ok:
                words = f"{event.tenant}: {event.why}"
                self.recorder.event("retraining", words, tenant=event.tenant)
        elif why := getattr(event, "why", ""):
            if isinstance(event, CreateFailed):
                self._aside(self._look_around())
            held = str(event.instance)
            self.recorder.event(type(event).__name__, f"{held}: {why}", instance=held)
        self._do(self.executor.on(self.clock.now_s(), event))
        self.recorder.units(self.executor.units)

    def _measured(self, event: Ready) -> None:
        place = bare(event.instance)
        overhead = self.hands.overheads.get(place)
        if overhead is None:
            return
        parts = overhead.parts_s
        # what had to go before it counts too, where it could not be prepared ahead
        late_s = self.executor.late_s(self.clock.now_s(), event.instance)
        took_s = max(late_s, parts["create_s"] + parts["warm_s"])
        before_s = self._overheads_s[overhead.tenant]
        self._overheads_s[overhead.tenant] = before_s + _FOLLOWED * (took_s - before_s)
        self.tenants[overhead.tenant].overhead_s = self._overheads_s[overhead.tenant]
        self.recorder.units(self.executor.units)
        self.recorder.overhead(place, parts)
        self.decisions.measured(overhead.tenant, parts, late_s)

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
