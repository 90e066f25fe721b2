"""The same results from this process and from several; Ray is in `test_cluster_live`."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
from support.clusters import MODELS, cluster, tenant

from migrator.cluster.outcome import ClusterOutcome
from migrator.cluster.placement.place import place
from migrator.cluster.placement.simulate import simulate_placed
from migrator.cluster.report import cluster_outcome_json, outcome_table
from migrator.cluster.scenario import ClusterPlan
from migrator.core.errors import InputError
from migrator.io.task_pool import TaskWorkers, open_workers
from migrator.records.outcome import RunOutcome

RAY = importlib.util.find_spec("ray") is not None
SMALL = cluster(
    [tenant("a", MODELS[0], 700, count=2), tenant("b", MODELS[1], 900)],
    [{"board": "A30-24GB", "name": "gpu", "count": 2}],
)


def untimed_plan(plan: ClusterPlan) -> ClusterPlan:
    return replace(plan, place_s=0.0)


def untimed_run(run: RunOutcome) -> RunOutcome:
    return replace(run, windows=tuple(replace(window, plan_s=0.0) for window in run.windows))


def outcome_of(workers: TaskWorkers) -> ClusterOutcome:
    """Placed and simulated, without times."""
    outcome = simulate_placed(SMALL, place(SMALL, workers), workers, policy="equal-mig")
    return ClusterOutcome(untimed_plan(outcome.plan), tuple(map(untimed_run, outcome.runs)))


@pytest.fixture(scope="module")
def alone() -> ClusterOutcome:
    """The outcome of one process, without times."""
    with open_workers(1) as workers:
        return outcome_of(workers)


def test_processes_place_and_simulate_as_one_does(alone: ClusterOutcome) -> None:
    with open_workers(2) as several:
        assert outcome_of(several) == alone
    assert alone.tally.received > 0


def test_tenants_of_all_gpus_are_compared_with_each_other(alone: ClusterOutcome) -> None:
    tallies = [tally for run in alone.runs for tally in run.tenants.values()]
    shares = [tally.goodput_share for tally in tallies if tally.received]
    assert alone.fairness.worst_share == min(shares)
    assert cluster_outcome_json(alone)["fairness"]["worst_share"] == min(shares)
    assert "Jain's index" in outcome_table(alone)


@pytest.mark.skipif(RAY, reason="says how to get ray where it is not")
def test_without_ray_it_says_how_to_get_it() -> None:
    with (
        pytest.raises(InputError, match=r"pip install 'migrator-gpu\[cluster\]'"),
        open_workers(None, "auto"),
    ):
        pass


@pytest.mark.skipif(not RAY, reason="needs ray")
def test_an_address_that_does_not_answer_is_one_sentence() -> None:
    with pytest.raises(InputError, match="no Ray cluster"), open_workers(None, "127.0.0.1:1"):
        pass
