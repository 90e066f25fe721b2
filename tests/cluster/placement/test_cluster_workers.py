"""The same results from this process, from several, and from Ray where it is installed."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.clusters import MODELS, cluster, tenant
from support.ray_nodes import ray_folder

from migrator.advise.trial import Trial, run_trial
from migrator.cluster.outcome import ClusterOutcome
from migrator.cluster.placement.place import place
from migrator.cluster.placement.simulate import simulate_placed
from migrator.cluster.report import cluster_outcome_json, outcome_table
from migrator.cluster.scenario import ClusterPlan
from migrator.core.catalogue import board
from migrator.core.errors import InputError, MigratorError
from migrator.io.task_pool import TaskWorkers, open_workers
from migrator.records.outcome import RunOutcome
from migrator.reproduce.sources import WorkloadSource

RAY = importlib.util.find_spec("ray") is not None
SMALL = cluster(
    [tenant("a", MODELS[0], 700, count=2), tenant("b", MODELS[1], 900)],
    [{"board": "A30-24GB", "name": "gpu", "count": 2}],
)


def untimed_plan(plan: ClusterPlan) -> ClusterPlan:
    return replace(plan, place_s=0.0)


def untimed_run(run: RunOutcome) -> RunOutcome:
    return replace(run, windows=tuple(replace(window, plan_s=0.0) for window in run.windows))


def untimed(outcome: ClusterOutcome) -> ClusterOutcome:
    return ClusterOutcome(untimed_plan(outcome.plan), tuple(map(untimed_run, outcome.runs)))


@pytest.fixture(scope="module")
def several() -> Iterator[TaskWorkers]:
    """Two processes, which load the planner once."""
    with open_workers(2) as workers:
        yield workers


@pytest.fixture(scope="module")
def alone() -> ClusterOutcome:
    """The outcome of one process, without times."""
    with open_workers(1) as workers:
        return untimed(simulate_placed(SMALL, place(SMALL, workers), workers))


def test_processes_place_and_simulate_as_one_does(
    alone: ClusterOutcome, several: TaskWorkers
) -> None:
    assert untimed(simulate_placed(SMALL, place(SMALL, several), several)) == alone
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


@pytest.fixture(scope="module")
def ray() -> Iterator[TaskWorkers]:
    if not RAY:
        pytest.skip("needs ray")
    with ray_folder(), open_workers(None, "local") as workers:
        yield workers


def test_an_error_on_the_ray_cluster_is_one_sentence(ray: TaskWorkers) -> None:
    with pytest.raises(InputError) as here:
        board("A1000")
    with pytest.raises(InputError) as there:
        list(ray.map(board, ["A1000"]))
    assert str(there.value) == str(here.value)
    with pytest.raises(MigratorError, match="a task failed on the Ray cluster") as other:
        list(ray.map(json.loads, ["{"]))
    assert "\n" not in str(other.value)


def test_ray_gives_results_as_soon_as_they_are_there(ray: TaskWorkers) -> None:
    assert sorted(ray.as_completed(math.sqrt, [9.0, 4.0])) == [(0, 3.0), (1, 2.0)]
    with pytest.raises(InputError, match="A1000"):
        list(ray.as_completed(board, ["A1000"]))


def test_ray_runs_a_trial_as_one_process_does(ray: TaskWorkers) -> None:
    trial = Trial(WorkloadSource("W1"), 0, 1, ("equal-mig",))
    assert list(ray.as_completed(run_trial, [trial])) == [(0, trial.run())]


def test_ray_places_and_simulates_as_one_process_does(
    alone: ClusterOutcome, ray: TaskWorkers
) -> None:
    assert untimed(simulate_placed(SMALL, place(SMALL, ray), ray)) == alone
