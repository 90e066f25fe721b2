"""Without estimates `migrator` earns what retraining every tenant earns."""

from __future__ import annotations

import pytest

from benchmarks.failed_estimates import EVERYBODY, FAILED, UNKNOWN, Trial, scenario_of


def test_four_tenants_are_those_of_both_workloads() -> None:
    names = [tenant.name for tenant in scenario_of("W1+W6", 0).tenants]
    assert len(set(names)) == 4


@pytest.mark.parametrize(("name", "seed"), [("W1", 0), ("W10", 1), ("W1+W6", 2)])
def test_an_estimator_that_always_fails_costs_at_most_5_percent(name: str, seed: int) -> None:
    modes = (EVERYBODY, FAILED, UNKNOWN)
    everybody, *without = (Trial(name, seed, mode, windows=3).share() for mode in modes)
    assert min(without) >= 0.95 * everybody
