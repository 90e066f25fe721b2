"""A cluster's run is the runs of its GPUs, from one process and from several; Ray is in
`test_cluster_live`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.clusters import MODELS, cluster, tenant

from migrator.cluster.placement.place import place
from migrator.cluster.report import cluster_outcome_json, outcome_table
from migrator.cluster.simulate import ClusterOutcome, simulate_placed
from migrator.core.errors import InputError
from migrator.forecast.selection import forecaster
from migrator.io.task_pool import TaskWorkers, open_workers
from migrator.policies.registry import policy
from migrator.simulation.run import run

TENANTS = [tenant("a", MODELS[0], 700, count=2), tenant("b", MODELS[1], 900, memory_gib=8)]
SMALL = cluster(TENANTS, [{"board": "A30-24GB", "name": "gpu", "count": 3}], spare=0.2)


def outcome_of(workers: TaskWorkers) -> ClusterOutcome:
    """Placed and simulated, without times."""
    outcome = simulate_placed(SMALL, place(SMALL, workers), workers, policy="equal-mig")
    runs = (
        replace(run, windows=tuple(replace(window, plan_s=0.0) for window in run.windows))
        for run in outcome.runs
    )
    return ClusterOutcome(replace(outcome.plan, place_s=0.0), tuple(runs))


@pytest.fixture(scope="module")
def whole() -> ClusterOutcome:
    return outcome_of(TaskWorkers())


def test_every_gpu_runs_as_it_would_alone(whole: ClusterOutcome) -> None:
    busy = [gpu for gpu in whole.plan.gpus if gpu.tenants]
    served = [placed.served["A30-24GB"] for placed in SMALL.tenants]
    arrived = sum(int(t.trace.counts[t.offset_s : t.offset_s + 8].sum()) for t in served)
    assert whole.tally.received == arrived
    for placement, outcome in zip(busy, whole.runs, strict=True):
        gpu = SMALL.on(placement.gpu, placement.tenants)
        alone = run(gpu, policy("equal-mig"), forecaster("last-mean"))
        assert outcome.tally == alone.tally
        assert set(outcome.tenants) == set(placement.tenants)


def test_processes_place_and_simulate_as_one_does(whole: ClusterOutcome) -> None:
    with open_workers(2) as several:
        assert outcome_of(several) == whole


def test_tenants_of_all_gpus_are_compared_with_each_other(whole: ClusterOutcome) -> None:
    tallies = [tally for run in whole.runs for tally in run.tenants.values()]
    shares = [tally.goodput_share for tally in tallies if tally.received]
    assert cluster_outcome_json(whole)["fairness"]["worst_share"] == min(shares)
    assert "Jain's index" in outcome_table(whole)


def test_memory_binds_in_the_run_and_spare_does_not() -> None:
    board = SMALL.gpus[0].board
    light, _, heavy = (placed.served["A30-24GB"].service for placed in SMALL.tenants)
    assert heavy.capabilities_rps(board)[1] == 0 < heavy.capabilities_rps(board)[2]
    assert light.capabilities_rps(board)[1] == light.capability_rps(board.sms_of(1))


def test_a_cluster_without_room_is_refused_with_names() -> None:
    many = cluster([tenant("a", rps=300, count=7)], [{"board": "A30-24GB"}])
    plan = place(many)
    assert len(plan.unplaced) == 3
    with pytest.raises(InputError, match=r"no GPU has room for a-00.*add a GPU"):
        simulate_placed(many, plan, TaskWorkers())
