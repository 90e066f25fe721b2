"""When the policy is asked, what it is shown, and when its answer is taken.

It thinks in a process of its own (`policies/aside.py`): until it answers, what was decided before
goes on, and an answer that never comes changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from migrator.core.catalogue import Board
from migrator.core.share import Holding
from migrator.execute.units import State, Unit
from migrator.policies.aside import Aside
from migrator.policies.foresight import Foresight
from migrator.policies.policy import Decision, Observation
from migrator.runtime.tenant_run import TenantRun
from migrator.runtime.window_clock import WindowClock

_HELD = (State.WARMING, State.READY, State.TRAINING)
_REPLAN_AGAIN_S = 2.0
"""A plan that cannot be followed is not asked for again sooner."""


class Thinking:
    """One policy, asked whenever it wants to be or something went otherwise than planned."""

    def __init__(
        self,
        policy: Foresight,
        board: Board,
        clock: WindowClock,
        tenants: Mapping[str, TenantRun],
    ) -> None:
        self._policy, self._board, self._clock, self._tenants = policy, board, clock, tenants
        self._aside = Aside(policy)
        self._decided: Decision | None = None
        self._due: str | None = None
        self._asked_s = 0.0
        self._asked_slot = -1

    def begin_window(self) -> None:
        """A new window is to be planned."""
        self._decided, self._due, self._asked_slot = None, "the window begins", -1

    def because(self, reason: str) -> None:
        """Something went otherwise than planned: decide again on what is there."""
        self._due = self._due or reason

    def completed(self) -> None:
        """A retraining ended."""
        if self._policy.on_completion:
            self.because("a retraining ended")

    def ask(self, units: Iterable[Unit], overheads_s: Mapping[str, float]) -> str | None:
        """Ask if it is time to; why it was asked."""
        reason = self._due or self._regular()
        soon = self._decided is not None and time.monotonic() - self._asked_s < _REPLAN_AGAIN_S
        if reason is None or (soon and reason == self._due):
            return None
        seen = self._observed(list(units), overheads_s)
        if not self._aside.ask(self._clock.number, seen):
            return None
        self._due, self._asked_s, self._asked_slot = None, time.monotonic(), seen.slot
        return reason

    def answer(self) -> tuple[Decision, float] | None:
        """What was decided, and how long that took; None: nothing new."""
        decision = self._aside.answer(self._clock.number, self._clock.slot)
        if decision is None:
            return None
        self._decided = decision
        return decision, time.monotonic() - self._asked_s

    def close(self) -> None:
        """End its process."""
        self._aside.close()

    def _regular(self) -> str | None:
        every_s = self._policy.every_s
        if every_s is None or self._decided is None:
            return None
        every = max(1, round(every_s / self._clock.slot_s))
        slot = self._clock.slot
        return "it is time" if slot % every == 0 and slot != self._asked_slot else None

    def _observed(self, units: list[Unit], overheads_s: Mapping[str, float]) -> Observation:
        held = [each for each in units if each.task is not None and each.state in _HELD]
        now_s = self._clock.now_s()
        holdings: tuple[Holding, ...] = tuple(each.instance for each in held)
        return Observation(
            self._board,
            self._clock.slot_s,
            self._clock.slots,
            self._clock.slot,
            tuple(each.view() for each in self._tenants.values()),
            holdings,
            self._decided,
            tuple(_cold_s(each, now_s, overheads_s) for each in held),
        )


def _cold_s(unit: Unit, now_s: float, overheads_s: Mapping[str, float]) -> float:
    """How long until it serves."""
    if unit.state is not State.WARMING or unit.task is None:
        return 0.0
    return max(0.0, overheads_s.get(unit.task.tenant, 0.0) - (now_s - unit.since_s))
