"""The live system: requests come in, every window is forecast and planned, instances are changed
while requests flow, models are retrained beside them and swapped in.

One event loop holds the API, the router and the executor. Everything slow is elsewhere: models in
worker processes, plans in the policy's process, trainings in theirs, the GPU in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from migrator.core.errors import MigratorError
from migrator.core.instance import Instance, Kind
from migrator.execute.events import Event, Instruction, Ready, Replan, TrainingEnded
from migrator.execute.executor import Executor
from migrator.forecast.registry import forecaster
from migrator.policies.equal_mig import equal_allocation
from migrator.policies.foresight import Foresight
from migrator.policies.policy import Observation
from migrator.policies.registry import policy
from migrator.runtime import parts
from migrator.runtime.duties import TenantDuties
from migrator.runtime.gateway import router_of, server_of
from migrator.runtime.hands import Hands
from migrator.runtime.learning import Learning, Where, enough
from migrator.runtime.recorder import Recorder
from migrator.runtime.serving import Serving
from migrator.runtime.status import status
from migrator.runtime.tenant_run import TenantRun, tenant_run
from migrator.runtime.thinking import Thinking
from migrator.runtime.training_job import TrainingResult
from migrator.runtime.versions import Version
from migrator.runtime.window_clock import WindowClock
from migrator.serve.backend import Feedback

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
        self.thinking = Thinking(self._policy, scenario.board, self.clock, self.tenants)
        self.url: str | None = None
        self._estimated: int | None = None
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
        self.clock.first = 0 if last is None else last + 1
        self.recorder = Recorder(records, self.router, labels, self.clock, self.tenants)
        models = serving.models
        self.learning = Learning(
            Where(serving.folder, labels.path, board, serving.device, serving.emulated),
            self.tenants,
            models,
            self.parts.trainings,
            self._swap,
            self._trained,
        )
        duties = TenantDuties(
            self.tenants, models, self.learning, board, serving.device, emulated=serving.emulated
        )
        self.hands = Hands(self.parts.lane, self.parts.workers, self.router, duties, self._heard)

    async def _start(self, stack: AsyncExitStack) -> None:
        """The API up, and something ready for everybody before the first window begins."""
        workers = self.parts.workers
        self._told("importing and building the models")
        await asyncio.gather(workers.start(), self.learning.first_versions())
        self._server = server = server_of(
            self.serving,
            self.router,
            self.tenants,
            workers.inputs,
            self.clock,
            self._labelled,
            lambda: status(self),
        )
        await server.start()
        stack.push_async_callback(server.stop)
        self.url = server.url
        self.parts.records.add_about(url=self.url)
        await asyncio.gather(*(workers.prepare(name, PREPARED) for name in self.tenants))
        self._told("creating the first instances")
        self.clock.start()
        self._do(self.executor.follow(self.clock.now_s(), [self._even()], self.clock.slot_s))
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

    async def _all_ready(self) -> None:
        while not all(map(self.router.ready, self.tenants)):
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
            right = 1 - last.wrong / last.judged if last.judged else None
            tenant.begin(self.clock.number, self._unlearned(tenant), right)
        # what the retrainings of this window take is ready when they begin
        self._aside(self.parts.trainings.prepare(len(self.tenants)))
        scenario = self.serving.live.scenario
        self.recorder.begin_window(scenario.policy, scenario.forecaster)
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

    def _last_window_is_over(self) -> bool:
        windows = self.serving.windows
        return windows is not None and self.clock.number - self.clock.first >= windows

    def _think(self) -> None:
        found = self.thinking.answer()
        if found is not None:
            decision, seconds = found
            self.recorder.decided(decision, seconds)
            self._do(
                self.executor.follow(
                    self.clock.now_s(),
                    decision.slots,
                    self.clock.slot_s,
                    window=self.clock.number,
                )
            )
        why = self.thinking.ask(self.executor.units, self._overheads_s)
        if why is not None:
            self.recorder.event("plan", f"asked for a plan: {why}")

    def _estimate_in_time(self) -> None:
        """Before the window ends, what retraining on it would bring; late is better than never."""
        ahead_s = min(MOST_ESTIMATE_AHEAD_S, ESTIMATE_AHEAD * self.clock.window_s)
        window = self.clock.number
        if self._estimated == window or self.clock.into_s < self.clock.window_s - ahead_s:
            return
        self._estimated = window
        for name in self.tenants:
            if enough(self._unlearned(self.tenants[name], window + 1)):
                self._aside(self.learning.estimate(name, window))

    def _heard(self, event: Event) -> None:
        """What became of an instruction, and what follows from it."""
        if isinstance(event, Ready):
            self._measured(event)
        elif isinstance(event, TrainingEnded):
            self.thinking.completed()
            if not event.ok:
                self.recorder.event("retraining", f"{event.tenant}: {event.why}")
        elif why := getattr(event, "why", ""):
            self.recorder.event(type(event).__name__, f"{event.instance}: {why}")
        self._do(self.executor.on(self.clock.now_s(), event))
        self.recorder.units(self.executor.units)

    def _measured(self, event: Ready) -> None:
        place = (event.instance.start, event.instance.gpcs)
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

    def _do(self, instructions: list[Instruction]) -> None:
        for each in instructions:
            if isinstance(each, Replan):
                self.thinking.because(each.reason)
                self.recorder.event("replan", each.reason)
            self.hands.do(each)

    async def _swap(self, tenant: str, version: Version) -> None:
        """Every worker of the tenant serves the new version; requests in flight keep theirs."""
        for worker in self.hands.workers_of(tenant):
            try:
                seconds = await worker.swap(version.weights, version.number)
            except MigratorError as error:
                self.recorder.event("swap", f"{tenant}: {worker.name} keeps its model: {error}")
            else:
                self.recorder.event(
                    "swap", f"{tenant}: version {version.number} in {1e3 * seconds:.0f} ms"
                )

    def _trained(self, tenant: str, result: TrainingResult, version: Version | None) -> None:
        number = version.number if version else 0
        self.recorder.version(tenant, number, result.accuracy_after, result.adopted, result.why)

    async def _labelled(self, feedback: Feedback) -> None:
        await self.parts.labels.add(
            feedback.tenant,
            feedback.window,
            feedback.inputs,
            feedback.label,
            feedback.predicted,
            feedback.request_id,
        )

    async def _leave(self) -> None:
        """Drain, end, free; a training that still runs is left to its checkpoints."""
        await self.parts.trainings.close()
        self._do(self.executor.leave(self.clock.now_s()))
        until_s = self.clock.now_s() + LEAVE_S
        while self.executor.units and self.clock.now_s() < until_s:
            await asyncio.sleep(LOOK_S)
            self._do(self.executor.tick(self.clock.now_s()))
        self.recorder.units(self.executor.units)

    def _even(self) -> tuple[Instance, ...]:
        """Before any plan: the board split evenly."""
        board = self.serving.live.scenario.board
        views = tuple(each.view() for each in self.tenants.values())
        nothing = Observation(board, self.clock.slot_s, self.clock.slots, 0, views, ())
        found = equal_allocation(nothing)
        return tuple(
            each
            for each in found
            if isinstance(each, Instance) and each.task and each.task.kind is Kind.INFERENCE
        )

    def _aside(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
