"""A policy that looks ahead for itself sees what the simulator would show it."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from support.scenarios import Fixed, drift, scenario, serves, tenant

from migrator.control.forecasting_policy import ForecastingPolicy
from migrator.core.errors import InputError
from migrator.forecast.selection import forecaster
from migrator.policies.policy import Observation, Sight
from migrator.policies.registry import policy
from migrator.simulation.run import run


def _observed() -> Observation:
    watcher = Fixed((serves("a", 0, 1),))
    watcher.sight = Sight.NOTHING
    this = scenario(tenant("a", [5] * 60, offset_s=40, drifts=(drift(),)))
    run(this, watcher, forecaster("last-mean"))
    return watcher.seen[0]


@pytest.mark.parametrize(
    ("sight", "slot", "looks"),
    [
        (Sight.FORECAST, 0, True),
        (Sight.FORECAST, 4, True),
        (Sight.START, 0, True),
        (Sight.START, 4, False),
        (Sight.NOTHING, 0, False),
    ],
)
def test_what_the_policy_is_shown(sight: Sight, slot: int, looks: bool) -> None:
    watcher = Fixed((serves("a", 0, 1),))
    watcher.sight = sight
    ForecastingPolicy(watcher, forecaster("last-mean")).decide(replace(_observed(), slot=slot))
    ahead = watcher.seen[0].tenants[0].ahead
    assert (ahead is not None) == looks
    if ahead is not None:
        assert ahead.shape[1] == 10 - slot
        assert np.allclose(ahead.mean(axis=0), 5, atol=1.5)


def test_it_travels_to_another_process() -> None:
    sent = pickle.loads(
        pickle.dumps(ForecastingPolicy(policy("migrator"), forecaster("last-mean")))
    )
    assert sent.decide(_observed()).slots


def test_an_oracle_is_of_no_use_live() -> None:
    with pytest.raises(InputError, match="knows future arrivals"):
        ForecastingPolicy(policy("oracle"), forecaster("last-mean"))
