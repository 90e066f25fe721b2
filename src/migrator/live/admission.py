"""Tenants that a cluster or an operator adds to a running daemon and removes from it.

An added tenant gets a model, its shared weights and labels, and a place in the next plan. A removed
tenant is drained first. The other tenants are served throughout.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict

from migrator.control.controller import Controller
from migrator.control.tenant_state import tenant_state_of
from migrator.core.errors import HttpError, InputError, MigratorError
from migrator.core.preferences import Preferences
from migrator.core.profiles import Service
from migrator.live.actuation import Actuation
from migrator.live.context import PREPARED, Context, wait_until
from migrator.live.learning import Learning
from migrator.live.operator_actions import EMPTY_S, REFUSAL
from migrator.live.options import assumed_overhead_s, model_spec, queue_settings
from migrator.live.recorder import LiveRecorder
from migrator.live.rollout import Rollout
from migrator.workload.live import LiveScenario

READY_S = 60.0
"""Seconds after which an added tenant without an instance is removed again."""
STORE_S = 2.0
"""Seconds between two attempts to reach the shared store."""
MOVED, REMOVED = "it is served elsewhere; ask there", "it is being removed; ask another model"

_log = logging.getLogger(__name__)


class Admission:
    """Adds and removes tenants of one daemon; used in its event loop."""

    def __init__(
        self,
        context: Context,
        controller: Controller,
        actuation: Actuation,
        learning: Learning,
        rollout: Rollout,
        recorder: LiveRecorder,
    ) -> None:
        self._context, self._controller, self._actuation = context, controller, actuation
        self._learning, self._rollout, self._recorder = learning, rollout, recorder
        self._tenants, self._router = context.tenants, context.router
        self._workers, self._shared = context.workers, context.serving.shared
        self._refusal = REMOVED if self._shared is None else MOVED
        self._split_at: int | None = None
        """Number of plans that had been followed when the board was last split evenly."""
        self._leaving = context.leaving
        self._removed: dict[str, Service] = {}
        """By name; one that was added again is among the tenants too."""
        self._without_shared: dict[str, str] = {}
        """Tenants that started without their shared weights and labels, and why."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def store_trouble(self) -> str:
        """Why tenants are served without their shared weights and labels; empty if none is."""
        return next(iter(self._without_shared.values()), "")

    async def admit(self, entry: object) -> str:
        """Add a tenant given as an entry of the cluster's scenario, as `add` does."""
        reader = self._context.serving.reader
        assert reader is not None, "the API offers this in a cluster only"
        return await self.add(reader(entry))

    def serves(self, name: str) -> bool:
        """Whether the tenant is here and is not being removed."""
        return name in self._tenants and name not in self._leaving

    async def add(self, scenario: LiveScenario) -> str:
        """Add the tenant of a scenario with one. Returns once an instance serves it."""
        name = scenario.tenants[0].name
        async with self._locks[name]:
            if name in self._leaving:
                await self.require_ready()
                await self._take_back(name)
            if name in self._tenants:
                # other daemons may have served it meanwhile and accepted labels
                await self._bring_labels(name)
                await self._rollout.share(name, claim=True)
                message = f"{name} was here already"
            else:
                await self.require_ready()
                began_s = time.monotonic()
                await self._add(scenario)
                message = f"{name} was added and served after {time.monotonic() - began_s:.1f} s"
                self._recorder.event("tenant", message, tenant=name)
        # removed tenants stay in the records as well
        present = {tenant.name: tenant.service for tenant in self._tenants.values()}
        preferences = Preferences.of((self._removed | present).values())
        self._context.records.add_about(
            tenants=list(self._router.counts),
            weights=preferences.weights,
            floors=preferences.floors,
        )
        return message

    async def remove(self, name: str) -> str:
        """Remove a tenant once its queued requests are answered."""
        async with self._locks[name]:
            if name not in self._tenants:
                return f"{name} was not here"
            await self.require_ready()
            self._leaving.setdefault(name, self._tenants[name].drained)
            self._router.refuse(name, self._refusal)
            await wait_until(lambda: not self._router.counts[name].total.open, EMPTY_S)
            await self._remove(name)
            message = f"{name} was removed"
            self._recorder.event("tenant", message, tenant=name)
            return message

    async def bring_at_start(self, name: str) -> None:
        """Fetch the shared labels and version when the daemon starts.

        Without the store the tenant starts with what is on this disk, and `keep_trying` fetches the
        rest later.
        """
        try:
            await self._bring(name)
        except (MigratorError, OSError) as error:  # also a full disk
            self._without_shared[name] = str(error)
            message = f"{name} starts without the shared store: {error}"
            self._recorder.event("store", message, tenant=name)

    async def claim_at_start(self, name: str) -> None:
        """Claim a tenant when the daemon starts. If the store does not answer, claim it later."""
        if name not in self._without_shared and not await self._rollout.share(name, claim=True):
            self._without_shared[name] = "the shared store did not take its version"

    async def keep_trying(self) -> None:
        """Fetch the shared state of tenants that started without it, once the store is back."""
        while True:
            await asyncio.sleep(STORE_S)
            for name in list(self._without_shared):
                try:
                    if name not in self._tenants or await self._bring_late(name):
                        del self._without_shared[name]
                except Exception:
                    _log.exception("%s could not be fetched from the shared store", name)

    async def _add(self, scenario: LiveScenario) -> None:
        live, served = scenario.tenants[0], scenario.scenario.tenants[0]
        name, spec, context = live.name, model_spec(live), self._context
        if name in self._removed and context.models[name] != spec:
            # its versions and labels are of that model
            raise InputError(
                f"tenant {name}: it was served with another model before, or other classes; give "
                "this one another name"
            )
        overhead_s = assumed_overhead_s(live)
        run = tenant_state_of(served, live, context.clock.slot_s, overhead_s)
        context.models[name], context.live_tenants[name] = spec, live
        try:
            await self._workers.add(name, spec)
            _ = self._workers.interfaces[name].encode  # refused now if it cannot be read
            await self._bring(name)
            await self._learning.prepare(run)
            context.overheads_s[name] = overhead_s
            await self._workers.prepare(name, PREPARED)
        except BaseException:
            await self._workers.remove(name)  # its model may be another one next time
            raise
        self._router.add(queue_settings(context.serving, live))
        self._tenants[name] = run
        context.instruments.add_tenant(name)
        if run.version is not None:
            self._recorder.begin_version(name, run.version)
        await self._plan_with(name)
        context.offer(name)  # not earlier: the daemon would count as not ready meanwhile
        await self._rollout.share(name, claim=True)

    async def _plan_with(self, name: str) -> None:
        """Return once an instance serves the tenant; if none does, it is removed again."""
        self._context.executor.add(name)
        first = not any(tenant.planned for tenant in self._tenants.values() if tenant.name != name)
        followed = self._recorder.plans_followed
        if first or self._split_at == followed:
            # there is no plan that this would disturb, so it need not wait for one
            self._actuation.do(self._controller.split_evenly())
            self._split_at = followed
        self._controller.planning.changed(f"{name} was added")
        if not await wait_until(lambda: self._router.ready(name), READY_S):
            await self._remove(name)
            raise MigratorError(
                f"{name} had no instance within {READY_S:g} s and was removed; see "
                f"{self._workers.log} and `migrator status`"
            )

    async def _bring(self, name: str) -> None:
        await self._bring_labels(name)
        if self._shared is not None:
            versions = self._context.versions_of(name)
            await asyncio.to_thread(self._shared.versions.bring, versions)

    async def _bring_labels(self, name: str) -> None:
        if self._shared is not None:
            fresh = await asyncio.to_thread(self._shared.labels.fresh, name)
            await self._context.labels.bring(fresh.rows)
            # last: labels that were not stored are fetched again
            self._shared.labels.mark_brought(fresh)

    async def _bring_late(self, name: str) -> bool:
        try:
            await self._bring_labels(name)
        except (MigratorError, OSError) as error:  # also a full disk
            self._without_shared[name] = str(error)
            return False
        # a version that other daemons shared serves from then on
        done = await self._rollout.share(name, claim=True)
        if done:
            self._recorder.event("store", f"{name} has its shared state", tenant=name)
        return done

    async def _remove(self, name: str) -> None:
        """Free its instances, then remove it from the state; labels and versions stay on disk."""
        tenant, context = self._tenants[name], self._context
        self._leaving.setdefault(name, tenant.drained)
        self._router.refuse(name, self._refusal)
        # with a retraining it would be planned until that ends
        tenant.remove()
        context.executor.remove(name)
        context.trainings.cancel(name)
        if any(tenant.planned for tenant in self._tenants.values()):
            self._controller.planning.changed(f"{name} was removed")
        else:
            self._actuation.do(context.executor.leave(context.clock.now_s()))
        await wait_until(lambda: not self._has_instance(name), EMPTY_S)
        await self._workers.remove(name)
        self._removed[name] = tenant.service
        del self._tenants[name]
        context.offered.pop(name, None)
        del self._leaving[name]

    async def _take_back(self, name: str) -> None:
        """Serve a tenant again whose removal failed, unless an operator drained it."""
        tenant, drained_before = self._tenants[name], self._leaving[name]
        self._context.executor.add(name)
        await self._workers.prepare(name, PREPARED)
        if not drained_before:
            tenant.undrain()
        self._router.refuse(name, REFUSAL if tenant.drained else None)
        del self._leaving[name]
        if not tenant.drained:
            await self._plan_with(name)

    def _has_instance(self, name: str) -> bool:
        units = self._context.executor.units
        return any(unit.task and unit.task.tenant == name for unit in units)

    async def require_ready(self) -> None:
        """HttpError 409 while no tenant can be added or removed."""
        if not await wait_until(lambda: self._controller.started, READY_S):
            raise HttpError(409, "the daemon is still starting; try again in some seconds")
        if self._context.executor.paused:
            raise HttpError(409, "reconfiguration is paused; resume it, then try again")
