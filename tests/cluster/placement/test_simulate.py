"""A cluster's run is the runs of its GPUs, no request lost between them."""

from __future__ import annotations

import pytest
from support.clusters import MODELS, cluster, tenant

from migrator.cluster.placement.place import place
from migrator.cluster.placement.simulate import simulate_placed
from migrator.core.errors import InputError
from migrator.forecast.selection import forecaster
from migrator.io.task_pool import TaskWorkers
from migrator.policies.registry import policy
from migrator.simulation.run import run

TENANTS = [tenant("a", MODELS[0], 700, count=2), tenant("b", MODELS[1], 900, memory_gib=8)]


def test_every_gpu_runs_as_it_would_alone() -> None:
    scenario = cluster(TENANTS, [{"board": "A30-24GB", "count": 3}], spare=0.2)
    plan, steps = place(scenario), []
    whole = simulate_placed(
        scenario, plan, TaskWorkers(), policy="equal-mig", step=lambda: steps.append(1)
    )
    busy = [gpu for gpu in plan.gpus if gpu.tenants]
    assert len(steps) == len(busy) == len(whole.runs)
    served = [placed.served["A30-24GB"] for placed in scenario.tenants]
    arrived = sum(int(t.trace.counts[t.offset_s : t.offset_s + 8].sum()) for t in served)
    assert whole.tally.received == arrived
    for placement, outcome in zip(busy, whole.runs, strict=True):
        alone = run(
            scenario.on(placement.gpu, placement.tenants),
            policy("equal-mig"),
            forecaster("last-mean"),
        )
        assert outcome.tally == alone.tally
        assert set(outcome.tenants) == set(placement.tenants)


def test_memory_binds_in_the_run_and_spare_does_not() -> None:
    scenario = cluster(
        TENANTS, [{"board": "A30-24GB"}, {"board": "A30-24GB", "name": "b"}], spare=0.5
    )
    board = scenario.gpus[0].board
    light, _, heavy = (placed.served["A30-24GB"].service for placed in scenario.tenants)
    assert heavy.capabilities_rps(board)[1] == 0 < heavy.capabilities_rps(board)[2]
    assert light.capabilities_rps(board)[1] == light.capability_rps(board.sms_of(1))


def test_a_cluster_without_room_is_refused_with_names() -> None:
    many = cluster([tenant("a", rps=300, count=7)], [{"board": "A30-24GB"}])
    plan = place(many)
    assert len(plan.unplaced) == 3
    with pytest.raises(InputError, match=r"no GPU has room for a-00.*add a GPU"):
        simulate_placed(many, plan, TaskWorkers())
