"""When the policy is asked, what it observes, and when its decision is followed.

`WindowClock` counts windows and slots. `ForecastingPolicy` makes forecasting and planning one call.
The policy answers with a delay: in the daemon from a process of its own (`policy_process`), in a
simulation after the planning time of the scenario. Until then the previous decision stays in force.
A missing answer changes nothing.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from migrator.control.rehearsal import with_prediction
from migrator.control.tenant_state import Phase, TenantState
from migrator.control.units import Site, State, Unit, fits
from migrator.core.catalogue import Board
from migrator.core.errors import InputError, MigratorError, PolicyError
from migrator.core.problem import Holding, Kind
from migrator.core.scenario import DEFAULT_LIMITS, PeerLimits
from migrator.forecast.forecaster import Forecaster
from migrator.policies.planning import forecasts_of
from migrator.policies.policy import Decision, Observation, Policy, Sight

_TOLERANCE_S = 1e-6
"""Tolerance before a boundary, because sums of floats are not exact."""


@dataclass
class WindowClock:
    """Consecutive windows of equal length on a monotonic clock."""

    window_s: float
    slot_s: float
    first: int = 0
    """The number of the first window of this run."""
    now_s: Callable[[], float] = time.monotonic
    windows: int | None = None
    """Number of windows of this run; None if it has no end."""
    began_s: float = field(default=0.0)
    number: int = field(default=0)
    started_s: float = field(default=0.0)
    """When the first window began."""

    def start(self) -> None:
        """Begin the first window at the current time."""
        self.began_s, self.number = self.now_s(), self.first
        self.started_s = self.began_s

    @property
    def slots(self) -> int:
        """Slots per window."""
        return round(self.window_s / self.slot_s)

    @property
    def windows_left(self) -> int | None:
        """Windows of this run after the current one; None if it has no end."""
        if self.windows is None:
            return None
        return max(0, self.first + self.windows - self.number - 1)

    @property
    def into_s(self) -> float:
        """Seconds since the window began."""
        return self.now_s() - self.began_s

    @property
    def slot(self) -> int:
        """The current slot of the window."""
        return min(self.slots - 1, max(0, int((self.into_s + _TOLERANCE_S) / self.slot_s)))

    @property
    def slot_began_s(self) -> float:
        """When the current slot began."""
        return self.began_s + self.slot * self.slot_s

    @property
    def over(self) -> bool:
        """Whether the window has ended and the next is due."""
        return self.into_s + _TOLERANCE_S >= self.window_s

    def advance(self) -> None:
        """Begin the next window. Windows missed during a long pause are skipped."""
        passed = max(1, int((self.into_s + _TOLERANCE_S) / self.window_s))
        self.number += passed
        self.began_s += passed * self.window_s

    def until_next_slot_s(self) -> float:
        """Seconds until the next slot begins."""
        return self.slot_s - self.into_s % self.slot_s


Truth = Callable[[Observation], tuple[NDArray[np.float64], ...]]
"""Returns each tenant's arrivals in the remaining slots of the window. Simulations only."""


class ForecastingPolicy:
    """Adds the forecast that a policy needs before it decides."""

    def __init__(self, policy: Policy, forecaster: Forecaster, truth: Truth | None = None) -> None:
        if policy.sight is Sight.TRUTH and truth is None:
            raise InputError(
                f"policy: {policy.name} knows future arrivals and runs in simulations only; use "
                "migrator or another policy"
            )
        self._policy, self._truth = policy, truth
        self.forecasts = forecasts_of(forecaster)
        self.name, self.summary = policy.name, policy.summary
        self.sharing, self.routing = policy.sharing, policy.routing
        self.sight: Sight = policy.sight
        self.every_s, self.on_completion = policy.every_s, policy.on_completion
        self.estimates = policy.estimates

    def decide(self, observation: Observation) -> Decision:
        """Add the forecast and decide."""
        return self.decide_on(self.with_forecast(observation))

    def decide_on(self, observation: Observation) -> Decision:
        """Decide on an observation that already has its forecast.

        Raises PolicyError if the policy raises an exception that is not one of ours.
        """
        try:
            decided = self._policy.decide(observation)
        except MigratorError:
            raise
        except Exception as error:
            own = _own_frames(error.__traceback__)
            raise policy_error(self.name, error.with_traceback(own)) from error
        return with_prediction(observation, decided)

    def with_forecast(self, now: Observation) -> Observation:
        """The observation with the arrivals ahead, as far as the policy may see them."""
        if self.sight is Sight.NOTHING or (self.sight is Sight.START and now.slot > 0):
            return now
        if self.sight is Sight.TRUTH and self._truth is not None:
            ahead = self._truth(now)
        else:
            ahead = self.forecasts.ahead(now)
        views = zip(now.tenants, ahead, strict=True)
        return replace(now, tenants=tuple(replace(each, ahead=what) for each, what in views))


def policy_error(name: str, error: Exception) -> PolicyError:
    """The error for a policy that raised `error`, with where it did."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    text = "".join(traceback.format_exception(error))
    return PolicyError(name, f"{type(error).__name__}: {error}{where}", text)


def _own_frames(found: TracebackType | None) -> TracebackType | None:
    """The traceback from the policy's own code on; all of it if the policy is one of ours."""
    own = found
    while own is not None and own.tb_frame.f_globals.get("__name__", "").startswith("migrator."):
        own = own.tb_next
    return own or found


def tenants_without_instance(seen: Observation, decision: Decision) -> Iterator[tuple[str, int]]:
    """Tenants for whose inference a decision holds nothing, with the first slot of the window."""
    for view in seen.tenants:
        for slot, holdings in enumerate(decision.slots, seen.slot):
            tasks = (each.task for each in holdings if each.task is not None)
            if not any(e.tenant == view.name and e.kind is Kind.INFERENCE for e in tasks):
                yield view.name, slot
                break


REHEARSAL = -1
"""Window number of a question that only loads and compiles what later questions need."""
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


class Decider(Protocol):
    """A policy that is asked and answers later, one question at a time."""

    @property
    def busy(self) -> bool:
        """Whether an answer is pending."""
        ...

    @property
    def rehearsing(self) -> bool:
        """Whether the last question was the rehearsal."""
        ...

    @property
    def unused(self) -> Mapping[str, int]:
        """Counts of unusable answers: "dropped" arrived too late, "lost" never arrived."""
        ...

    def ask(self, window: int, observation: Observation) -> bool:
        """Ask for a decision. Returns False if the decider is busy; ask again later."""
        ...

    def answer(self, window: int, slot: int) -> Decision | None:
        """The decision from `slot` of `window` on; None if there is none yet."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


def rest_of(decision: Decision, late_slots: int) -> Decision:
    """The remaining slots of a decision that arrives late; its last slot stays in force."""
    gone = min(max(0, late_slots), len(decision.slots) - 1)
    return replace(decision, slots=decision.slots[gone:])


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

    def rehearse(self) -> None:
        """Ask once before the first window, so that its plan does not wait for imports."""
        if self._planned():
            self._decider.ask(REHEARSAL, self._observation([], {}))

    def begin_window(self) -> None:
        """Ask for a plan of the window that begins."""
        if self._decider.busy:
            what = "an earlier window"
            if self._decider.rehearsing:
                what = "the rehearsal (compiling takes up to a minute, once per machine)"
            self._report(
                f"{self._policy.name} is still busy with {what}; the layout stays as it is"
            )
        self._decided, self._due, self._asked_slot = None, WINDOW_BEGINS, -1

    def because(self, reason: str) -> None:
        """Ask again soon, because the plan cannot be followed."""
        self._due = self._due or reason

    def at_once(self, reason: str) -> None:
        """Ask again without the usual pause."""
        self._due, self._hurry = reason, True

    def changed(self, reason: str) -> None:
        """Discard earlier decisions, because tenants or available slices changed."""
        self._decided, self._ignore_held = None, True
        self.at_once(reason)

    def refuse(self, why: str) -> None:
        """Reject the last decision, because it cannot be followed."""
        self._decided = None
        self._failed(f"{self._policy.name} made an invalid decision: {why}")

    def completed(self) -> None:
        """Note that a retraining has ended."""
        if self._policy.on_completion:
            self.because(RETRAINING_ENDED)

    def ask(self, units: Iterable[Unit], overheads_s: Mapping[str, float]) -> str | None:
        """Ask if a question is due. Returns its reason."""
        reason = self._due or self._regular()
        if reason is None or self._wait_s(reason) > 0:
            return None
        if not self._planned():
            return None
        seen = self._observation(list(units), overheads_s)
        if not self._decider.ask(self._clock.number, seen):
            return None
        self._due, self._asked_s, self._asked_slot = None, self._clock.now_s(), seen.slot
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
        """Counts of unusable answers by kind."""
        return self._decider.unused

    def close(self) -> None:
        """Release the policy's resources."""
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
        if every_s is None or self._decided is None or not self._decided.replan:
            return None
        every = max(1, round(every_s / self._clock.slot_s))
        slot = self._clock.slot
        return REGULAR if slot % every == 0 and slot != self._asked_slot else None

    def _planned(self) -> frozenset[str]:
        return frozenset(name for name, each in self._tenants.items() if each.planned)

    def _observation(self, units: list[Unit], overheads_s: Mapping[str, float]) -> Observation:
        names, now_s = self._planned(), self._clock.now_s()
        # a policy without planning returns what is held, so after a change it is shown nothing held
        shown = () if self._ignore_held and self._policy.sight is Sight.NOTHING else units
        held = [e for e in shown if e.task and e.task.tenant in names and e.state in _HELD]
        holdings: tuple[Holding, ...] = tuple(each.instance for each in held)
        reserved = self._reserved(units) if shown else ()
        return Observation(
            self.board,
            self._clock.slot_s,
            self._clock.slots,
            self._clock.slot,
            tuple(each.view() for name, each in self._tenants.items() if name in names),
            (*holdings, *reserved),
            self._decided,
            (*(_cold_s(each, now_s, overheads_s) for each in held), *(0.0 for _ in reserved)),
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
    """Seconds until a warming unit is expected to serve."""
    if unit.state is not State.WARMING or unit.task is None:
        return 0.0
    return max(0.0, overheads_s.get(unit.task.tenant, 0.0) - (now_s - unit.since_s))
