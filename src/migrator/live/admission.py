"""Tenants that come and go while others are served: taken on beside them, given up for elsewhere.

Nobody who is served notices: a tenant that comes is built, brought its weights and labels, and
planned for like the others; one that goes is drained first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from migrator.control.events import Instruction
from migrator.control.executor import Executor
from migrator.core.errors import MigratorError
from migrator.live.actions import REFUSAL
from migrator.live.gateway import line_of, offered
from migrator.live.labels import Labels
from migrator.live.learning import Learning
from migrator.live.recorder import Recorder
from migrator.live.serving import Serving, model_spec
from migrator.live.tenant_run import TenantRun, tenant_run
from migrator.live.thinking import Thinking
from migrator.live.trainings import Trainings
from migrator.live.window_clock import WindowClock
from migrator.serve.assignment import ModelSpec
from migrator.serve.links import Workers
from migrator.serve.refusals import ConflictError
from migrator.serve.router import Router
from migrator.serve.tensors import Offered
from migrator.workload.live import LiveScenario

READY_S = 60.0
"""A tenant that has no instance so long after it came is sent away again."""
EMPTY_S = 30.0
STORE_S = 2.0
"""Between two looks whether the store is back."""
GONE = "it is served elsewhere; ask there"
_LOOK_S = 0.02
_PREPARED = 2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Admission:
    """Takes tenants on and lets them go; for one daemon's event loop."""

    serving: Serving
    tenants: MutableMapping[str, TenantRun]
    models: MutableMapping[str, ModelSpec]
    offered: MutableMapping[str, Offered]
    """What the API has; a tenant that is not in it is not found."""
    overheads_s: MutableMapping[str, float]
    router: Router
    executor: Executor
    thinking: Thinking
    learning: Learning
    workers: Workers
    trainings: Trainings
    labels: Labels
    recorder: Recorder
    clock: WindowClock
    do: Callable[[list[Instruction]], None]
    split: Callable[[], None]
    """Share the board out evenly, for when there is no plan yet."""
    planning: Callable[[], bool]
    """Whether windows are planned by now."""
    claim: Callable[[str], Awaitable[bool]]
    """It is served here from now on: keep what serves it where other machines find it."""
    followed: Callable[[], int]
    """How many decisions of the policy have been followed."""
    _split_at: list[int] = field(default_factory=list)
    _going: dict[str, bool] = field(default_factory=dict)
    """Who was told to go and is here still; whether an operator had drained it before."""
    _late: dict[str, str] = field(default_factory=dict)
    """Tenants that began without what is shared of them, and why."""
    _one_by_one: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    @property
    def store_trouble(self) -> str:
        """Why tenants are served without what is shared of them; empty: none is."""
        return next(iter(self._late.values()), "")

    async def admit(self, entry: object) -> str:
        """Serve this tenant too, an entry as scenarios have them; returns once it is served."""
        assert self.serving.reader is not None, "the API takes orders in a cluster only"
        read = self.serving.reader(entry)
        name = read.tenants[0].name
        async with self._one_by_one[name]:
            if name in self._going:
                await self._require_ready()
                await self._stay(name)
            if name in self.tenants:
                # others may have served it meanwhile: what they accepted is learned from here
                await self._bring_labels(name)
                await self.claim(name)
                return f"{name} was here already"
            await self._require_ready()
            began_s = time.monotonic()
            await self._come(read)
            took_s = time.monotonic() - began_s
            words = f"{name} came and was served after {took_s:.1f} s"
            self.recorder.event("tenant", words, tenant=name)
            return words

    async def dismiss(self, name: str) -> str:
        """Serve it no more: what waits is answered, its instances go to others."""
        async with self._one_by_one[name]:
            if name not in self.tenants:
                return f"{name} was not here"
            await self._require_ready()
            self._going.setdefault(name, self.tenants[name].drained)
            self.router.refuse(name, GONE)
            await self._until(lambda: not self.router.counts[name].total.open, EMPTY_S)
            await self._leave(name)
            words = f"{name} is not served here any more"
            self.recorder.event("tenant", words, tenant=name)
            return words

    async def _come(self, read: LiveScenario) -> None:
        live, served = read.tenants[0], read.scenario.tenants[0]
        name, spec = live.name, model_spec(live)
        await self.workers.add(name, spec)
        overhead_s = live.service.profile.overhead.total_s(mig=True, prepared=True)
        run = tenant_run(served, live, self.clock.slot_s, overhead_s)
        self.models[name] = spec
        await self.bring(name)
        await self.learning.first_version(run)
        self.overheads_s[name] = overhead_s
        await self.workers.prepare(name, _PREPARED)
        self.router.add(line_of(self.serving, live))
        self.tenants[name] = run
        if run.version is not None:
            self.recorder.begin_version(name, run.version)
        self.offered[name] = offered(name, self.workers.inputs[name], spec.classes)
        await self._plan_with(name)
        await self.claim(name)

    async def _plan_with(self, name: str) -> None:
        """Returns once an instance serves it; where none does, it is sent away again."""
        first = not any(each.planned for each in self.tenants.values() if each.name != name)
        unplanned = self._split_at[-1:] == [self.followed()]
        if first or unplanned:
            # nobody has a plan that this would upset, so nobody waits for one
            self.split()
            self._split_at.append(self.followed())
        self.thinking.changed(f"{name} came")
        if not await self._until(lambda: self.router.ready(name), READY_S):
            await self._leave(name)
            raise MigratorError(
                f"{name} had no instance within {READY_S:g} s and is not served here; see "
                f"{self.workers.log} and `migrator status`"
            )

    async def bring(self, name: str) -> None:
        """What is shared of the tenant, from wherever it lived before."""
        await self._bring_labels(name)
        if self.serving.shared is not None:
            versions = self.learning.versions_of(name)
            await asyncio.to_thread(self.serving.shared.bring_version, versions)

    async def begin(self, name: str) -> None:
        """The same when the daemon starts: without the store it begins with what is on this disk,
        or anew, and `catch_up` brings the rest."""
        try:
            await self.bring(name)
        except (MigratorError, OSError) as error:  # also a full disk
            self._late[name] = str(error)
            self.recorder.event("store", f"{name} begins without it: {error}", tenant=name)

    async def claim_first(self, name: str) -> None:
        """Claim it when the daemon starts; where the store does not answer, once it does."""
        if name not in self._late and not await self.claim(name):
            self._late[name] = "the shared store did not take its version"

    async def catch_up(self) -> None:
        """Bring what is shared of tenants that began without it once the store is back."""
        while True:
            await asyncio.sleep(STORE_S)
            for name in list(self._late):
                try:
                    if name not in self.tenants or await self._caught_up(name):
                        del self._late[name]
                except Exception:
                    _log.exception("%s could not be brought from the shared store", name)

    async def _caught_up(self, name: str) -> bool:
        try:
            await self._bring_labels(name)
        except (MigratorError, OSError) as error:  # also a full disk
            self._late[name] = str(error)
            return False
        # what others shared serves from then on
        done = await self.claim(name)
        if done:
            self.recorder.event("store", f"{name} has what is shared of it", tenant=name)
        return done

    async def _bring_labels(self, name: str) -> None:
        if self.serving.shared is not None:
            fresh = await asyncio.to_thread(self.serving.shared.fresh_labels, name)
            await self.labels.bring(fresh.rows)
            self.serving.shared.brought_labels(fresh)  # not before: they would be lost here

    async def _leave(self, name: str) -> None:
        """Its instances to others, then forget it; labels and versions stay where they are."""
        tenant = self.tenants[name]
        self._going.setdefault(name, tenant.drained)
        self.router.refuse(name, GONE)
        tenant.drained, tenant.retraining = True, None  # else it is planned for until that ends
        self.trainings.cancel(name)
        self._plan_without(f"{name} went")
        await self._until(lambda: not self._holds(name), EMPTY_S)
        await self.workers.prepare(name, 0)
        del self.tenants[name]
        self.offered.pop(name, None)
        del self._going[name]

    async def _stay(self, name: str) -> None:
        """It was to go, and that failed: take its requests again, unless an operator drained it."""
        tenant, drained = self.tenants[name], self._going[name]
        await self.workers.prepare(name, _PREPARED)
        tenant.drained = tenant.drained and drained
        self.router.refuse(name, REFUSAL if tenant.drained else None)
        del self._going[name]
        if not tenant.drained:
            await self._plan_with(name)

    def _plan_without(self, why: str) -> None:
        if any(each.planned for each in self.tenants.values()):
            self.thinking.changed(why)
        else:
            self.do(self.executor.leave(self.clock.now_s()))

    def _holds(self, name: str) -> bool:
        return any(each.task and each.task.tenant == name for each in self.executor.units)

    async def _require_ready(self) -> None:
        if not await self._until(self.planning, READY_S):
            raise ConflictError("the daemon is still starting; try again in some seconds")
        if self.executor.paused:
            raise ConflictError("reconfiguration is paused; resume it, then try again")

    async def _until(self, so: Callable[[], Any], limit_s: float) -> bool:
        until_s = time.monotonic() + limit_s
        while not so():
            if time.monotonic() > until_s:
                return False
            await asyncio.sleep(_LOOK_S)
        return True
