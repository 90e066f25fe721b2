"""A policy with its forecast: the arrivals that it may see are added before it decides."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from migrator.control.rehearsal import with_prediction
from migrator.core.errors import InputError, MigratorError, PolicyError
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
        self.estimates_always: bool = getattr(policy, "estimates_always", False)

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
        return replace(
            now, tenants=tuple(replace(view, ahead=arrivals) for view, arrivals in views)
        )


def policy_error(name: str, error: Exception) -> PolicyError:
    """The error for a policy that raised `error`, with where it did."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    text = "".join(traceback.format_exception(error))
    return PolicyError(name, f"{type(error).__name__}: {error}{where}", text)


def _own_frames(frames: TracebackType | None) -> TracebackType | None:
    """The traceback from the policy's own code on; all of it if the policy is one of ours."""
    own = frames
    while own is not None and own.tb_frame.f_globals.get("__name__", "").startswith("migrator."):
        own = own.tb_next
    return own or frames
