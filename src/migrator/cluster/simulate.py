"""A placed cluster, simulated GPU by GPU, and its outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from migrator.cluster.scenario import ClusterPlan, ClusterScenario
from migrator.core.fairness import Fairness, fairness
from migrator.core.outcome import Tally
from migrator.core.preferences import Preferences
from migrator.core.scenario import Scenario
from migrator.io.task_pool import TaskWorkers
from migrator.records.outcome import RunOutcome
from migrator.simulation.compare import SimulationJob


@dataclass(frozen=True)
class ClusterOutcome:
    """The outcomes of a cluster's GPUs."""

    plan: ClusterPlan
    runs: tuple[RunOutcome, ...]
    """In the order of the plan's GPUs that have tenants."""

    @property
    def scenario(self) -> str:
        return self.plan.scenario

    @property
    def policy(self) -> str:
        return self.runs[0].policy

    @property
    def forecaster(self) -> str:
        return self.runs[0].forecaster

    @property
    def seed(self) -> int:
        return self.runs[0].seed

    @property
    def tally(self) -> Tally:
        return sum((run.tally for run in self.runs), Tally())

    @property
    def tenants(self) -> dict[str, Tally]:
        """Those of all GPUs."""
        return {name: tally for run in self.runs for name, tally in run.tenants.items()}

    @property
    def preferences(self) -> Preferences:
        """Weights and floors of the tenants of all GPUs."""
        given = [run.preferences for run in self.runs]
        return Preferences(
            {name: weight for of_run in given for name, weight in of_run.weights.items()},
            {name: floor for of_run in given for name, floor in of_run.floors.items()},
        )

    @property
    def fairness(self) -> Fairness:
        """Between the tenants of all GPUs."""
        return fairness(self.tenants)

    @property
    def reconfigurations(self) -> int:
        return sum(run.reconfigurations for run in self.runs)

    @property
    def plan_s(self) -> float:
        """Wall time spent planning windows on all GPUs, without the placement."""
        return sum(run.plan_s for run in self.runs)


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
