"""Simulation of a placed cluster: every GPU is an independent run, many in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from migrator.cluster.placement.workers import TaskWorkers
from migrator.core.cluster import ClusterOutcome, ClusterPlan, ClusterScenario
from migrator.core.errors import InputError
from migrator.core.outcome import RunOutcome
from migrator.core.scenario import Scenario
from migrator.simulate.compare import Job


def simulate_placed(
    scenario: ClusterScenario,
    plan: ClusterPlan,
    workers: TaskWorkers,
    *,
    policy: str | None = None,
    forecaster: str | None = None,
    drawn: bool = False,
    step: Callable[[], None] = lambda: None,
) -> ClusterOutcome:
    """Run every GPU that has tenants; `step` is called after each."""
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
    """Raise InputError with the reason and the remedy if a tenant has no GPU."""
    if not plan.unplaced:
        return
    names = [each.tenant for each in plan.unplaced]
    raise InputError(f"tenants: no GPU has room for {_shown(names)}: {plan.unplaced[0].why}")


def _shown(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _as_given(scenario: Scenario, _seed: int | None, _windows: int | None) -> Scenario:
    """A scenario source that ignores seed and windows, because the scenario contains them."""
    return scenario


def _run(job: Job) -> RunOutcome:
    return job.run()
