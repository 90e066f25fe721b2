"""A policy with its forecaster, so that forecasting and planning are one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.forecast.forecaster import Forecaster
from migrator.policies.forecasts import forecasts_of
from migrator.policies.policy import Decision, Observation, Policy, Sight

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
        return self._policy.decide(self.with_forecast(observation))

    def decide_on(self, observation: Observation) -> Decision:
        """Decide on an observation that already has its forecast."""
        return self._policy.decide(observation)

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
