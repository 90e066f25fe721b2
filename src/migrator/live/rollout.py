"""Brings new model versions to the workers and the shared store."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict

from migrator.control.tenant_state import TenantState
from migrator.core.errors import MigratorError
from migrator.live.context import Context
from migrator.live.recorder import LiveRecorder
from migrator.live.tenant_store import NotOwnerError, TenantStore
from migrator.live.versions import Version
from migrator.serving.workers.pool import ServingWorker

_log = logging.getLogger(__name__)


class Rollout:
    """Brings versions to the workers and the shared store. Failures are recorded, not raised."""

    def __init__(self, context: Context, recorder: LiveRecorder) -> None:
        self._context, self._recorder = context, recorder
        self._shared = context.serving.shared
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._unclaimed: set[str] = set()
        """Tenants served here that the shared store does not know yet."""
        self._updating: set[asyncio.Task[None]] = set()
        """For standbys that get a version."""

    async def roll_out(self, version: Version) -> None:
        await self._swap_all(version)
        await self.share(version.tenant)

    async def share(self, tenant: str, *, claim: bool = False) -> bool:
        """Put the serving version into the shared store; False if a claim failed.

        `claim`: this daemon has just begun to serve the tenant, whichever daemon served it before.
        A claim that fails is repeated with the next version.
        """
        async with self._locks[tenant]:
            run = self._context.tenants.get(tenant)  # None: it was removed meanwhile
            if self._shared is None or run is None:
                return True
            if claim:
                self._unclaimed.add(tenant)
            try:
                await self._keep(self._shared, run)
            except Exception as error:  # stores raise errors of many libraries
                if isinstance(error, NotOwnerError):
                    self._unclaimed.discard(tenant)  # another daemon claimed it later
                number = run.version.number if run.version else 0
                message = f"{tenant}: version {number} is not in the shared store: {error}"
                _log.warning("%s", message)
                self._recorder.event("model", message, tenant=tenant)
                return tenant not in self._unclaimed
            return True

    async def _keep(self, shared: TenantStore, run: TenantState) -> None:
        """Share the version. A version that another daemon has shared meanwhile serves first."""
        versions, claim = self._context.versions_of(run.name), run.name in self._unclaimed
        if run.version is None and claim:
            version = await asyncio.to_thread(shared.versions.bring, versions)
            await self._serve_shared(run, None, version)
        while (version := run.version) is not None:
            keep = shared.versions.keep
            newer = await asyncio.to_thread(keep, version, versions, claim=claim)
            if newer is None:
                self._unclaimed.discard(run.name)
                return
            await self._serve_shared(run, version, newer)

    async def _serve_shared(
        self, run: TenantState, before: Version | None, version: Version | None
    ) -> None:
        """Serve a version of another daemon, unless a retraining has ended here meanwhile."""
        if version is None or run.version != before:
            return
        run.switch_version(version)
        message = "shared by the daemon that served it before"
        self._recorder.begin_version(run.name, version, message)
        await self._swap_all(version)

    async def _swap_all(self, version: Version) -> None:
        workers = self._context.workers_of(version.tenant)
        for standby in self._context.standbys_of(version.tenant):
            task = asyncio.create_task(
                self._update(standby)
            )  # in the background: it need not serve
            self._updating.add(task)
            task.add_done_callback(self._updating.discard)
        # half of them at a time: a worker that answers all the time takes seconds for a swap, one
        # without requests a fraction of one; concurrently, so that one that hangs delays no other
        half = asyncio.Semaphore(max(1, len(workers) // 2))

        async def swap(worker: ServingWorker) -> None:
            async with half, self._context.router.paused(worker):
                await self._swap(worker, version)

        await asyncio.gather(*map(swap, workers))

    async def _update(self, standby: ServingWorker) -> None:
        """Give a standby the version that serves, also where another becomes that meanwhile."""
        while (run := self._context.tenants.get(standby.assignment.tenant)) is not None:
            version = run.version
            if version is None or standby.assignment.version == version.number:
                return
            try:
                await standby.update(version.weights, version.number)
            except MigratorError as error:
                _log.warning("%s: a standby keeps its model: %s", run.name, error)
                return

    async def _swap(self, worker: ServingWorker, version: Version) -> None:
        tenant = version.tenant
        try:
            seconds = await worker.swap(version.weights, version.number)
        except MigratorError as error:
            self._recorder.decisions.swapped(None)
            message = f"{tenant}: {worker.name} keeps its model: {error}"
        else:
            self._recorder.decisions.swapped(seconds)
            message = f"{tenant}: version {version.number} in {1e3 * seconds:.0f} ms"
        self._recorder.event("swap", message, tenant=tenant, worker=worker.name)
