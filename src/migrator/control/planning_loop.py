"""When the policy is asked, what it observes, and when its decision is followed.

The policy answers with a delay (`decider`). Until then the previous decision stays in force. A
missing answer changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from migrator.control.decider import WARM_UP, Decider
from migrator.control.forecasting_policy import ForecastingPolicy
from migrator.control.retraining import Phase
from migrator.control.tenant_state import TenantState
from migrator.control.units import Site, State, Unit, fits
from migrator.control.window_clock import WindowClock
from migrator.core.catalogue import Board
from migrator.core.problem import Holding, Kind
from migrator.core.scenario import DEFAULT_LIMITS, PeerLimits
from migrator.policies.policy import Decision, Observation, Sight

WINDOW_BEGINS, REGULAR, RETRAINING_ENDED = (
    "the window begins",
    "it is time",
    "a retraining ended",
)
_HELD = (State.WARMING, State.READY, State.TRAINING)
_REPLAN_AGAIN_S = 2.0
"""Minimum seconds between two replans of a plan that cannot be followed."""
_FAILED, _FAILED_AGAIN_S = "it failed before", 10.0
"""Seconds before a failed policy is asked again."""


class PlanningLoop:
    """Asks one policy at the start of a window, at its own interval, and when a plan fails."""

    def __init__(
        self,
        policy: ForecastingPolicy,
        board: Board,
        clock: WindowClock,
        tenants: Mapping[str, TenantState],
        decider: Callable[[Callable[[str], None]], Decider],
        report: Callable[[str], None],
        limits: PeerLimits = DEFAULT_LIMITS,
    ) -> None:
        """`decider`: factory that takes the function to call when a question fails.

        `report`: called with the reason if there is no usable plan.
        """
        self._policy, self._clock, self._tenants = policy, clock, tenants
        self.board = board
        """The part of the board where instances may be created."""
        self._report, self._limits = report, limits
        self._decider = decider(self._failed)
        self._failed_s = 0.0
        self._decided: Decision | None = None
        self._last: Decision | None = None
        """The latest decision, possibly from an earlier window."""
        self._last_slot = 0
        self._due: str | None = None
        self._asked_s = 0.0
        self._asked_slot = -1
        self._asked_of: frozenset[str] = frozenset()
        self._hurry = self._ignore_held = False

    def warm_up(self) -> None:
        """Ask once before the first window, so that its plan does not wait for imports.

        Every tenant is shown with a history, because a policy may not plan without one.
        """
        if self._planned():
            observation = self._observation([], {})
            history = np.ones(observation.slots)
            views = tuple(replace(view, history=history) for view in observation.tenants)
            self._decider.ask(WARM_UP, replace(observation, tenants=views))

    def begin_window(self) -> None:
        """Ask for a plan of the window that begins."""
        if self._decider.busy:
            question = "an earlier window"
            if self._decider.is_warming_up:
                question = "the warm-up (compiling takes up to a minute, once per machine)"
            self._report(
                f"{self._policy.name} is still busy with {question}; the layout stays as it is"
            )
        self._decided, self._due, self._asked_slot = None, WINDOW_BEGINS, -1

    def request_plan(self, reason: str) -> None:
        """Ask again soon, because the plan cannot be followed."""
        self._due = self._due or reason

    def request_plan_now(self, reason: str) -> None:
        """Ask again without the usual pause."""
        self._due, self._hurry = reason, True

    def changed(self, reason: str) -> None:
        """Discard earlier decisions, because tenants, available slices or what is to be retrained
        changed."""
        self._decided, self._ignore_held = None, True
        self._asked_of = frozenset()  # an answer on its way is about what was before
        self.request_plan_now(reason)

    def refuse(self, why: str) -> None:
        """Reject the last decision, because it cannot be followed."""
        self._decided = None
        self._failed(f"{self._policy.name} made an invalid decision: {why}")

    def completed(self) -> None:
        if self._policy.on_completion:
            self.request_plan(RETRAINING_ENDED)

    def ask(self, units: Iterable[Unit], overheads_s: Mapping[str, float]) -> str | None:
        """Ask if a question is due. Returns its reason."""
        reason = self._due or self._regular()
        if reason is None or self._wait_s(reason) > 0:
            return None
        if not self._planned():
            return None
        observation = self._observation(list(units), overheads_s)
        if not self._decider.ask(self._clock.number, observation):
            return None
        self._due, self._asked_s, self._asked_slot = None, self._clock.now_s(), observation.slot
        self._asked_of, self._hurry, self._ignore_held = self._planned(), False, False
        return reason

    def answer(self) -> tuple[Decision, float] | None:
        """A new decision and its planning time in seconds; None if there is none."""
        decision = self._decider.answer(self._clock.number, self._clock.slot)
        if decision is None or self._asked_of != self._planned():
            return None
        self._decided = self._last = decision
        self._last_slot = self._clock.slot
        return decision, self._clock.now_s() - self._asked_s

    def due_s(self) -> float | None:
        """Seconds until a waiting question may be asked; None if none waits."""
        return None if self._due is None else max(0.0, self._wait_s(self._due))

    @property
    def unused(self) -> Mapping[str, int]:
        return self._decider.unused

    def close(self) -> None:
        self._decider.close()

    def _failed(self, why: str) -> None:
        self._report(why)
        self._due, self._failed_s = self._due or _FAILED, self._clock.now_s()

    def _wait_s(self, reason: str) -> float:
        """Seconds that a question has to wait. Both failures and plans have a minimum interval."""
        if self._hurry:
            return 0.0
        now_s = self._clock.now_s()
        if reason == _FAILED:
            return self._failed_s + _FAILED_AGAIN_S - now_s
        if self._decided is None or reason != self._due:
            return 0.0
        return self._asked_s + _REPLAN_AGAIN_S - now_s

    def _regular(self) -> str | None:
        every_s = self._policy.every_s
        if every_s is None or self._decided is None:
            return None
        every = max(1, round(every_s / self._clock.slot_s))
        slot = self._clock.slot
        return REGULAR if slot % every == 0 and slot != self._asked_slot else None

    def _planned(self) -> frozenset[str]:
        return frozenset(name for name, tenant in self._tenants.items() if tenant.planned)

    def _observation(self, units: list[Unit], overheads_s: Mapping[str, float]) -> Observation:
        names, now_s = self._planned(), self._clock.now_s()
        # a policy without planning returns what is held, so after a change it is shown nothing held
        shown = () if self._ignore_held and self._policy.sight is Sight.NOTHING else units
        held = [
            unit
            for unit in shown
            if unit.task and unit.task.tenant in names and unit.state in _HELD
        ]
        holdings: tuple[Holding, ...] = tuple(unit.instance for unit in held)
        reserved = self._reserved(units) if shown else ()
        return Observation(
            self.board,
            self._clock.slot_s,
            self._clock.slots,
            self._clock.slot,
            tuple(tenant.view() for name, tenant in self._tenants.items() if name in names),
            (*holdings, *reserved),
            self._decided,
            (*(_cold_s(unit, now_s, overheads_s) for unit in held), *(0.0 for _ in reserved)),
            self._limits,
        )

    def _reserved(self, units: Iterable[Unit]) -> tuple[Holding, ...]:
        """Instances that the last decision gave to retrainings that are not running.

        Policies without planning return what is held and rely on seeing these. Planning policies
        start from the existing instances.
        """
        if self._last is None or self._policy.sight is not Sight.NOTHING:
            return ()
        slots = self._last.slots
        at = len(slots) - 1 if self._decided is None else self._clock.slot - self._last_slot
        busy = [unit.site for unit in units if unit.task is not None]
        return tuple(
            holding
            for holding in slots[min(max(0, at), len(slots) - 1)]
            if self._does_not_run(holding)
            and (site := Site.of(self.board, holding)) not in busy
            and fits(self.board, site, busy)
        )

    def _does_not_run(self, holding: Holding) -> bool:
        task = holding.task
        if task is None or task.kind is not Kind.RETRAINING or task.tenant not in self._planned():
            return False
        job = self._tenants[task.tenant].retraining
        return job is None or job.phase is not Phase.RUNNING


def _cold_s(unit: Unit, now_s: float, overheads_s: Mapping[str, float]) -> float:
    """Seconds until a warming unit is expected to serve."""
    if unit.state is not State.WARMING or unit.task is None:
        return 0.0
    return max(0.0, overheads_s.get(unit.task.tenant, 0.0) - (now_s - unit.since_s))
