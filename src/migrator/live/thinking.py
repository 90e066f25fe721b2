"""When the policy is asked, what it is shown, and when its answer is taken.

It thinks in a process of its own (`policies/aside.py`): until it answers, what was decided before
goes on, and an answer that never comes changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from migrator.control.units import Site, State, Unit, fits
from migrator.core.catalogue import Board
from migrator.core.instance import Kind
from migrator.core.share import Holding
from migrator.live.tenant_run import Phase, TenantRun
from migrator.live.window_clock import WindowClock
from migrator.policies.aside import REHEARSAL, Aside
from migrator.policies.foresight import Foresight
from migrator.policies.policy import Decision, Observation, Sight

_HELD = (State.WARMING, State.READY, State.TRAINING)
_REPLAN_AGAIN_S = 2.0
"""A plan that cannot be followed is not asked for again sooner."""
_FAILED, _FAILED_AGAIN_S = "it failed before", 10.0
"""Nor is a policy that failed."""


class Thinking:
    """One policy, asked whenever it wants to be or something went otherwise than planned."""

    def __init__(
        self,
        policy: Foresight,
        board: Board,
        clock: WindowClock,
        tenants: Mapping[str, TenantRun],
        told: Callable[[str], None],
    ) -> None:
        """`told`: why there is no plan, or none that can be used."""
        self._policy, self._clock, self._tenants = policy, clock, tenants
        self.board = board
        """As far as it is ours to divide."""
        self._told = told
        self._aside = Aside(policy, told=self._failed)
        self._failed_s = 0.0
        self._decided: Decision | None = None
        self._last: Decision | None = None
        """The same, whichever window it was for."""
        self._last_slot = 0
        self._due: str | None = None
        self._asked_s = 0.0
        self._asked_slot = -1
        self._asked_of: frozenset[str] = frozenset()
        self._hurry = self._anew = False

    def rehearse(self) -> None:
        """Ask before the first window, so that its plan does not wait for imports."""
        if self._planned():
            self._aside.ask(REHEARSAL, self._observed([], {}))

    def begin_window(self) -> None:
        """A new window is to be planned."""
        if self._aside.busy:
            at = "a window that is over"
            if self._aside.rehearsing:
                at = "a first one: on a new machine that takes a minute, once"
            self._told(f"{self._policy.name} still thinks about {at}; what is held serves on")
        self._decided, self._due, self._asked_slot = None, "the window begins", -1

    def because(self, reason: str) -> None:
        """Something went otherwise than planned: decide again on what is there."""
        self._due = self._due or reason

    def at_once(self, reason: str) -> None:
        """Whoever runs it wants another decision, and does not want to wait for it."""
        self._due, self._hurry = reason, True

    def changed(self, reason: str) -> None:
        """A tenant came or went: what was decided, or is being decided, is of no use any more."""
        self._decided, self._anew = None, True
        self.at_once(reason)

    def refuse(self, why: str) -> None:
        """What was decided last cannot be used."""
        self._decided = None
        self._failed(f"{self._policy.name} decided what cannot be followed: {why}")

    def completed(self) -> None:
        """A retraining ended."""
        if self._policy.on_completion:
            self.because("a retraining ended")

    def ask(self, units: Iterable[Unit], overheads_s: Mapping[str, float]) -> str | None:
        """Ask if it is time to; why it was asked."""
        reason = self._due or self._regular()
        if reason is None or (self._too_soon(reason) and not self._hurry):
            return None
        if not self._planned():
            return None  # what is held stays
        seen = self._observed(list(units), overheads_s)
        if not self._aside.ask(self._clock.number, seen):
            return None
        self._due, self._asked_s, self._asked_slot = None, time.monotonic(), seen.slot
        self._asked_of, self._hurry, self._anew = self._planned(), False, False
        return reason

    def answer(self) -> tuple[Decision, float] | None:
        """What was decided, and how long that took; None: nothing new."""
        decision = self._aside.answer(self._clock.number, self._clock.slot)
        if decision is None or self._asked_of != self._planned():
            return None
        self._decided = self._last = decision
        self._last_slot = self._clock.slot
        return decision, time.monotonic() - self._asked_s

    @property
    def unused(self) -> Mapping[str, int]:
        """How often no answer could be used: "dropped" as too late, "lost" as there was none."""
        return self._aside.unused

    def close(self) -> None:
        """End its process."""
        self._aside.close()

    def _failed(self, why: str) -> None:
        self._told(why)
        self._due, self._failed_s = self._due or _FAILED, time.monotonic()

    def _too_soon(self, reason: str) -> bool:
        now_s = time.monotonic()
        if reason == _FAILED:
            return now_s - self._failed_s < _FAILED_AGAIN_S
        soon = self._decided is not None and now_s - self._asked_s < _REPLAN_AGAIN_S
        return soon and reason == self._due

    def _regular(self) -> str | None:
        every_s = self._policy.every_s
        if every_s is None or self._decided is None:
            return None
        every = max(1, round(every_s / self._clock.slot_s))
        slot = self._clock.slot
        return "it is time" if slot % every == 0 and slot != self._asked_slot else None

    def _planned(self) -> frozenset[str]:
        return frozenset(name for name, each in self._tenants.items() if each.planned)

    def _observed(self, units: list[Unit], overheads_s: Mapping[str, float]) -> Observation:
        names, now_s = self._planned(), self._clock.now_s()
        # a policy that does not plan would leave all as it is where it sees what is held
        shown = () if self._anew and self._policy.sight is Sight.NOTHING else units
        held = [e for e in shown if e.task and e.task.tenant in names and e.state in _HELD]
        holdings: tuple[Holding, ...] = tuple(each.instance for each in held)
        left = self._left(units) if shown else ()
        return Observation(
            self.board,
            self._clock.slot_s,
            self._clock.slots,
            self._clock.slot,
            tuple(each.view() for name, each in self._tenants.items() if name in names),
            (*holdings, *left),
            self._decided,
            (*(_cold_s(each, now_s, overheads_s) for each in held), *(0.0 for _ in left)),
        )

    def _left(self, units: Iterable[Unit]) -> tuple[Holding, ...]:
        """What the last decision has for retrainings that do not run: theirs until the next one.

        Policies that only hand on what is held rely on it; who plans begins from what is there.
        """
        if self._last is None or self._policy.sight is not Sight.NOTHING:
            return ()
        slots = self._last.slots
        at = len(slots) - 1 if self._decided is None else self._clock.slot - self._last_slot
        busy = [each.site for each in units if each.task is not None]
        return tuple(
            each
            for each in slots[min(max(0, at), len(slots) - 1)]
            if self._does_not_run(each)
            and (site := Site.of(self.board, each)) not in busy
            and fits(self.board, site, busy)
        )

    def _does_not_run(self, holding: Holding) -> bool:
        task = holding.task
        if task is None or task.kind is not Kind.RETRAINING or task.tenant not in self._planned():
            return False
        job = self._tenants[task.tenant].retraining
        return job is None or job.phase is not Phase.RUNNING


def _cold_s(unit: Unit, now_s: float, overheads_s: Mapping[str, float]) -> float:
    """How long until it serves."""
    if unit.state is not State.WARMING or unit.task is None:
        return 0.0
    return max(0.0, overheads_s.get(unit.task.tenant, 0.0) - (now_s - unit.since_s))
