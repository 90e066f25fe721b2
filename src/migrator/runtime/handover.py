"""A new version reaches whoever must have it: the workers that serve, and the shared store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from migrator.core.errors import MigratorError
from migrator.runtime.decisions import Decisions
from migrator.runtime.recorder import Recorder
from migrator.runtime.shared_store import SharedStore
from migrator.runtime.tenant_run import TenantRun
from migrator.runtime.versions import Version, Versions
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

    async def swap(self, tenant: str, version: Version) -> None:
        """Every worker of the tenant serves the new version; requests in flight keep theirs."""
        # all at once: one that hangs must not keep the others waiting
        await asyncio.gather(*(self._swap(each, version) for each in self._workers_of(tenant)))
        await self.share(tenant)

    async def share(self, tenant: str, *, claim: bool = False) -> None:
        """What serves it now is what it begins with elsewhere.

        `claim`: it has just begun to be served here, whoever served it before.
        """
        version, versions = self._tenants[tenant].version, self._versions_of(tenant)
        if self._shared is None or version is None:
            return
        try:
            keep = self._shared.keep_version
            await asyncio.to_thread(keep, version, versions, claim=claim)
        except Exception as error:  # whatever a store may raise
            words = f"{tenant}: version {version.number} is not in the shared store: {error}"
            _log.warning("%s", words)
            self._recorder.event("model", words, tenant=tenant)

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
