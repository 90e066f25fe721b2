"""The state that the services of one daemon share: its tenants, its clock, and the GPU, files and
processes that are opened at its start and closed at its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from migrator.control.executor import Executor
from migrator.control.tenant_state import TenantState, tenant_state_of
from migrator.control.window_clock import WindowClock
from migrator.core.errors import InputError
from migrator.core.peer_limits import ResizedTraining
from migrator.core.share import Holding
from migrator.gpu.drivers.base import Gpu
from migrator.io.processes import Process
from migrator.io.state_folder import private_folder
from migrator.live import orphans
from migrator.live.gpu_thread import GpuThread
from migrator.live.instruments import Instruments
from migrator.live.labels import Labels
from migrator.live.serving import Serving, assumed_overhead_s, line_of
from migrator.live.training import Trainings
from migrator.live.versions import Versions
from migrator.records.store import Records
from migrator.serve.http.protocol import ModelInterface
from migrator.serve.router.router import Router
from migrator.serve.workers.pool import ServingWorker, Workers

_LOOK_S = 0.02
"""Seconds between two checks of a condition that is waited for."""
PREPARED = 2
"""Workers per tenant that are kept ready for new instances."""

_log = logging.getLogger(__name__)


class Context:
    """The state of one daemon before its first window; used in its event loop only."""

    def __init__(
        self,
        serving: Serving,
        gpu: Gpu,
        gpu_thread: GpuThread,
        labels: Labels,
        records: Records,
        workers: Workers,
        trainings: Trainings,
        tenants: dict[str, TenantState],
    ) -> None:
        """`tenants`: the served tenants; changes while the daemon runs."""
        scenario, live = serving.live.scenario, serving.live.tenants
        self.serving, self.scenario, self.board = serving, scenario, scenario.board
        self.gpu, self.gpu_thread, self.labels, self.records = gpu, gpu_thread, labels, records
        self.workers, self.trainings, self.tenants = workers, trainings, tenants
        self.models = serving.models
        self.offered: dict[str, ModelInterface] = {}
        """Models that the API answers for."""
        self.overheads_s = {each.name: assumed_overhead_s(each) for each in live}
        """By tenant, seconds until a new instance serves it. The executor and the policy read
        it."""
        self.clock = WindowClock(scenario.window_s, scenario.slot_s)
        self.router = Router({each.name: line_of(serving, each) for each in live})
        self.executor = Executor(
            scenario.board,
            overheads_s=self.overheads_s,
            resizes=scenario.peers.resized_training is not ResizedTraining.STAYS,
        )
        self.serving_workers: dict[Holding, ServingWorker] = {}
        self._versions: dict[str, Versions] = {}
        self.instruments = Instruments()
        for name in tenants:
            self.instruments.add_tenant(name)

    def workers_of(self, tenant: str) -> list[ServingWorker]:
        """The workers that serve a tenant."""
        return [e for e in self.serving_workers.values() if e.assignment.tenant == tenant]

    def versions_of(self, tenant: str) -> Versions:
        """The model versions of a tenant."""
        return self._versions.setdefault(tenant, Versions(self.serving.folder / "models", tenant))

    def first_window(self) -> int:
        """The number of the next window.

        No number is used twice, and the daemons of a cluster count together.
        """
        recorded, since_s = self.records.last_window(), self.serving.windows_since_s
        common = 0 if since_s is None else int((time.time() - since_s) / self.clock.window_s)
        return max(common, self.labels.last_window + 1, 0 if recorded is None else recorded + 1)


async def wait_until(condition: Callable[[], object], limit_s: float) -> bool:
    """Wait until the condition holds, at most `limit_s`. Returns whether it does."""
    until_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until_s:
            return False
        await asyncio.sleep(_LOOK_S)
    return True


@asynccontextmanager
async def open_context(serving: Serving) -> AsyncIterator[Context]:
    """Open everything while the models are being built, which takes longest.

    Meanwhile the files are checked, and what a killed daemon left on the GPU is removed.
    """
    private_folder(serving.folder)
    left = await asyncio.to_thread(orphans.kill, serving.folder)
    for each in left:
        _log.warning("killed process %d (%s) of a daemon that was killed", each.pid, each.name)
    orphans.mark(serving.folder)
    tenants = new_tenants(serving)
    async with AsyncExitStack() as stack:
        thread, gpu = await _open_gpu(serving, left, stack)
        workers = Workers(serving.folder / "workers", serving.models, ahead=serving.ahead)
        stack.push_async_callback(workers.close)  # in case a later step fails
        workers.begin()
        # a process that still writes labels would look like damage
        await asyncio.to_thread(orphans.wait_until_gone, left)
        # checking a gigabyte of labels takes seconds
        labels = await asyncio.to_thread(_open_labels, serving, tenants)
        stack.push_async_callback(labels.close)
        records = await asyncio.to_thread(_open_records, serving)
        stack.callback(records.close)
        stack.push_async_callback(workers.close)  # its last events go into the records
        trainings = Trainings(serving.folder / "trainings.log")
        stack.push_async_callback(trainings.close)
        yield Context(serving, gpu, thread, labels, records, workers, trainings, tenants)


def new_tenants(serving: Serving) -> dict[str, TenantState]:
    """The tenants of the scenario before their first request."""
    scenario = serving.live.scenario
    return {
        live.name: tenant_state_of(served, live, scenario.slot_s, assumed_overhead_s(live))
        for served, live in zip(scenario.tenants, serving.live.tenants, strict=True)
    }


async def _open_gpu(
    serving: Serving, left: Sequence[Process], stack: AsyncExitStack
) -> tuple[GpuThread, Gpu]:
    board = serving.live.scenario.board
    emulated_board = board.name if serving.emulated else None
    thread = GpuThread(serving.driver, serving.gpu, serving.state, emulated_board)
    gpu = await thread.open(left)
    stack.push_async_callback(thread.close)
    if (gpu.board.sizes, gpu.board.memory_slices) != (board.sizes, board.memory_slices):
        raise InputError(
            f"gpu: the scenario is for a {board.name}, GPU {serving.gpu} is a {gpu.board.name}; "
            "name the board of this machine in the scenario"
        )
    return thread, gpu


def _open_labels(serving: Serving, tenants: Mapping[str, TenantState]) -> Labels:
    def learned_before(name: str) -> int | None:
        return tenants[name].learned_before if name in tenants else None

    share = None
    if serving.shared is not None:
        share = partial(serving.shared.labels.keep, learned_before=learned_before)
    return Labels(serving.folder / "labels.db", learned_before=learned_before, share=share)


def _open_records(serving: Serving) -> Records:
    scenario = serving.live.scenario
    return Records(
        serving.records,
        scenario=scenario.name,
        board=scenario.board.name,
        driver=serving.driver,
        policy=scenario.policy,
        seed=scenario.seed,
        about={
            "window_s": scenario.window_s,
            "slot_s": scenario.slot_s,
            "tenants": [each.name for each in serving.live.tenants],
        },
    )
