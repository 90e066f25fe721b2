"""A placed cluster, simulated GPU by GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from migrator.cluster.outcome import ClusterOutcome
from migrator.cluster.scenario import ClusterPlan, ClusterScenario
from migrator.core.scenario import Scenario
from migrator.io.task_pool import TaskWorkers
from migrator.simulation.compare import SimulationJob


def simulate_placed(
    scenario: ClusterScenario,
    plan: ClusterPlan,
    workers: TaskWorkers,
    *,
    policy: str | None = None,
    drawn: bool = False,
    step: Callable[[], None] = lambda: None,
) -> ClusterOutcome:
    """Run every GPU that has tenants; `step` is called after each."""
    plan.require_all_placed()
    jobs = [
        SimulationJob(partial(_as_given, scenario.on(gpu.gpu, gpu.tenants)), policy, drawn=drawn)
        for gpu in plan.gpus
        if gpu.tenants
    ]
    runs = []
    for outcome in workers.map(SimulationJob.run, jobs):
        runs.append(outcome)
        step()
    return ClusterOutcome(plan, tuple(runs))


def _as_given(scenario: Scenario, _seed: int | None, _windows: int | None) -> Scenario:
    """A scenario source that ignores seed and windows, because the scenario contains them."""
    return scenario
