"""What an operator can do to a daemon while it runs: each done at once, told in words, recorded."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from migrator.control.events import Instruction
from migrator.control.executor import Executor
from migrator.core.action import Acted, ActionKind, Outcome
from migrator.core.errors import MigratorError, NotWrittenError
from migrator.live.drained import Drained
from migrator.live.learning import Learning
from migrator.live.tenant_run import TenantRun
from migrator.live.thinking import Thinking
from migrator.live.versions import Version
from migrator.live.window_clock import WindowClock
from migrator.records.rows import ActionRecord
from migrator.serve.links import ServingWorker
from migrator.serve.router import Router

_log = logging.getLogger(__name__)

EMPTY_S = 30.0
"""What waits when a tenant is drained is waited for so long, then planned without."""
ASKED = "asked for by an operator"
REFUSAL = "it is drained, no requests are taken; try again later, or elsewhere"
_LOOK_S = 0.02


class ActionRefusedError(MigratorError):
    """As things stand the action has no sense; nothing was changed."""


@dataclass(frozen=True, eq=False)
class Actions:
    """The actions on one daemon; for its event loop."""

    tenants: Mapping[str, TenantRun]
    router: Router
    executor: Executor
    thinking: Thinking
    learning: Learning
    clock: WindowClock
    drained: Drained
    workers_of: Callable[[str], Iterable[ServingWorker]]
    do: Callable[[list[Instruction]], None]
    record: Callable[[ActionRecord], None]
    serves: Callable[[str, Version, str], None]
    """Write down which version serves a tenant from now on, and why."""
    empty_s: float = EMPTY_S
    _one_by_one: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    def begin(self) -> None:
        """Drain whoever was drained when the daemon last ran."""
        for name, tenant in self.tenants.items():
            if name in self.drained:
                tenant.drained = True
                self.router.refuse(name, REFUSAL)

    async def act(self, kind: ActionKind, tenant: str | None, who: str) -> Acted:
        """Do it, and write down who wanted it and what came of it."""
        try:
            acted = Acted(Outcome.DONE, await self._done(kind, tenant or ""))
        except ActionRefusedError as error:
            acted = Acted(Outcome.REFUSED, str(error))
        except MigratorError as error:
            unwritten = isinstance(error, NotWrittenError)
            acted = Acted(Outcome.FAILED, str(error), unwritten)
        except Exception as error:  # an operator's step is written down whatever becomes of it
            _log.exception("%s could not be done", kind)
            acted = Acted(Outcome.FAILED, f"an error of the daemon ({error!r}); look into its log")
        row = ActionRecord(time.time(), kind, tenant, who, acted.outcome, acted.words)
        self.record(row)
        return acted

    async def _done(self, kind: ActionKind, tenant: str) -> str:
        match kind:
            case ActionKind.PAUSE:
                return self._pause()
            case ActionKind.RESUME:
                return self._resume()
            case ActionKind.REPLAN:
                return self._replan()
        async with self._one_by_one[tenant]:
            match kind:
                case ActionKind.ROLL_BACK:
                    return await self._roll_back(tenant)
                case ActionKind.DRAIN:
                    return await self._drain(tenant)
                case ActionKind.UNDRAIN:
                    return await self._undrain(tenant)

    def _pause(self) -> str:
        if self.executor.paused:
            return "reconfiguration was paused already"
        self.do(self.executor.pause(self.clock.now_s()))
        return "reconfiguration is paused: what serves goes on, plans are only recorded"

    def _resume(self) -> str:
        if not self.executor.paused:
            return "reconfiguration was not paused"
        self.do(self.executor.resume(self.clock.now_s()))
        return "reconfiguration goes on: the newest plan is followed"

    def _replan(self) -> str:
        if not any(each.planned for each in self.tenants.values()):
            raise ActionRefusedError("every tenant is drained; undrain one, then plan")
        self.thinking.at_once(ASKED)
        return f"the policy is asked for another plan{self._unless_paused()}"

    async def _roll_back(self, name: str) -> str:
        was, now = self.tenants[name].version, await self.learning.roll_back(name)
        if was is None or now is None:
            raise ActionRefusedError(
                f"{name} has no earlier version to go back to; retrain it, or give it other weights"
            )
        self.serves(name, now, f"an operator went back to it from version {was.number}")
        words = f"{name}: version {now.number} serves again, version {was.number} is withdrawn"
        old = [e.name for e in self.workers_of(name) if e.assignment.version != now.number]
        if old:
            raise MigratorError(
                f"{words}, but {', '.join(old)} could not take it; drain {name}, or start the "
                "daemon again"
            )
        return words

    async def _drain(self, name: str) -> str:
        tenant = self.tenants[name]
        if tenant.drained:
            return f"{name} was drained already"
        await asyncio.to_thread(self.drained.keep, name, drained=True)
        self.router.refuse(name, REFUSAL)
        left = await self._emptied(name)
        tenant.drained = True
        self.thinking.changed(f"{name} is drained")
        rest = f", {left} of those that waited are left" if left else ""
        return (
            f"{name} takes no requests any more{rest}; the next plan gives its instances to "
            f"others{self._unless_paused()}"
        )

    async def _emptied(self, name: str) -> int:
        """Wait until what came before is answered; how many are not."""
        total, until_s = self.router.counts[name].total, time.monotonic() + self.empty_s
        while total.open and time.monotonic() < until_s:
            await asyncio.sleep(_LOOK_S)
        return total.open

    async def _undrain(self, name: str) -> str:
        tenant = self.tenants[name]
        if not tenant.drained:
            return f"{name} was not drained"
        await asyncio.to_thread(self.drained.keep, name, drained=False)
        tenant.drained = False
        self.router.refuse(name, None)
        self.thinking.changed(f"{name} is drained no more")
        return (
            f"{name} takes requests again; the next plan has instances for it"
            f"{self._unless_paused()}"
        )

    def _unless_paused(self) -> str:
        return ", followed once reconfiguration is resumed" if self.executor.paused else ""
