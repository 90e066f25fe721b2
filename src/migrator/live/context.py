"""The state that the services of one daemon share: its tenants, its clock, and the GPU, files and
processes that are opened at its start and closed at its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from migrator.control.controller import new_executor
from migrator.control.memory import ProcessKind
from migrator.control.observation import lends, policy_named
from migrator.control.tenant_state import TenantState, tenant_state_of
from migrator.control.window_clock import WindowClock
from migrator.core.errors import InputError
from migrator.core.preferences import Preferences
from migrator.core.problem import Holding
from migrator.gpu.drivers.base import Gpu
from migrator.io.folders import private_folder
from migrator.io.processes import Process
from migrator.live.gpu_thread import GpuThread, kill_orphans, mark_children, wait_until_gone
from migrator.live.instruments import Instruments
from migrator.live.labels import Labels
from migrator.live.options import DaemonOptions, assumed_overhead_s, queue_settings
from migrator.live.training import PREPARE, Trainings
from migrator.live.versions import Versions
from migrator.records.batches import BatchFile
from migrator.records.store import Records
from migrator.serving.router import Router
from migrator.serving.tracing import open_tracing
from migrator.serving.workers.messages import ModelInterface
from migrator.serving.workers.pool import ServingWorker, Workers

_LOOK_S = 0.02
"""Seconds between two checks of a condition that is waited for."""
_MUCH_MIB = 2048.0
"""Memory in use at the start that is worth a warning: a driver and an MPS server take less."""
PREPARED = 2
"""Workers per tenant that are kept ready for new instances."""
_log = logging.getLogger(__name__)


class Context:
    """The state of one daemon before its first window; used in its event loop only."""

    def __init__(
        self,
        serving: DaemonOptions,
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
        self.live_tenants = {tenant.name: tenant for tenant in live}
        """How the models of all tenants are built and trained, also of removed ones."""
        self.leaving: dict[str, bool] = {}
        """Tenants that are being removed, and whether an operator had drained them before."""
        self.offered: dict[str, ModelInterface] = {}
        """Models that the API answers for."""
        self.overheads_s = {tenant.name: assumed_overhead_s(tenant) for tenant in live}
        """By tenant, seconds until a new instance serves it. The executor and the policy read
        it."""
        self.clock = WindowClock(scenario.window_s, scenario.slot_s)
        self.router = Router({tenant.name: queue_settings(serving, tenant) for tenant in live})
        self.executor = new_executor(scenario.board, tenants, self.overheads_s, scenario.peers)
        self.batches: BatchFile | None = None
        """Gets every batch; None: they are not recorded."""
        self.lends = lends(policy_named(scenario.policy), scenario.board)
        """Whether standbys answer requests while the slices they wait on are idle."""
        self.serving_workers: dict[Holding, ServingWorker] = {}
        self.standby_workers: dict[tuple[Holding, str], ServingWorker] = {}
        """By place and tenant."""
        self._versions: dict[str, Versions] = {}
        self.instruments = Instruments()
        for name in tenants:
            self.instruments.add_tenant(name)

    def workers_of(self, tenant: str) -> list[ServingWorker]:
        return [e for e in self.serving_workers.values() if e.assignment.tenant == tenant]

    def standbys_of(self, tenant: str) -> list[ServingWorker]:
        return [worker for (_, name), worker in self.standby_workers.items() if name == tenant]

    def report_memory(self, tenant: str, process: ProcessKind, mib: float) -> None:
        """A process of a tenant holds so much of the GPU's memory."""
        if tenant in self.tenants:  # else it was removed meanwhile
            self.tenants[tenant].memory.report(process, mib)

    def versions_of(self, tenant: str) -> Versions:
        return self._versions.setdefault(tenant, Versions(self.serving.folder / "models", tenant))

    def offer(self, tenant: str) -> None:
        """Let the API answer for a tenant; InputError if its tokenizer cannot be read."""
        model = self.workers.interfaces[tenant]
        _ = model.encode  # read now, not for the first request
        self.offered[tenant] = model

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
async def open_context(serving: DaemonOptions) -> AsyncIterator[Context]:
    """Open everything while the models are being built, which takes longest.

    Meanwhile the files are checked, and what a killed daemon left on the GPU is removed.
    """
    tracing = open_tracing("migrator")  # before anything that takes time is started
    private_folder(serving.folder)
    left = await asyncio.to_thread(kill_orphans, serving.folder)
    for process in left:
        _log.warning(
            "killed process %d (%s) of a daemon that was killed", process.pid, process.name
        )
    mark_children(serving.folder)
    tenants = new_tenants(serving)
    async with AsyncExitStack() as stack:
        if tracing is not None:
            stack.push_async_callback(asyncio.to_thread, tracing.close)
        thread, gpu = await _open_gpu(serving, left, stack)
        folder, models = serving.folder / "workers", serving.models
        workers = Workers(folder, models, ahead=serving.ahead, prepare=PREPARE)
        stack.push_async_callback(workers.close)  # in case a later step fails
        workers.begin()
        # a process that still writes labels would look like damage
        await asyncio.to_thread(wait_until_gone, left)
        foreign_mib = await thread.used_mib()
        if foreign_mib > _MUCH_MIB:
            _log.warning("other programs use %.0f MiB of the GPU's memory", foreign_mib)
        # checking a gigabyte of labels takes seconds
        labels = await asyncio.to_thread(_open_labels, serving, tenants)
        stack.push_async_callback(labels.close)
        records = await asyncio.to_thread(_open_records, serving)
        stack.callback(records.close)
        stack.push_async_callback(workers.close)  # its last events go into the records
        trainings = Trainings(serving.folder / "trainings.log", workers.forkserver)
        stack.push_async_callback(trainings.close)
        context = Context(serving, gpu, thread, labels, records, workers, trainings, tenants)
        context.router.tracing = tracing
        context.executor.memory.limit_mib -= foreign_mib
        if serving.batches is not None:
            zero_s = time.time() - context.router.clock()
            context.batches = BatchFile(serving.batches, zero_s)
            stack.callback(context.batches.close)
            context.router.record = context.batches.put
        yield context


def new_tenants(serving: DaemonOptions) -> dict[str, TenantState]:
    """The tenants of the scenario before their first request."""
    scenario = serving.live.scenario
    return {
        live.name: tenant_state_of(served, live, scenario.slot_s, assumed_overhead_s(live))
        for served, live in zip(scenario.tenants, serving.live.tenants, strict=True)
    }


async def _open_gpu(
    serving: DaemonOptions, left: Sequence[Process], stack: AsyncExitStack
) -> tuple[GpuThread, Gpu]:
    board = serving.live.scenario.board
    named = board.name if serving.emulated or board.is_of_shares else None
    thread = GpuThread(serving.driver, serving.gpu, serving.state, named)
    gpu = await thread.open(left)
    stack.push_async_callback(thread.close)
    if (gpu.board.sizes, gpu.board.memory_slices) != (board.sizes, board.memory_slices):
        raise InputError(
            f"gpu: the scenario is for a {board.name}, GPU {serving.gpu} is a {gpu.board.name}; "
            "name the board of this machine in the scenario"
        )
    return thread, gpu


def _open_labels(serving: DaemonOptions, tenants: Mapping[str, TenantState]) -> Labels:
    def learned_before(name: str) -> int | None:
        return tenants[name].learned_before if name in tenants else None

    share = None
    if serving.shared is not None:
        share = partial(serving.shared.labels.keep, learned_before=learned_before)
    return Labels(serving.folder / "labels.db", learned_before=learned_before, share=share)


def _open_records(serving: DaemonOptions) -> Records:
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
            "tenants": [tenant.name for tenant in serving.live.tenants],
            "lends": lends(policy_named(scenario.policy), scenario.board),
            **Preferences.of(tenant.service for tenant in serving.live.tenants).facts,
        },
    )
