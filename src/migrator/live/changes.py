"""Changes of a running daemon: an operator's actions, and tenants that a cluster adds and removes.

Actions (pause, resume, replan, drain, undrain, roll back) are done immediately and recorded with
their outcome. An added tenant gets a model, its shared weights and labels, and a place in the next
plan. A removed tenant is drained first. The other tenants are served throughout.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from pathlib import Path
from typing import Literal

import msgspec

from migrator.control.controller import Controller
from migrator.control.tenant_state import tenant_state_of
from migrator.core.action import Acted, ActionKind, Outcome
from migrator.core.errors import HttpError, InputError, MigratorError, NotWrittenError
from migrator.io.atomic_write import write_atomically
from migrator.live.actuation import Actuation
from migrator.live.context import (
    PREPARED,
    Context,
    assumed_overhead_s,
    model_spec,
    queue_settings,
    wait_until,
)
from migrator.live.learning import Learning, Rollout
from migrator.live.recording import Recorder
from migrator.records.rows import ActionRecord
from migrator.workload.live import LiveScenario

EMPTY_S = 30.0
"""Seconds that a drain waits for requests that are queued or being answered."""
REQUESTED = "asked for by an operator"
REFUSAL = "it is drained and takes no requests; try again later, or elsewhere"

READY_S = 60.0
"""Seconds after which an added tenant without an instance is removed again."""
STORE_S = 2.0
"""Seconds between two attempts to reach the shared store."""
MOVED = "it is served elsewhere; ask there"

_log = logging.getLogger(__name__)


class ActionRefusedError(MigratorError):
    """The action is not possible in the current state; nothing was changed."""


class _DrainedFile(msgspec.Struct):
    version: Literal[1] = 1
    drained: tuple[str, ...] = ()


class DrainedTenants:
    """The names of drained tenants in the file `path`, so that they stay drained after a restart.

    Without the file no tenant is drained.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            content = msgspec.json.decode(path.read_bytes(), type=_DrainedFile)
        except FileNotFoundError:
            content = _DrainedFile()
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(
                f"{path}: cannot read the drained tenants ({error}); delete the file to undrain "
                "all of them"
            ) from error
        self._names = frozenset(content.drained)

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._names

    def set(self, tenant: str, *, drained: bool) -> None:
        """Record whether a tenant is drained; after an InputError nothing has changed."""
        names = self._names | {tenant} if drained else self._names - {tenant}
        content = _DrainedFile(drained=tuple(sorted(names)))
        with write_atomically(self._path) as unfinished:
            unfinished.write_bytes(msgspec.json.encode(content) + b"\n")
        self._names = names


class OperatorActions:
    """The actions on one daemon; used in its event loop."""

    def __init__(
        self,
        context: Context,
        controller: Controller,
        actuation: Actuation,
        learning: Learning,
        recorder: Recorder,
        empty_s: float = EMPTY_S,
    ) -> None:
        self._context, self._actuation, self._learning = context, actuation, learning
        self._planning, self._recorder, self._empty_s = controller.planning, recorder, empty_s
        self._tenants, self._router = context.tenants, context.router
        self._executor = context.executor
        self._drained = DrainedTenants(context.serving.folder / "drained.json")
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def restore_drained(self) -> None:
        """Drain the tenants that were drained when the daemon last ran."""
        for name, tenant in self._tenants.items():
            if name in self._drained:
                tenant.drain()
                self._router.refuse(name, REFUSAL)

    async def act(self, kind: ActionKind, tenant: str | None, who: str) -> Acted:
        """Carry out an action, and record its origin and outcome."""
        try:
            acted = Acted(Outcome.DONE, await self._do(kind, tenant or ""))
        except ActionRefusedError as error:
            acted = Acted(Outcome.REFUSED, str(error))
        except MigratorError as error:
            acted = Acted(Outcome.FAILED, str(error), isinstance(error, NotWrittenError))
        except Exception as error:  # every action is recorded with an outcome
            _log.exception("%s failed", kind)
            acted = Acted(Outcome.FAILED, f"unexpected error ({error!r}); see the daemon's log")
        row = ActionRecord(time.time(), kind, tenant, who, acted.outcome, acted.words)
        self._recorder.action(row)
        return acted

    async def _do(self, kind: ActionKind, tenant: str) -> str:
        match kind:
            case ActionKind.PAUSE:
                return self._pause()
            case ActionKind.RESUME:
                return self._resume()
            case ActionKind.REPLAN:
                return self._replan()
            case ActionKind.ROLL_BACK:
                do = self._roll_back
            case ActionKind.DRAIN:
                do = self._drain
            case ActionKind.UNDRAIN:
                do = self._undrain
        async with self._locks[tenant]:
            return await do(tenant)

    def _pause(self) -> str:
        if self._executor.paused:
            return "reconfiguration was paused already"
        self._actuation.do(self._executor.pause(self._context.clock.now_s()))
        return "reconfiguration is paused: instances stay as they are, plans are only recorded"

    def _resume(self) -> str:
        if not self._executor.paused:
            return "reconfiguration was not paused"
        self._actuation.do(self._executor.resume(self._context.clock.now_s()))
        return "reconfiguration is resumed: the newest plan is followed"

    def _replan(self) -> str:
        if not any(tenant.planned for tenant in self._tenants.values()):
            raise ActionRefusedError("every tenant is drained; undrain one, then replan")
        self._planning.request_plan_now(REQUESTED)
        return f"the policy is asked for another plan{self._unless_paused()}"

    async def _roll_back(self, name: str) -> str:
        was, now = self._tenants[name].version, await self._learning.roll_back(name)
        if was is None or now is None:
            raise ActionRefusedError(
                f"{name} has no earlier version to go back to; retrain it, or give it other weights"
            )
        words = f"rolled back by an operator from version {was.number}"
        self._recorder.begin_version(name, now, words)
        words = f"{name}: version {now.number} serves again, version {was.number} is withdrawn"
        workers = self._context.workers_of(name)
        old = [worker.name for worker in workers if worker.assignment.version != now.number]
        if old:
            raise MigratorError(
                f"{words}, but {', '.join(old)} could not load it; drain {name}, or restart the "
                "daemon"
            )
        return words

    async def _drain(self, name: str) -> str:
        tenant = self._tenants[name]
        if tenant.drained:
            return f"{name} was drained already"
        await asyncio.to_thread(self._drained.set, name, drained=True)
        self._router.refuse(name, REFUSAL)
        total = self._router.counts[name].total
        await wait_until(lambda: not total.open, self._empty_s)
        tenant.drain()
        self._planning.changed(f"{name} is drained")
        rest = f", {total.open} requests are still unanswered" if total.open else ""
        return (
            f"{name} takes no more requests{rest}; the next plan gives its instances to other "
            f"tenants{self._unless_paused()}"
        )

    async def _undrain(self, name: str) -> str:
        tenant = self._tenants[name]
        if not tenant.drained:
            return f"{name} was not drained"
        await asyncio.to_thread(self._drained.set, name, drained=False)
        tenant.undrain()
        self._router.refuse(name, None)
        self._planning.changed(f"{name} is no longer drained")
        return (
            f"{name} takes requests again; the next plan has instances for it"
            f"{self._unless_paused()}"
        )

    def _unless_paused(self) -> str:
        return ", which is followed once reconfiguration resumes" if self._executor.paused else ""


class Admission:
    """Adds and removes tenants of one daemon; used in its event loop."""

    def __init__(
        self,
        context: Context,
        controller: Controller,
        actuation: Actuation,
        learning: Learning,
        rollout: Rollout,
        recorder: Recorder,
    ) -> None:
        self._context, self._controller, self._actuation = context, controller, actuation
        self._learning, self._rollout, self._recorder = learning, rollout, recorder
        self._tenants, self._router = context.tenants, context.router
        self._workers, self._shared = context.workers, context.serving.shared
        self._split_at: int | None = None
        """Number of plans that had been followed when the board was last split evenly."""
        self._leaving: dict[str, bool] = {}
        """Tenants that are being removed, and whether an operator had drained them before."""
        self._without_shared: dict[str, str] = {}
        """Tenants that started without their shared weights and labels, and why."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def store_trouble(self) -> str:
        """Why tenants are served without their shared weights and labels; empty if none is."""
        return next(iter(self._without_shared.values()), "")

    async def admit(self, entry: object) -> str:
        """Add a tenant given as an entry of a scenario. Returns once an instance serves it."""
        reader = self._context.serving.reader
        assert reader is not None, "the API offers this in a cluster only"
        scenario = reader(entry)
        name = scenario.tenants[0].name
        async with self._locks[name]:
            if name in self._leaving:
                await self._require_ready()
                await self._take_back(name)
            if name in self._tenants:
                # other daemons may have served it meanwhile and accepted labels
                await self._bring_labels(name)
                await self._rollout.share(name, claim=True)
                words = f"{name} was here already"
            else:
                await self._require_ready()
                began_s = time.monotonic()
                await self._add(scenario)
                words = f"{name} was added and served after {time.monotonic() - began_s:.1f} s"
                self._recorder.event("tenant", words, tenant=name)
        # removed tenants stay in the records as well
        self._context.records.add_about(tenants=list(self._router.counts))
        return words

    async def dismiss(self, name: str) -> str:
        """Remove a tenant once its queued requests are answered."""
        async with self._locks[name]:
            if name not in self._tenants:
                return f"{name} was not here"
            await self._require_ready()
            self._leaving.setdefault(name, self._tenants[name].drained)
            self._router.refuse(name, MOVED)
            await wait_until(lambda: not self._router.counts[name].total.open, EMPTY_S)
            await self._remove(name)
            words = f"{name} was removed"
            self._recorder.event("tenant", words, tenant=name)
            return words

    async def bring_at_start(self, name: str) -> None:
        """Fetch the shared labels and version when the daemon starts.

        Without the store the tenant starts with what is on this disk, and `keep_trying` fetches the
        rest later.
        """
        try:
            await self._bring(name)
        except (MigratorError, OSError) as error:  # also a full disk
            self._without_shared[name] = str(error)
            words = f"{name} starts without the shared store: {error}"
            self._recorder.event("store", words, tenant=name)

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
        await self._workers.add(name, spec)
        overhead_s = assumed_overhead_s(live)
        run = tenant_state_of(served, live, context.clock.slot_s, overhead_s)
        context.models[name], context.live_tenants[name] = spec, live
        await self._bring(name)
        await self._learning.prepare(run)
        context.overheads_s[name] = overhead_s
        await self._workers.prepare(name, PREPARED)
        self._router.add(queue_settings(context.serving, live))
        self._tenants[name] = run
        context.instruments.add_tenant(name)
        if run.version is not None:
            self._recorder.begin_version(name, run.version)
        context.offer(name)
        await self._plan_with(name)
        await self._rollout.share(name, claim=True)

    async def _plan_with(self, name: str) -> None:
        """Return once an instance serves the tenant; if none does, it is removed again."""
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
        self._router.refuse(name, MOVED)
        # with a retraining it would be planned until that ends
        tenant.remove()
        context.trainings.cancel(name)
        if any(tenant.planned for tenant in self._tenants.values()):
            self._controller.planning.changed(f"{name} was removed")
        else:
            self._actuation.do(context.executor.leave(context.clock.now_s()))
        await wait_until(lambda: not self._has_instance(name), EMPTY_S)
        await self._workers.prepare(name, 0)
        del self._tenants[name]
        context.offered.pop(name, None)
        del self._leaving[name]

    async def _take_back(self, name: str) -> None:
        """Serve a tenant again whose removal failed, unless an operator drained it."""
        tenant, drained_before = self._tenants[name], self._leaving[name]
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

    async def _require_ready(self) -> None:
        if not await wait_until(lambda: self._controller.started, READY_S):
            raise HttpError(409, "the daemon is still starting; try again in some seconds")
        if self._context.executor.paused:
            raise HttpError(409, "reconfiguration is paused; resume it, then try again")
