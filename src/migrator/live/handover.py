"""A new version reaches whoever must have it: the workers that serve, and the shared store."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from migrator.core.errors import MigratorError
from migrator.live.decisions import Decisions
from migrator.live.recorder import Recorder
from migrator.live.shared_store import SharedStore
from migrator.live.shared_versions import NotOursError
from migrator.live.tenant_run import TenantRun
from migrator.live.versions import Version, Versions
from migrator.serve.links import ServingWorker

_log = logging.getLogger(__name__)


class Handover:
    """Hands versions over; what fails is told and stops nobody."""

    def __init__(
        self,
        tenants: Mapping[str, TenantRun],
        workers_of: Callable[[str], Sequence[ServingWorker]],
        versions_of: Callable[[str], Versions],
        shared: SharedStore | None,
        recorder: Recorder,
        decisions: Decisions,
    ) -> None:
        self._tenants, self._workers_of, self._shared = tenants, workers_of, shared
        self._versions_of = versions_of
        self._recorder, self._decisions = recorder, decisions
        self._one_by_one: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._due: set[str] = set()
        """Tenants that are served here without the store knowing it yet."""

    async def swap(self, tenant: str, version: Version) -> None:
        """Every worker of the tenant serves the new version; requests in flight keep theirs."""
        await self._swap_all(version)
        await self.share(tenant)

    async def share(self, tenant: str, *, claim: bool = False) -> bool:
        """What serves it now is what it begins with elsewhere; False: the store did not take it.

        `claim`: it has just begun to be served here, whoever served it before. A claim that fails
        is made again with the next version.
        """
        async with self._one_by_one[tenant]:
            run = self._tenants.get(tenant)  # None: it went meanwhile
            if self._shared is None or run is None:
                return True
            if claim:
                self._due.add(tenant)
            try:
                await self._kept(self._shared, run)
            except Exception as error:  # whatever a store may raise
                if isinstance(error, NotOursError):
                    self._due.discard(tenant)  # who claimed it after us has it
                number = run.version.number if run.version else 0
                words = f"{tenant}: version {number} is not in the shared store: {error}"
                _log.warning("%s", words)
                self._recorder.event("model", words, tenant=tenant)
                return tenant not in self._due
            return True

    async def _kept(self, shared: SharedStore, run: TenantRun) -> None:
        """What serves is in the store; what others shared meanwhile serves before that."""
        versions, claim = self._versions_of(run.name), run.name in self._due
        if run.version is None and claim:
            found = await asyncio.to_thread(shared.bring_version, versions)
            await self._go_on_from(run, None, found)
        while (version := run.version) is not None:
            keep = shared.keep_version
            newer = await asyncio.to_thread(keep, version, versions, claim=claim)
            if newer is None:
                self._due.discard(run.name)
                return
            await self._go_on_from(run, version, newer)

    async def _go_on_from(
        self, run: TenantRun, before: Version | None, version: Version | None
    ) -> None:
        """Serve what others shared, unless a retraining has ended here meanwhile."""
        if version is None or run.version != before:
            return
        run.goes_on_from(version)
        run.estimate = None
        self._recorder.begin_version(run.name, version, "shared by where it was served before")
        await self._swap_all(version)

    async def _swap_all(self, version: Version) -> None:
        # all at once: one that hangs must not keep the others waiting
        workers = self._workers_of(version.tenant)
        await asyncio.gather(*(self._swap(each, version) for each in workers))

    async def _swap(self, worker: ServingWorker, version: Version) -> None:
        tenant = version.tenant
        try:
            seconds = await worker.swap(version.weights, version.number)
        except MigratorError as error:
            self._decisions.swapped(None)
            words = f"{tenant}: {worker.name} keeps its model: {error}"
        else:
            self._decisions.swapped(seconds)
            words = f"{tenant}: version {version.number} in {1e3 * seconds:.0f} ms"
        self._recorder.event("swap", words, tenant=tenant, worker=worker.name)
