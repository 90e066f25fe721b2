"""Carries out the executor's instructions, and reports their outcomes to the executor, the planner
and the records."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from migrator.control.controller import Controller
from migrator.control.events import CreateFailed, Event, Instruction, Ready, Replan, TrainingEnded
from migrator.live.actuator import Actuator, TenantStateWork
from migrator.live.context import Context
from migrator.live.estimates import Estimates
from migrator.live.foreign_instances import ForeignInstances
from migrator.live.learning import Learning
from migrator.live.overheads import Overheads
from migrator.live.recording import Recorder

LOOK_S = 0.05
LEAVE_S = 15.0
"""Seconds for draining and destroying all instances at the end."""


class Actuation:
    """The only place where instructions are carried out and events arrive."""

    def __init__(
        self, context: Context, controller: Controller, learning: Learning, recorder: Recorder
    ) -> None:
        self._context, self._controller, self._recorder = context, controller, recorder
        self._clock, self._executor = context.clock, context.executor
        serving, resources, tenants = context.serving, context.resources, context.tenants
        work = TenantStateWork(
            tenants,
            context.models,
            learning,
            serving.live.scenario.board,
            serving.device,
            emulated=serving.emulated,
        )
        self._actuator = Actuator(
            resources.gpu_thread, resources.workers, context.router, work, self._on_event
        )
        self._actuator.serving = context.serving_workers
        self.estimates = Estimates(
            tenants,
            context.clock,
            resources.labels,
            learning,
            None if serving.emulated else self._actuator,
            lambda: controller.planning.board,
        )
        self._overheads = Overheads(controller, self._actuator, recorder, recorder.decisions)
        self._foreign = ForeignInstances(context, controller, recorder)
        self._tasks: set[asyncio.Task[None]] = set()

    def do(self, instructions: Iterable[Instruction]) -> None:
        """Begin all instructions; their outcomes arrive as events."""
        for each in instructions:
            if isinstance(each, Replan):
                self._recorder.event("replan", each.reason)
            self._recorder.decisions.told(each)
            self._actuator.do(each)

    def tick(self) -> None:
        """Let the executor act on the passed time."""
        self.do(self._controller.tick())

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a background task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def update_foreign_instances(self) -> None:
        """Look for instances that MIGRator did not create, and plan around them."""
        self.do(await self._foreign.update())

    async def release_all(self) -> None:
        """Drain and destroy everything; a running training can continue from its checkpoints
        later."""
        await self._context.resources.trainings.close()
        self._recorder.decisions.leaving()
        self.do(self._executor.leave(self._clock.now_s()))
        until_s = self._clock.now_s() + LEAVE_S
        while self._executor.units and self._clock.now_s() < until_s:
            await asyncio.sleep(LOOK_S)
            self.tick()
        self._recorder.units(self._executor.units)

    async def close(self) -> None:
        """Cancel everything that is running."""
        await self._actuator.close()

    def _on_event(self, event: Event) -> None:
        self._recorder.decisions.heard(event)
        if isinstance(event, Ready):
            self._overheads.measure(event)
        elif isinstance(event, TrainingEnded):
            if not event.ok:
                words = f"{event.tenant}: {event.why}"
                self._recorder.event("retraining", words, tenant=event.tenant)
        elif why := getattr(event, "why", ""):
            if isinstance(event, CreateFailed):
                self.in_background(self.update_foreign_instances())
            instance = str(event.instance)
            self._recorder.event(type(event).__name__, f"{instance}: {why}", instance=instance)
        self.do(self._controller.on(event))
        self._recorder.units(self._executor.units)
