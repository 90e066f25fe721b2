"""A policy together with its forecaster: what decides where nobody else looks ahead for it.

Live, forecasting and planning are one question, asked of one process beside the serving path
(`aside.py`): where either fails or comes late, what is held goes on.
"""

from __future__ import annotations

from dataclasses import replace

from migrator.core.errors import InputError
from migrator.forecast.forecaster import Forecaster
from migrator.policies.forecasts import forecasts_of
from migrator.policies.policy import Decision, Observation, Policy, Sight


class Foresight:
    """The policy, with what its sight asks for filled in before it decides."""

    def __init__(self, policy: Policy, forecaster: Forecaster) -> None:
        if policy.sight is Sight.TRUTH:
            raise InputError(
                f"policy: {policy.name} knows what will come, which nobody does while it runs; use "
                "migrator or another"
            )
        self._policy, self._forecasts = policy, forecasts_of(forecaster)
        self.name, self.summary = policy.name, policy.summary
        self.sharing, self.routing = policy.sharing, policy.routing
        self.sight: Sight = policy.sight
        self.every_s, self.on_completion = policy.every_s, policy.on_completion

    def decide(self, observation: Observation) -> Decision:
        """What every task gets from now on."""
        return self._policy.decide(self._seen(observation))

    def _seen(self, now: Observation) -> Observation:
        if self.sight is Sight.NOTHING or (self.sight is Sight.START and now.slot > 0):
            return now
        views = zip(now.tenants, self._forecasts.ahead(now), strict=True)
        return replace(now, tenants=tuple(replace(each, ahead=what) for each, what in views))
