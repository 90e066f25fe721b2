"""The outcome of a cluster that was simulated: its placement and a run per GPU."""

from __future__ import annotations

from dataclasses import dataclass

from migrator.cluster.scenario import ClusterPlan
from migrator.core.fairness import Fairness, fairness
from migrator.core.outcome import Tally
from migrator.core.preferences import Preferences
from migrator.records.outcome import RunOutcome


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
