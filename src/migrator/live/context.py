"""The state that the services of one daemon share: its tenants, its clock, and the GPU, files and
processes that are opened at its start and closed at its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from migrator.control.executor import Executor
from migrator.control.tenant_state import TenantState, tenant_state_of
from migrator.control.window_clock import WindowClock
from migrator.core.errors import InputError
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
from migrator.serve.workers.messages import ModelSpec
from migrator.serve.workers.pool import ServingWorker, Workers

LOOK_S = 0.02
"""Seconds between two checks of a condition that is waited for."""
PREPARED = 2
"""Workers per tenant that are kept ready for new instances."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Resources:
    """The GPU, the files and the processes of one daemon."""

    gpu: Gpu
    gpu_thread: GpuThread
    labels: Labels
    records: Records
    workers: Workers
    trainings: Trainings


@dataclass(frozen=True)
class Context:
    """The state of one daemon; used in its event loop only."""

    serving: Serving
    resources: Resources
    tenants: dict[str, TenantState]
    """The served tenants; changes while the daemon runs."""
    models: dict[str, ModelSpec]
    offered: dict[str, ModelInterface]
    """Models that the API answers for."""
    overheads_s: dict[str, float]
    """By tenant, seconds until a new instance serves it. The executor and the policy read it."""
    clock: WindowClock
    router: Router
    executor: Executor
    instruments: Instruments = field(default_factory=Instruments)
    serving_workers: dict[Holding, ServingWorker] = field(default_factory=dict)
    """By instance."""
    versions: dict[str, Versions] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.tenants:
            self.instruments.add_tenant(name)

    @classmethod
    def create(
        cls, serving: Serving, resources: Resources, tenants: dict[str, TenantState]
    ) -> Context:
        """The state before the first window."""
        scenario = serving.live.scenario
        overheads_s = {each.name: assumed_overhead_s(each) for each in serving.live.tenants}
        return cls(
            serving=serving,
            resources=resources,
            tenants=tenants,
            models=serving.models,
            offered={},
            overheads_s=overheads_s,
            clock=WindowClock(scenario.window_s, scenario.slot_s),
            router=Router({each.name: line_of(serving, each) for each in serving.live.tenants}),
            executor=Executor(scenario.board, overheads_s=overheads_s),
        )

    def workers_of(self, tenant: str) -> list[ServingWorker]:
        """The workers that serve a tenant."""
        return [e for e in self.serving_workers.values() if e.assignment.tenant == tenant]

    def versions_of(self, tenant: str) -> Versions:
        """The model versions of a tenant."""
        return self.versions.setdefault(tenant, Versions(self.serving.folder / "models", tenant))

    def first_window(self) -> int:
        """The number of the next window.

        No number is used twice, and the daemons of a cluster count together.
        """
        recorded, labelled = self.resources.records.last_window(), self.resources.labels.last_window
        since_s = self.serving.windows_since_s
        common = 0 if since_s is None else int((time.time() - since_s) / self.clock.window_s)
        return max(common, labelled + 1, 0 if recorded is None else recorded + 1)


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
        trainings = Trainings()
        stack.push_async_callback(trainings.close)
        resources = Resources(gpu, thread, labels, records, workers, trainings)
        yield Context.create(serving, resources, tenants)


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
        tenant = tenants.get(name)
        return None if tenant is None else tenant.learned_before

    share = None
    if serving.shared is not None:
        share = partial(serving.shared.labels.keep, learned_before=learned_before)
    path = serving.folder / "labels.db"
    return Labels(path, learned_before=learned_before, share=share)


def _open_records(serving: Serving) -> Records:
    scenario = serving.live.scenario
    about: dict[str, Any] = {
        "window_s": scenario.window_s,
        "slot_s": scenario.slot_s,
        "tenants": [each.name for each in serving.live.tenants],
    }
    return Records(
        serving.records,
        scenario=scenario.name,
        board=scenario.board.name,
        driver=serving.driver,
        policy=scenario.policy,
        seed=scenario.seed,
        about=about,
    )
