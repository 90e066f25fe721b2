"""Asks a policy in virtual time: its decision counts once the time of planning has passed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter

from migrator.control.decider import rest_of, tenants_without_instance
from migrator.control.forecasting_policy import ForecastingPolicy
from migrator.control.observation import Decision, Observation, Policy, Sight
from migrator.core.errors import PolicyWarning
from migrator.core.problem import Plan
from migrator.planning.solve import default_time_limit_s
from migrator.records.outcome import PlanGap


@dataclass
class WindowDecisions:
    """The decisions of one window."""

    plan_s: float = 0.0
    """Real seconds that the policy took."""
    first: Decision | None = None
    gaps: list[PlanGap] = field(default_factory=list)
    forecast_by: dict[str, str] = field(default_factory=dict)
    """The forecaster of each tenant, in words."""


class SimulatedDecider:
    """The policy of a run, as the controller asks it.

    `planning_s`: seconds of virtual time that a decision takes, given those of a search that used
    all of its time limit (0 for other decisions).
    """

    is_warming_up = False
    unused: Mapping[str, int] = {}

    def __init__(
        self,
        policy: Policy,
        forecasting: ForecastingPolicy,
        now_s: Callable[[], float],
        planning_s: Callable[[float], float],
        wake: Callable[[float], None],
    ) -> None:
        self._policy, self._forecasting = policy, forecasting
        self._now_s, self._planning_s, self._wake = now_s, planning_s, wake
        self._asked: tuple[int, int, float, Decision] | None = None
        self._last: Plan | None = None
        self._unserved: set[str] = set()
        self.of_window = WindowDecisions()
        self.seen: Observation | None = None
        """What the last decision was made on, with its forecast."""

    def begin_window(self) -> None:
        """Note the decisions of a new window."""
        self.of_window, self._last = WindowDecisions(), None

    @property
    def busy(self) -> bool:
        """Whether the planning time has not passed yet."""
        return self._asked is not None and self._now_s() + 1e-9 < self._asked[2]

    def ask(self, window: int, observation: Observation) -> bool:
        """Decide at once, and hold the decision until the planning time has passed."""
        if self.busy:
            return False
        decision = self._decide(window, observation)
        ready_s = self._now_s() + self._planning_s(self._search_s(decision))
        self._asked = (window, observation.slot, ready_s, decision)
        self._wake(ready_s)
        return True

    def answer(self, window: int, slot: int) -> Decision | None:
        """The remaining slots of the decision; None if its window is over."""
        if self._asked is None or self.busy:
            return None
        (asked_in, asked_at, _, decision), self._asked = self._asked, None
        return rest_of(decision, slot - asked_at) if asked_in == window else None

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def _decide(self, window: int, observation: Observation) -> Decision:
        before, noted = perf_counter(), self.of_window
        self.seen = seen = self._forecasting.with_forecast(observation)
        decision = self._forecasting.decide_on(seen)
        noted.plan_s += perf_counter() - before
        self._warn_of_unserved(window, seen, decision)
        if noted.first is None:
            noted.first = decision
            if self._policy.sight in (Sight.FORECAST, Sight.START):
                names = [tenant.name for tenant in seen.tenants]
                words = self._forecasting.forecasts.words(seen)
                noted.forecast_by = dict(zip(names, words, strict=True))
        return decision

    def _search_s(self, decision: Decision) -> float:
        """The time limit of a new plan that is not proven optimal. Notes the gap of a new plan."""
        plan, problem = decision.plan, decision.problem
        last, self._last = self._last, plan
        if plan is None or problem is None or plan is last:
            return 0.0
        self.of_window.gaps.append(PlanGap(decision.begin, problem.charge, plan.gap))
        return default_time_limit_s(problem) if plan.gap > 0 else 0.0

    def _warn_of_unserved(self, window: int, seen: Observation, decision: Decision) -> None:
        """Warn once per tenant for which a decision holds no instance or share."""
        for name, slot in tenants_without_instance(seen, decision):
            if name not in self._unserved:
                self._unserved.add(name)
                warnings.warn(
                    f"{self._policy.name} holds nothing for the inference of {name} from slot "
                    f"{slot} of window {window} on; without an instance its requests are dropped",
                    PolicyWarning,
                    stacklevel=2,
                )
