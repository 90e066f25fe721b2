"""Made-up outcomes for the jobs of the paper's experiments."""

from __future__ import annotations

from collections.abc import Iterable

from migrator.planning.preinitialization import Preinitialization, Preparation
from migrator.records.outcome import RunOutcome
from migrator.reproduce.overhead import PassJob, PassOutcome
from migrator.simulation.compare import SimulationJob
from support.outcomes import run

LATE = {
    **{
        "oracle": 2,
        "migrator-replanned": 4,
        "migrator-once": 5,
        "migrator": 5,
        "migrator-paper": 6,
    },
    **{"ekya": 20, "astraea": 15, "paris": 30, "paris-reconfiguring": 30},
}
"""Requests late per tenant and window: who is better."""


def outcome_of(job: SimulationJob) -> RunOutcome:
    """A run that fits the job; the same for equal jobs."""
    policy = job.policy if isinstance(job.policy, str) else getattr(job.policy, "name", "")
    made = run(
        policy,
        getattr(job.source, "name", ""),
        job.seed or 0,
        windows=job.windows or 1,
        tenants=("inception-v3", "resnet-50"),
        late=LATE.get(policy, 25),
    )
    if not isinstance(job, PassJob):
        return made
    half = Preparation("resnet-50", 0, 1, 0, 5, overhead_s=10.0, hidden_s=5.0)
    passed = Preinitialization((half,), 0, 0.0)
    return PassOutcome(
        made.scenario, made.policy, made.forecaster, made.seed, made.windows, passes=(passed,)
    )


def outcomes_of(jobs: Iterable[SimulationJob]) -> dict[SimulationJob, RunOutcome]:
    """An outcome for every job."""
    return {job: outcome_of(job) for job in jobs}
