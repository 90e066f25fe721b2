"""The ladder: every step has one limit more, and concerns the policies that it is about."""

from dataclasses import fields, replace
from itertools import pairwise

import pytest
from support.reproduction import outcomes_of

from benchmarks import ladder
from benchmarks.ladder import DEFAULT, OURS, PEERS, evaluation_of, limits_of, steps
from migrator.core.scenario import DEFAULT_LIMITS, PeerLimits
from migrator.reproduce.experiment import Setting
from migrator.reproduce.sources import WorkloadSource
from migrator.simulation.compare import SimulationJob

SMALL = Setting(workloads=("W1", "W9"), most_windows=1)


def test_every_step_changes_one_limit_and_the_default_is_among_them() -> None:
    limits = list(steps().values())
    changed = [
        [
            field.name
            for field in fields(PeerLimits)
            if getattr(a, field.name) != getattr(b, field.name)
        ]
        for a, b in pairwise(limits)
    ]
    assert [step for step in changed if len(step) != 1] == []
    assert sorted(name for (name,) in changed) == sorted(field.name for field in fields(PeerLimits))
    assert steps()[DEFAULT] == DEFAULT_LIMITS


def test_steps_are_runs_that_differ_in_their_limits_only() -> None:
    made = {
        title: {
            (job.policy, job.source.name): (
                job.forecaster,
                job.windows,
                scenario_without_limits(job),
            )
            for job in evaluation_of("ekya", limits).jobs(SMALL)
            if isinstance(job.source, WorkloadSource)
        }
        for title, limits in steps().items()
    }
    assert all(job == made[DEFAULT] for job in made.values())


def scenario_without_limits(job: SimulationJob) -> tuple[object, ...]:
    this = replace(job.scenario(), peers=DEFAULT_LIMITS)
    counts = [tenant.trace.counts.tobytes() for tenant in this.tenants]
    rest = [(tenant.service, tenant.offset_s, tenant.drifts) for tenant in this.tenants]
    return (*counts, *rest, this.board, this.seed, this.prepared, this.windows, this.slot_s)


def test_a_limit_of_mps_is_no_other_run_of_a_mig_policy() -> None:
    jobs = ladder.jobs(SMALL)
    runs = {name: sum(job.policy == name for job in jobs) / 2 for name in (OURS, *PEERS)}
    assert runs[OURS] == 1
    assert runs["paris"] == runs["paris-reconfiguring"] == 2  # with and without prepared workers
    assert runs["ekya"] == runs["astraea"] == len(steps())
    for limits in steps().values():
        assert limits_of(OURS, limits) == DEFAULT_LIMITS


def test_figures_hold_goodput_and_gain_of_every_step() -> None:
    figures = ladder.figures(SMALL, outcomes_of(ladder.jobs(SMALL)))
    assert list(figures["goodput"]) == list(steps())
    first = figures["goodput"]["no limits"]
    assert figures["gains"]["no limits"]["ekya"] == pytest.approx(first[OURS] / first["ekya"] - 1)


def test_a_row_per_step_and_the_default_marked() -> None:
    figures = {
        "default": "all",
        "workloads": ["W1"],
        "traces": "real",
        "goodput": {"none": {"migrator": 0.5, "ekya": 0.4}, "all": {"migrator": 0.5, "ekya": 0.25}},
        "gains": {"none": {"ekya": 0.25}, "all": {"ekya": 1.0}},
    }
    rows = ladder.text(figures, "COMMAND").splitlines()[4:]
    assert rows[0] == "| limits | migrator | ekya |"
    assert rows[2:] == [
        "| none | 50.0% | 40.0% (+25.0%) |",
        "| **all (default)** | 50.0% | 25.0% (+100.0%) |",
    ]
