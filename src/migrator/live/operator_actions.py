"""An operator's actions on a running daemon: pause, resume, replan, drain, undrain, roll back,
retrain.

They are done immediately and recorded with their outcome.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from pathlib import Path
from threading import Lock
from typing import Literal

import msgspec

from migrator.control.controller import Controller
from migrator.control.retraining_plans import RetrainingPlans
from migrator.control.tenant_state import TenantState
from migrator.core.action import Acted, ActionKind, Outcome
from migrator.core.errors import InputError, MigratorError, NotWrittenError
from migrator.io.atomic_write import write_atomically
from migrator.live.actuation import Actuation
from migrator.live.context import Context, wait_until
from migrator.live.learning import Learning
from migrator.live.recorder import LiveRecorder
from migrator.records.rows import ActionRecord

EMPTY_S = 30.0
"""Seconds that a drain waits for requests that are queued or being answered."""
REQUESTED = "asked for by an operator"
REFUSAL = "it is drained and takes no requests; try again later, or elsewhere"

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
        self._changing = Lock()
        """Tenants are drained by different threads."""

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._names

    def set(self, tenant: str, *, drained: bool) -> None:
        """Record whether a tenant is drained; after an InputError nothing has changed."""
        with self._changing:
            names = self._names | {tenant} if drained else self._names - {tenant}
            if names == self._names:
                return
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
        retrainings: RetrainingPlans,
        recorder: LiveRecorder,
    ) -> None:
        self._context, self._actuation, self._learning = context, actuation, learning
        self._controller, self._retrainings = controller, retrainings
        self._planning, self._recorder = controller.planning, recorder
        self._tenants, self._router = context.tenants, context.router
        self._executor = context.executor
        self.drained = DrainedTenants(context.serving.folder / "drained.json")
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def restore_drained(self) -> None:
        """Drain the tenants that were drained when the daemon last ran."""
        for name, tenant in self._tenants.items():
            if name in self.drained:
                tenant.drain()
                self._router.refuse(name, REFUSAL)

    async def act(self, kind: ActionKind, tenant: str | None, who: str) -> Acted:
        """Carry out an action, and record its origin and outcome."""
        acted = Acted(Outcome.FAILED, "the daemon stopped before it was done")
        try:
            acted = Acted(Outcome.DONE, await self._do(kind, tenant or ""))
        except ActionRefusedError as error:
            acted = Acted(Outcome.REFUSED, str(error))
        except MigratorError as error:
            acted = Acted(Outcome.FAILED, str(error), isinstance(error, NotWrittenError))
        except Exception as error:  # every action is recorded with an outcome
            _log.exception("%s failed", kind)
            acted = Acted(Outcome.FAILED, f"unexpected error ({error!r}); see the daemon's log")
        finally:  # also of one that is cancelled
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
            case ActionKind.RETRAIN:
                do = self._retrain
        async with self._locks[tenant]:
            self._require_present(tenant)
            return await do(tenant)

    def _require_present(self, name: str) -> None:
        if name in self._context.leaving or name not in self._tenants:
            raise ActionRefusedError(f"{name} is being removed, or was; load it, then do this")

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
        message = f"rolled back by an operator from version {was.number}"
        self._recorder.begin_version(name, now, message)
        message = f"{name}: version {now.number} serves again, version {was.number} is withdrawn"
        workers = self._context.workers_of(name)
        old = [worker.name for worker in workers if worker.assignment.version != now.number]
        if old:
            raise MigratorError(
                f"{message}, but {', '.join(old)} could not load it; drain {name}, or restart the "
                "daemon"
            )
        return message

    async def _drain(self, name: str) -> str:
        tenant = self._tenants[name]
        if tenant.drained:
            return f"{name} was drained already"
        await asyncio.to_thread(self.drained.set, name, drained=True)
        self._router.refuse(name, REFUSAL)
        total = self._router.counts[name].total
        await wait_until(lambda: not total.open, EMPTY_S)
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
        await asyncio.to_thread(self.drained.set, name, drained=False)
        self._require_present(name)  # its removal may have begun meanwhile
        tenant.undrain()
        self._router.refuse(name, None)
        self._planning.changed(f"{name} is no longer drained")
        return (
            f"{name} takes requests again; the next plan has instances for it"
            f"{self._unless_paused()}"
        )

    async def _retrain(self, name: str) -> str:
        tenant = self._tenants[name]
        if tenant.retraining_requested and not tenant.drained:
            return (
                f"a retraining of {name} was asked for already and has not begun"
                f"{self._unless_paused()}; `migrator status` says when, or why not"
            )
        new, needed = self._retrainings.new_labels(tenant), tenant.labels_needed
        for refused, why in (
            (not self._controller.started, "the first window has not begun; try again then"),
            (tenant.drained, f"{name} is drained; undrain it, then retrain it"),
            (tenant.is_retraining, f"{name} is being retrained already; see `migrator status`"),
            (
                new < needed,
                f"{name} has {new} labels that are not learned, and a retraining needs {needed}; "
                "send feedback or samples, then try again",
            ),
        ):
            if refused:
                raise ActionRefusedError(why)
        self.request_retraining(tenant, REQUESTED)
        return (
            f"{name} is retrained on {new} new labels as soon as the policy gives it room"
            f"{self._unless_paused()}; `migrator status` says when, or why not"
        )

    def request_retraining(self, tenant: TenantState, reason: str) -> None:
        sentence = f"the retraining of {tenant.name} is requested: {reason}"
        self._recorder.event("retraining", sentence, tenant=tenant.name)
        self._retrainings.request(tenant, sentence)

    def _unless_paused(self) -> str:
        return ", which is followed once reconfiguration resumes" if self._executor.paused else ""
