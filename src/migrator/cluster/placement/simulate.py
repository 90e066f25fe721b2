"""A cluster's run: every GPU is a run of its own, as `simulate` knows it; many at a time.

A GPU's scenario says everything its run depends on, so the outcome is the same wherever it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from migrator.cluster.placement.workers import Workers
from migrator.core.cluster import ClusterOutcome, ClusterPlan, ClusterScenario
from migrator.core.errors import InputError
from migrator.core.outcome import RunOutcome
from migrator.core.scenario import Scenario
from migrator.simulate.compare import Job


def simulate_placed(
    scenario: ClusterScenario,
    plan: ClusterPlan,
    workers: Workers,
    *,
    policy: str | None = None,
    forecaster: str | None = None,
    drawn: bool = False,
    step: Callable[[], None] = lambda: None,
) -> ClusterOutcome:
    """Run every GPU that has tenants; `step` is called as each one ends."""
    require_all_placed(plan)
    jobs = [
        Job(
            partial(_as_given, scenario.on(each.gpu, each.tenants)), policy, forecaster, drawn=drawn
        )
        for each in plan.gpus
        if each.tenants
    ]
    runs = []
    for outcome in workers.map(_run, jobs):
        runs.append(outcome)
        step()
    return ClusterOutcome(plan, tuple(runs))


def require_all_placed(plan: ClusterPlan) -> None:
    """InputError where a tenant has no GPU: what helps is in it."""
    if not plan.unplaced:
        return
    names = [each.tenant for each in plan.unplaced]
    raise InputError(f"tenants: no GPU has room for {_shown(names)}: {plan.unplaced[0].why}")


def _shown(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _as_given(scenario: Scenario, _seed: int | None, _windows: int | None) -> Scenario:
    """A source of the one scenario: seed and windows are in it already."""
    return scenario


def _run(job: Job) -> RunOutcome:
    return job.run()
