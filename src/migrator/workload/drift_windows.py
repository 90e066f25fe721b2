"""Tells whether a scenario gives drift for all of its windows."""

from __future__ import annotations

from collections.abc import Mapping

from migrator.core.scenario import Scenario


def missing_drift(scenario: Scenario) -> str:
    """Which tenants have drift for fewer windows than the scenario runs; empty if none has.

    A tenant without any drift is not named: its data is meant to stay the same.
    """
    windows_given = {tenant.name: len(tenant.drifts) for tenant in scenario.tenants}
    short = _shorter(windows_given, scenario.windows)
    if not short:
        return ""
    return (
        f"windows: {scenario.windows}, but retraining gives the drift of fewer: {short}; later "
        "windows of these tenants neither drift nor retrain. Give the drift of every window, or "
        "run fewer windows"
    )


def missing_samples(scenario: Scenario, windows_with_samples: Mapping[str, int]) -> str:
    """Which tenants have a benchmark with new samples for fewer windows than the scenario runs."""
    short = _shorter(windows_with_samples, scenario.windows)
    if not short:
        return ""
    return (
        f"windows: {scenario.windows}, but live.benchmark has new samples for fewer: {short}; in "
        "later windows `migrator load` sends those of the last one, and nothing drifts"
    )


def _shorter(given: Mapping[str, int], windows: int) -> str:
    short = {name: count for name, count in given.items() if 0 < count < windows}
    return ", ".join(f"{name} {count}" for name, count in short.items())
