"""A run decides the same however many windows it has."""

from dataclasses import replace

import numpy as np
import pytest
from support.scenarios import drift, profile, scenario, tenant

from migrator.forecast.selection import forecaster
from migrator.policies.registry import policies, policy
from migrator.records.outcome import WindowOutcome
from migrator.simulation.run import run

WINDOW_S = 30
WINDOWS = 4
SHORTER = 2


@pytest.mark.parametrize("name", sorted(policies().keys() - {"static-1-6"}))
def test_a_shorter_run_is_the_beginning_of_a_longer_one(name: str) -> None:
    """In the last window of a run a retraining is worth as much as in any other."""
    draw = np.random.default_rng(3)
    # retrainings that cost more in their window than they gain in it, on a busy board
    tenants = [
        tenant(
            name,
            draw.poisson(rate, (WINDOWS + 1) * WINDOW_S).tolist(),
            drifts=(drift(0.55, 0.75, 140.0),) * WINDOWS,
            slo_s=0.3,
            offset_s=WINDOW_S,
            model=profile(100),
        )
        for name, rate in (("a", 26), ("b", 22))
    ]
    longer = scenario(*tenants, window_s=WINDOW_S, windows=WINDOWS)
    runs = [
        run(replace(longer, windows=windows), policy(name), forecaster("last-mean"))
        for windows in (SHORTER, WINDOWS)
    ]
    shorter, beginning = ([*map(_result, outcome.windows[:SHORTER])] for outcome in runs)
    assert shorter == beginning


def _result(window: WindowOutcome) -> WindowOutcome:
    """The window without how long planning took on this machine."""
    return replace(window, plan_s=0.0)
