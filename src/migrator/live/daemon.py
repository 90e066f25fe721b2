"""The live system: serves requests while it forecasts and plans every window, changes instances,
and retrains and swaps models.

One event loop runs the API, the router and the executor. Slow work runs elsewhere: models in worker
processes, plans in the policy's process, trainings in separate processes, changes of the GPU in a
thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from migrator.control.controller import Controller
from migrator.control.forecasting_policy import ForecastingPolicy
from migrator.control.observation import policy_named
from migrator.control.policy_process import PATIENCE_S, PolicyProcess
from migrator.control.retraining_plans import RetrainingPlans
from migrator.control.retraining_triggers import RetrainingTriggers
from migrator.control.tenant_state import TenantState
from migrator.core.errors import MigratorError
from migrator.forecast.selection import forecaster
from migrator.io.tls import ServerCertificate
from migrator.live.actuation import Actuation
from migrator.live.admission import Admission
from migrator.live.api import Api, limits_of
from migrator.live.context import PREPARED, Context, open_context
from migrator.live.evaluation import Evaluations
from migrator.live.learning import Learning
from migrator.live.metrics import collectors
from migrator.live.operator_actions import OperatorActions
from migrator.live.options import DaemonOptions
from migrator.live.recorder import LiveRecorder
from migrator.live.rollout import Rollout
from migrator.serving.http.server import new_grpc_server, require_address

LOOK_S = 0.05
"""Seconds between two polls for the policy's answer."""
LAST_S = 0.2
"""Seconds for which requests are accepted after the last window. With `--from-first-request` the
first one begins up to `LOOK_S` before the first request, so clients end as much later."""
START_S = 120.0

_log = logging.getLogger(__name__)


class Daemon:
    """Serves one scenario on one GPU."""

    def __init__(self, serving: DaemonOptions, report: Callable[[str], None] = _log.info) -> None:
        """`report`: prints progress for the user."""
        self._serving, self._report = serving, report

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain and free everything."""
        limits, where = limits_of(self._serving), self._serving.live.live
        require_address(where.host, where.port, self._serving.tokens)
        if where.grpc_port is not None:
            require_address(where.host, where.grpc_port, self._serving.tokens, "grpc_port")
        certificate = None if where.tls is None else ServerCertificate(where.tls)
        async with AsyncExitStack() as stack:
            context = await stack.enter_async_context(open_context(self._serving))
            run = _Run(context, self._report)
            stack.callback(run.controller.planning.close)
            stack.push_async_callback(run.actuation.close)
            await run.prepare_models()
            server = run.api.server(limits, certificate)
            about = {"url": server.url}
            if certificate is not None:
                certificate.publish(self._serving.certificates)
                about["certificates"] = str(self._serving.certificates.absolute())
            await server.start()
            stack.push_async_callback(server.stop)
            stack.push_async_callback(run.api.close)
            run.api.url = server.url
            context.records.add_about(**about)
            if where.grpc_port is not None:
                beside = new_grpc_server(
                    *(server.app, where.host, where.grpc_port, limits),
                    *(self._serving.tokens, certificate),
                )
                await beside.start()
                stack.push_async_callback(beside.stop)
                self._report(f"gRPC at {beside.address}")
            await run.create_first_instances()
            self._report(f"serving at {server.url}")
            await run.serve(stop)
            self._report("draining")
            await run.api.close()
            await server.stop()
            run.recorder.settle()
            await run.actuation.release_all()


class _Run:
    """The services of a daemon, and the loop over slots and windows."""

    def __init__(self, context: Context, report: Callable[[str], None]) -> None:
        self._context, self._report = context, report
        self._clock, self._tenants, self._router = context.clock, context.tenants, context.router
        self._clock.first = context.first_window()
        self.recorder = recorder = LiveRecorder(context)
        recorder.damaged_files(
            context.gpu_thread.damaged, context.labels.damaged, context.records.damaged
        )
        self.controller = controller = new_controller(
            context, recorder, lambda tenant: self.retrainings.begin(tenant, None)
        )
        self.retrainings = RetrainingPlans(
            context.tenants,
            context.clock,
            context.labels,
            controller,
            on_instances=not context.serving.emulated,
        )
        self.triggers = RetrainingTriggers(
            context.tenants, context.clock, context.labels, self.retrainings
        )
        rollout = Rollout(context, recorder)
        self.learning = learning = Learning(context, rollout, recorder)
        self.actuation = actuation = Actuation(context, controller, learning, recorder)
        self.evaluations = Evaluations(context, recorder, controller.planning.request_plan)
        self.actions = actions = OperatorActions(
            context, controller, actuation, learning, self.retrainings, recorder
        )
        actions.restore_drained()
        self.admission = Admission(context, controller, actuation, learning, rollout, recorder)
        metrics = collectors(context, controller, recorder)
        self.api = Api(
            context, actions, self.admission, recorder, metrics, lambda: controller.started
        )

    async def prepare_models(self) -> None:
        """Build and load the models, or train the first versions."""
        context, admission, workers = self._context, self.admission, self._context.workers
        self._report("importing and building the models")
        self._clock.start()
        self.controller.planning.warm_up()
        await asyncio.gather(*map(admission.bring_at_start, self._tenants))
        await asyncio.gather(workers.start(), self.learning.prepare_all(self._report))
        # windows that a version has learned are over, even if no label or record of them is left
        learned = [tenant.model.since for tenant in self._tenants.values()]
        self._clock.first = max([self._clock.first, *learned])
        self._clock.start()
        await asyncio.gather(*map(admission.claim_at_start, self._tenants))
        self.actuation.in_background(admission.keep_trying())
        for name in context.models:
            context.offer(name)

    async def create_first_instances(self) -> None:
        """Divide the board evenly. Returns once every tenant is served."""
        workers = self._context.workers
        await asyncio.gather(*(workers.prepare(tenant, PREPARED) for tenant in self._tenants))
        self._report("creating the first instances")
        await self._context.gpu_thread.cleared()
        self._clock.start()
        await self.actuation.update_foreign_instances()
        self.actuation.do(self.controller.split_evenly())
        try:
            await asyncio.wait_for(self._all_ready(), START_S)
        except TimeoutError as error:
            raise MigratorError(
                f"not every tenant had an instance within {START_S:g} s; see "
                f"{workers.log} and `migrator gpu show`"
            ) from error
        for name, tenant in self._tenants.items():
            if tenant.version is not None:
                self.recorder.begin_version(name, tenant.version)

    async def serve(self, stop: asyncio.Event) -> None:
        """Run window after window until `stop` is set or the last one is over."""
        stopping = asyncio.create_task(stop.wait())
        try:
            self._start_clock()
            if self._context.serving.from_first_request:
                await self._wait_for_first_request(stopping)
            self._begin_window()
            while not stopping.done():
                await self._slot(stopping)
                if self._is_last_window_over():
                    # requests that were sent in its last moments are still to come
                    await asyncio.wait([stopping], timeout=LAST_S)
                    return
        finally:
            stopping.cancel()

    def _start_clock(self) -> None:
        """Begin the first window now."""
        self._clock.start()
        for counts in self._router.counts.values():
            counts.begin_window()

    async def _all_ready(self) -> None:
        # read every time: a tenant may be removed before it was ever ready
        while not all(
            self._router.ready(n) for n, tenant in self._tenants.items() if tenant.planned
        ):
            await asyncio.sleep(LOOK_S)
            self.actuation.tick()

    async def _wait_for_first_request(self, stopping: asyncio.Task[bool]) -> None:
        """Begin the first window with the first request. Samples that come before are for it."""
        counts = self._router.counts.values()
        while not stopping.done() and not any(count.total.received for count in counts):
            self._start_clock()
            for estimate in self.retrainings.due_before_first_window():
                self.actuation.estimate(estimate)
            self.actuation.tick()
            self._evaluate()
            await asyncio.wait([stopping], timeout=LOOK_S)

    async def _slot(self, stopping: asyncio.Task[bool]) -> None:
        """Wait for the end of a slot, and follow answers of the policy as they arrive."""
        until_s = self._clock.now_s() + self._clock.until_next_slot_s()
        while (left_s := until_s - self._clock.now_s()) > 0 and not stopping.done():
            self.actuation.do(self.controller.plan())
            await asyncio.wait([stopping], timeout=min(LOOK_S, left_s))
        for name, received in self.recorder.end_slot().items():
            self._tenants[name].count_requests(received)
        if self._clock.over:
            self.retrainings.end_window()
            self.recorder.end_window()
            self._clock.advance()
            if not self._is_last_window_over():
                self._begin_window()
        for estimate in self.retrainings.due():
            self.actuation.estimate(estimate)
        for tenant, reason in self.triggers.due():
            self.actions.request_retraining(tenant, reason)
        self._evaluate()
        self.actuation.tick()
        await self.recorder.flush()

    def _evaluate(self) -> None:
        for evaluation in self.evaluations.due():
            self.actuation.in_background(self.evaluations.evaluate(evaluation))

    def _begin_window(self) -> None:
        actuation = self.actuation
        self.retrainings.begin_window()
        self.recorder.begin_window()
        actuation.in_background(actuation.update_foreign_instances())
        actuation.do(self.controller.begin_window())

    def _is_last_window_over(self) -> bool:
        windows = self._context.serving.windows
        return windows is not None and self._clock.number - self._clock.first >= windows


def new_controller(
    context: Context, recorder: LiveRecorder, plan_retraining: Callable[[TenantState], None]
) -> Controller:
    """The controller of a daemon; its policy decides in a separate process."""
    scenario = context.scenario
    policy = ForecastingPolicy(policy_named(scenario.policy), forecaster(scenario.forecaster))
    return Controller(
        policy,
        scenario.board,
        context.clock,
        context.tenants,
        context.overheads_s,
        partial(PolicyProcess, policy, PATIENCE_S),
        recorder,
        plan_retraining,
        context.executor,
        scenario.peers,
    )
