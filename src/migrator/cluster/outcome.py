"""The outcome of a cluster that was simulated: its placement and a run per GPU."""

from __future__ import annotations

from dataclasses import dataclass

from migrator.cluster.scenario import ClusterPlan
from migrator.core.outcome import Tally
from migrator.records.outcome import RunOutcome


@dataclass(frozen=True)
class ClusterOutcome:
    """The outcomes of a cluster's GPUs."""

    plan: ClusterPlan
    runs: tuple[RunOutcome, ...]
    """In the order of the plan's GPUs that have tenants."""

    @property
    def scenario(self) -> str:
        """Name of the scenario."""
        return self.plan.scenario

    @property
    def policy(self) -> str:
        """The policy of every GPU."""
        return self.runs[0].policy

    @property
    def forecaster(self) -> str:
        """The forecaster of every GPU."""
        return self.runs[0].forecaster

    @property
    def seed(self) -> int:
        """The seed of the arrivals."""
        return self.runs[0].seed

    @property
    def tally(self) -> Tally:
        """The counts of all GPUs."""
        return sum((run.tally for run in self.runs), Tally())

    @property
    def reconfigurations(self) -> int:
        """Reconfigurations on all GPUs."""
        return sum(run.reconfigurations for run in self.runs)

    @property
    def plan_s(self) -> float:
        """Wall time spent planning windows on all GPUs, without the placement."""
        return sum(run.plan_s for run in self.runs)
