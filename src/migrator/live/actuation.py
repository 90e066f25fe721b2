"""Carries out the controller's instructions on the GPU and its workers, and reports the outcomes to
the controller and the records.

Every instruction runs in a task of its own, so that it waits only for its own instance. Changes of
the GPU itself run one at a time (`gpu_thread`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from migrator.control import events
from migrator.control.controller import Controller
from migrator.control.events import Event, Instruction
from migrator.control.memory import ProcessKind
from migrator.control.retraining_plans import Estimate
from migrator.core.batch import place_name
from migrator.core.catalogue import Place, board_without
from migrator.core.errors import MigratorError
from migrator.core.problem import Holding, Share, bare, sms_of
from migrator.live.context import Context
from migrator.live.learning import Learning
from migrator.live.recorder import LiveRecorder
from migrator.live.training import JobKind
from migrator.serving.workers.messages import Assignment
from migrator.serving.workers.pool import ServingWorker

LOOK_S = 0.05
LEAVE_S = 15.0
"""Seconds for draining and destroying all instances at the end."""
_FREED_S = 10.0
"""Most seconds that a process waits for the memory of standbys that end."""
_PATIENCE, _LEAST_PATIENCE_S = 20.0, 5.0
"""A batch that takes this many times its latency, and at least these seconds, counts as hung."""

_log = logging.getLogger(__name__)


class Actuation:
    """The only place where instructions are carried out and events arrive."""

    def __init__(
        self, context: Context, controller: Controller, learning: Learning, recorder: LiveRecorder
    ) -> None:
        self._context, self._controller = context, controller
        self._learning, self._recorder = learning, recorder
        self._gpu_thread, self._workers = context.gpu_thread, context.workers
        self._router, self._serving = context.router, context.serving_workers
        self._create_s: dict[Holding, float] = {}
        """How long instances without a worker took to create."""
        self._warming: dict[Holding, tuple[str, asyncio.Task[None]]] = {}
        """The tenants and tasks of workers that are being warmed."""
        self._standbys = context.standby_workers
        self._preparing: dict[tuple[Holding, str], asyncio.Task[None]] = {}
        """Standbys that are being started."""
        self._discarding: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._foreign: tuple[Place, ...] = ()
        self._without_forkserver = frozenset[str]()
        context.workers.lost = self._on_worker_lost
        context.workers.forkserver.changed = self._on_forkserver_changed

    def do(self, instructions: Iterable[Instruction]) -> None:
        """Begin all instructions; their outcomes arrive as events."""
        for instruction in instructions:
            self._recorder.instructed(instruction)
            match instruction:
                case events.Create(instance):
                    self.in_background(self._create(instance))
                case events.Destroy(instance):
                    self.in_background(self._destroy(instance))
                case events.Warm(instance, tenant):
                    task = self.in_background(self._warm(instance, tenant))
                    self._warming[bare(instance)] = tenant, task
                case events.Prepare(instance, tenant):
                    self._discard(bare(instance), tenant)
                    task = self.in_background(self._prepare(instance, tenant))
                    self._preparing[bare(instance), tenant] = task
                case events.Keep(instance, tenant):
                    self._keep(bare(instance), tenant)
                case events.Discard(instance, tenant):
                    self._discard(bare(instance), tenant)
                case events.Drain(instance, _):
                    self.in_background(self._drain(instance))
                case events.StopWorker(instance):
                    self._abandon_standby(bare(instance))
                    self.in_background(self._stop(instance))
                case events.StopTraining(_, tenant):
                    # the next one continues from its checkpoints
                    self._context.trainings.cancel(tenant, JobKind.RETRAIN)
                case events.Train(instance, tenant):
                    self.in_background(self._train(instance, tenant))
                case events.Replan():
                    pass  # the planning loop does it

    def tick(self) -> None:
        """Let the executor act on the passed time."""
        self.do(self._controller.tick())

    def estimate(self, wanted: Estimate) -> None:
        self.in_background(self._estimate(wanted))

    def in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine as a task until it ends or the daemon stops."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    async def update_foreign_instances(self) -> None:
        """Plan around instances on the GPU that MIGRator did not create.

        The planner gets the board without them. Before the first plan the rest is divided again.
        """
        try:
            places = await self._gpu_thread.foreign_instances()
            board = board_without(self._context.board, places)
        except MigratorError as error:
            _log.warning("foreign instances on the GPU cannot be listed: %s", error)
            return
        if places == self._foreign:
            return
        self._foreign, self._controller.planning.board = places, board
        message = f"foreign instances on the GPU: {', '.join(map(str, places)) or 'none'}"
        self._recorder.event("board", message)
        if self._controller.started:
            self._controller.planning.changed(message)
        else:
            self.do(self._controller.split_evenly())

    async def release_all(self) -> None:
        """Drain and destroy everything. A running training can continue from its checkpoints."""
        executor, clock = self._context.executor, self._context.clock
        await self._context.trainings.close()
        self._recorder.decisions.stopping()
        self.do(executor.leave(clock.now_s()))
        # before the last instance is destroyed, which ends what they use as well
        await asyncio.gather(*self._discarding, return_exceptions=True)
        until_s = clock.now_s() + LEAVE_S
        while executor.units and clock.now_s() < until_s:
            await asyncio.sleep(LOOK_S)
            self.tick()
        self._recorder.update_units()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def on_event(self, event: Event) -> None:
        """Record the outcome of an instruction, and do what the controller makes of it."""
        self._recorder.ended(event)
        if isinstance(event, events.CreateFailed):
            self.in_background(self.update_foreign_instances())
        self.do(self._controller.on(event))
        self._recorder.update_units()

    def assignment(
        self, tenant: str, instance: Holding, environment: Mapping[str, str]
    ) -> Assignment:
        """The assignment of a worker on the instance: the newest version of the tenant's model."""
        state, serving = self._context.tenants[tenant], self._context.serving
        latency_s, version = self._latency_s(tenant, instance), state.version
        batch = state.service.batch
        least_mib = state.service.profile.serving_mib(batch)
        held_mib = state.memory.held_mib(ProcessKind.WORKER)
        times = {rows: 1e3 * latency_s(rows) for rows in range(1, batch + 1)}
        return Assignment(
            tenant=tenant,
            model=self._context.models[tenant].model,
            weights=version.weights if version else None,
            version=version.number if version else 0,
            device=serving.device,
            environment=environment,
            batch=batch,
            latency_ms=times if serving.emulated else None,
            limit_s=max(_LEAST_PATIENCE_S, _PATIENCE * latency_s(batch)),
            emulated_mib=(least_mib, held_mib) if serving.emulated else (0.0, 0.0),
        )

    def _latency_s(self, tenant: str, instance: Holding) -> Callable[[int], float]:
        """A function from the batch size to the seconds of a batch on the instance."""
        service = self._context.tenants[tenant].service
        sms = sms_of(self._context.board, instance)
        # a share that takes turns with others has the SMs for a part of the time
        duty = instance.duty if isinstance(instance, Share) else 1.0
        return lambda batch: service.latency_s(batch, sms) / duty

    async def _create(self, instance: Holding) -> None:
        began_s = time.monotonic()
        try:
            await self._gpu_thread.create(instance)
        except Exception as error:
            self.on_event(events.CreateFailed(instance, _reason(error)))
            return
        self._create_s[bare(instance)] = time.monotonic() - began_s
        self.on_event(events.Created(instance))

    async def _destroy(self, instance: Holding) -> None:
        try:
            environment = self._gpu_thread.known_environment(instance)
            if environment is not None:
                await self._context.trainings.end_estimates(environment)
            await self._gpu_thread.destroy(instance)
        except Exception as error:
            self.on_event(events.DestroyFailed(instance, _reason(error)))
            return
        self.on_event(events.Destroyed(instance))

    async def _prepare(self, instance: Holding, tenant: str) -> None:
        key, reason = (bare(instance), tenant), ""
        try:
            await self._memory_freed()
            environment = await self._gpu_thread.worker_environment(instance)
            worker, _ = await self._start(instance, tenant, environment)
            self._wait_on(key, worker)
        except Exception as error:
            reason = _reason(error)
        finally:
            # one that was discarded may have a successor already
            if self._preparing.get(key) is asyncio.current_task():
                del self._preparing[key]
        self.on_event(events.Prepared(instance, tenant, reason))

    def _keep(self, place: Holding, tenant: str) -> None:
        worker = self._serving.pop(place, None)
        if worker is None:
            message = "its worker was lost while it was drained"
            self.on_event(events.Prepared(place, tenant, message))
        else:
            self._router.detach(worker)
            self._wait_on((place, tenant), worker)

    def _wait_on(self, key: tuple[Holding, str], worker: ServingWorker) -> None:
        """Keep a worker as a standby. It answers requests while the slices are idle if the policy
        lends them."""
        self._standbys[key] = worker
        place, tenant = key
        if self._context.lends and tenant in self._context.tenants:
            latency_s = self._latency_s(tenant, place)
            self._router.attach(
                tenant,
                worker,
                latency_s,
                may_borrow=lambda: self._may_borrow(worker, place),
                place=place_name(place),
            )

    def _may_borrow(self, standby: ServingWorker, place: Holding) -> bool:
        """Whether a standby has the newest version and no other worker uses its slices."""
        tenant, serving = standby.assignment.tenant, self._serving.get(place)
        run = self._context.tenants.get(tenant)
        if run is None or serving is None or self._standbys.get((place, tenant)) is not standby:
            return False
        if run.version is not None and run.version.number != standby.assignment.version:
            return False
        waiting = [standby for (where, _), standby in self._standbys.items() if where == place]
        return all(map(self._router.is_idle, (serving, *waiting)))

    async def _end_standby(self, worker: ServingWorker) -> None:
        await self._router.drain(worker)
        await worker.release()

    def _discard(self, place: Holding, tenant: str) -> None:
        starting = self._preparing.pop((place, tenant), None)
        worker = self._standbys.pop((place, tenant), None)
        ending = [starting] if starting is not None else []
        if starting is not None:
            starting.cancel()
        if worker is not None:
            ending.append(self.in_background(self._end_standby(worker)))
        for task in ending:
            self._discarding.add(task)
            task.add_done_callback(self._discarding.discard)

    def _abandon_standby(self, place: Holding) -> None:
        """End the standby that was to become the worker which is being stopped."""
        if (warming := self._warming.get(place)) is not None:
            self._discard(place, warming[0])

    async def _standby(self, place: Holding, tenant: str) -> ServingWorker | None:
        """The standby with the newest version, once it has started; None if there is none."""
        key = place, tenant
        starting = self._preparing.get(key)
        if starting is not None:
            await asyncio.wait({starting})
        worker = self._standbys.get(key)
        if worker is None:
            return None
        try:
            await self._update(worker, place)
        except MigratorError as error:
            _log.warning("%s: a standby on %s cannot be used: %s", tenant, place, error)
            self._discard(place, tenant)
            return None
        # None: it was lost meanwhile
        return self._standbys.pop(key, None)

    async def _warm(self, instance: Holding, tenant: str) -> None:
        place, began_s = bare(instance), time.monotonic()
        try:
            standby = await self._standby(place, tenant)
            if standby is not None:
                worker, latency_s = standby, self._latency_s(tenant, instance)
            else:
                await self._memory_freed()
                environment = await self._gpu_thread.worker_environment(instance)
                worker, latency_s = await self._start(instance, tenant, environment)
            reason = None
        except Exception as error:
            reason = _reason(error)
        finally:
            self._warming.pop(place, None)  # before the event: it may begin the next start
        if reason is not None:
            self.on_event(events.WorkerLost(instance, reason))
            return
        seconds = time.monotonic() - began_s
        created_s = self._create_s.pop(place, 0.0)
        self._serving[place] = worker
        self._router.attach(tenant, worker, latency_s, place=place_name(place))
        parts_s = {"create_s": created_s, "warm_s": seconds}
        if standby is None:
            parts_s |= worker.parts_s
        else:
            parts_s["standby_s"] = worker.parts_s["total"]
        self._measure_overhead(tenant, instance, parts_s)
        self.on_event(events.Ready(instance, seconds))

    def _measure_overhead(
        self, tenant: str, instance: Holding, parts_s: Mapping[str, float]
    ) -> None:
        """Report to the controller how long an instance took until it served."""
        took_s = parts_s["create_s"] + parts_s["warm_s"]
        late_s = self._controller.measured(tenant, instance, took_s)
        self._recorder.started(bare(instance), {**parts_s, "late_s": late_s})
        self._recorder.decisions.measured(tenant, parts_s, late_s)

    async def _start(
        self, instance: Holding, tenant: str, environment: Mapping[str, str]
    ) -> tuple[ServingWorker, Callable[[int], float]]:
        """A worker with the newest version of the model, and the seconds of its batches.

        If that fails, no worker is left.
        """
        worker = await self._workers.take(self.assignment(tenant, instance, environment))
        try:
            self._context.report_memory(tenant, ProcessKind.WORKER, worker.held_mib)
            # another version may have been adopted, or the tenant removed, while it started
            await self._update(worker, instance)
            return worker, self._latency_s(tenant, instance)
        except BaseException:
            await worker.release()  # no other code knows that it holds the instance
            raise

    async def _update(self, worker: ServingWorker, instance: Holding) -> None:
        """Give a worker the newest version, also where another becomes that meanwhile."""
        tenant, environment = worker.assignment.tenant, worker.assignment.environment
        while True:
            newest = self.assignment(tenant, instance, environment)
            if newest.weights is None:
                return
            await worker.update(newest.weights, newest.version)
            if self.assignment(tenant, instance, environment).version == newest.version:
                return

    async def _drain(self, instance: Holding) -> None:
        worker = self._serving.get(bare(instance))
        if worker is not None:
            await self._router.drain(worker)
        self.on_event(events.Drained(instance))

    async def _stop(self, instance: Holding) -> None:
        place = bare(instance)
        _, warming = self._warming.pop(place, (None, None))
        if warming is not None:
            warming.cancel()
            await asyncio.gather(warming, return_exceptions=True)
        worker = self._serving.pop(place, None)
        if worker is not None:
            self._router.detach(worker)
            await worker.release()
        self.on_event(events.Stopped(instance))

    async def _train(self, instance: Holding, tenant: str) -> None:
        try:
            await self._memory_freed()
            environment = await self._gpu_thread.environment(instance)
            why = await self._learning.train(tenant, instance, environment)
        except Exception as error:
            self.on_event(events.TrainingEnded(instance, tenant, False, _reason(error)))
            return
        self.on_event(events.TrainingEnded(instance, tenant, True, why))

    async def _estimate(self, wanted: Estimate) -> None:
        try:
            await self._memory_freed()
            await self._estimate_beside_worker(wanted)
        finally:
            self._controller.end_estimate(wanted.tenant)

    async def _memory_freed(self) -> None:
        """Wait until the standbys that were discarded before have freed their memory."""
        if self._discarding:
            await asyncio.wait(set(self._discarding), timeout=_FREED_S)

    async def _estimate_beside_worker(self, wanted: Estimate) -> None:
        worker = None if wanted.instance is None else self._serving.get(wanted.instance)
        environment = None if worker is None else worker.assignment.environment
        if worker is not None and wanted.instance is not None and self._context.board.is_of_shares:
            # unlike a worker of a share it keeps the instance from being destroyed
            environment = self._gpu_thread.known_environment(wanted.instance) or environment
        await self._learning.estimate(
            wanted.tenant, wanted.window, environment, wanted.most_samples, wanted.limit_s
        )

    def _on_worker_lost(self, worker: ServingWorker, how: str) -> None:
        for place, serving in list(self._serving.items()):
            if serving is worker:
                del self._serving[place]
                self._router.detach(worker)
                self.on_event(events.WorkerLost(place, how))
        for key, standby in list(self._standbys.items()):
            if standby is worker:
                del self._standbys[key]
                self._router.detach(worker)
                self.on_event(events.Prepared(*key, how))

    def _on_forkserver_changed(self, stopped: frozenset[str]) -> None:
        """Keep the instances of tenants whose forkserver does not run: their workers could not be
        replaced."""
        before, self._without_forkserver = self._without_forkserver, stopped
        if died := ", ".join(sorted(stopped - before)):
            message = (
                f"the forkserver of {died} died: workers go on serving, and plans for them wait "
                "until it runs again"
            )
            self._recorder.event("workers", message)
        # a tenant that was removed has no model any more
        if again := ", ".join(sorted(before - stopped & self._workers.interfaces.keys())):
            message = f"the forkserver of {again} runs again, and plans for them are followed"
            self._recorder.event("workers", message)
        self.do(self._context.executor.hold(self._context.clock.now_s(), stopped))

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, MigratorError):
            _log.warning("%s", error)
        elif error is not None:
            _log.error("unexpected error in a task of the daemon", exc_info=error)


def _reason(error: Exception) -> str:
    """The error as text. Every error is reported, because the executor waits for an outcome."""
    if isinstance(error, MigratorError):
        return str(error)
    _log.error("unexpected error in an instruction", exc_info=error)
    return f"{type(error).__name__}: {error}"
