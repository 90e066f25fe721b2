"""Slowdowns: none under MIG, by the neighbours' part under MPS, by their number without either."""

import numpy as np
import pytest
from support.scenarios import H200, profile, serves, share, tenant

from migrator.core.batch import Batch
from migrator.core.problem import Holding, Kind, Share, Task
from migrator.core.profiles import INTERFERING_PART, TRAINING_INTERFERENCE, Service
from migrator.policies.policy import Sharing
from migrator.simulation.gpu import SimulatedWorker
from migrator.simulation.interference import (
    TURNS_OF_SERVING,
    BatchSlowdown,
    activities,
    slowdowns,
    training_speed,
)
from migrator.simulation.tenant import RunningTenant

SERVICES = [Service(name, profile(interference=0.2, contention=1.5), 1.0, 1) for name in ("a", "b")]


def life(holding: Holding) -> SimulatedWorker:
    assert holding.task is not None
    part = holding.percent / 100 if isinstance(holding, Share) else 0.1
    return SimulatedWorker(holding, holding.task, 132 * part, 0.0, 0.0)


def slower(
    sharing: Sharing, alive: list[SimulatedWorker], a_rps: float, b_rps: float
) -> tuple[float, float]:
    factors = slowdowns(
        sharing, H200.sms, SERVICES, [alive], {"a": np.array([a_rps]), "b": np.array([b_rps])}
    )
    return float(factors["a"][0]), float(factors["b"][0])


def test_instances_do_not_disturb_each_other() -> None:
    alive = [life(serves("a", 0, 1)), life(serves("b", 1, 1))]
    assert slower(Sharing.MIG, alive, 1e6, 1e6) == (1.0, 1.0)


def test_beside_a_training_of_the_measured_size_the_slowdown_is_the_measured_one() -> None:
    beside = share("b", 100 * INTERFERING_PART, Kind.RETRAINING)
    assert slower(Sharing.MPS, [life(share("a", 40)), life(beside)], 0, 0)[0] == pytest.approx(1.2)


def test_a_serving_neighbour_counts_by_how_busy_it_is() -> None:
    alive = [life(share("a", 50)), life(share("b", 50))]
    able = SERVICES[1].capability_rps(66)
    idle, _ = slower(Sharing.MPS, alive, 1, 0)
    half, _ = slower(Sharing.MPS, alive, 1, able / 2)
    full, _ = slower(Sharing.MPS, alive, 1, 10 * able)
    assert idle == 1.0
    # the one request a second keeps both a little busier
    assert half - 1 == pytest.approx((full - 1) / 2, rel=1e-3)
    assert full == pytest.approx(1 + 0.2 * 0.5 / INTERFERING_PART)


def test_under_mps_slow_batches_keep_neighbours_busy_for_longer() -> None:
    """Each is busy for 0.6 of the time alone. With x of it beside the other, both take 1 + 0.2 x
    times as long: x = 0.6 (1 + 0.2 x), so x = 0.6 / 0.88."""
    alive = [life(share(name, 100 * INTERFERING_PART)) for name in "ab"]
    rates_rps = {
        service.tenant: 0.6 * service.capability_rps(132 * INTERFERING_PART) for service in SERVICES
    }
    busy = activities(Sharing.MPS, H200.sms, SERVICES, alive, rates_rps)
    assert busy["a"] == pytest.approx(0.6 / 0.88, rel=1e-3)
    assert slower(Sharing.MPS, alive, *rates_rps.values())[1] == pytest.approx(
        1 + 0.2 * 0.6 / 0.88, rel=1e-3
    )


def test_what_a_live_run_measured_replaces_the_interference_of_the_profiles() -> None:
    alive = [life(share("a", 50)), life(share("b", 25)), life(share("b", 25, Kind.RETRAINING))]
    factors = slowdowns(
        Sharing.MPS,
        H200.sms,
        SERVICES,
        [alive],
        {"a": np.array([0.0]), "b": np.array([1e6])},
        measured=BatchSlowdown(0.003, training=0.2, serving=0.6),
    )
    assert factors["a"][0] == pytest.approx(1 + 0.25 * 0.2 + 0.25 * 0.6)
    assert factors["b"][0] == pytest.approx(1 + 0.25 * 0.2)


def test_a_batch_takes_what_every_batch_takes_in_addition() -> None:
    batches: list[Batch] = []
    running = RunningTenant(tenant("a", [10] * 10), 1.0, 0, 0, fixed_s=0.03)
    worker = SimulatedWorker(serves("a", 0, 1), Task("a", Kind.INFERENCE), 16, 0.0, 0.0)
    running.model.begin(0.0, 0)
    running.serve(
        [worker],
        *(0.0, 10.0, np.full(10, 2.0)),
        slowest_first=False,
        drawn=False,
        record=batches.append,
    )
    assert len(batches) > 50
    for batch in batches:
        alone_s = running.service.latency_s(batch.rows, 16)
        assert batch.answered_s - batch.taken_s == pytest.approx(2 * alone_s + 0.03)


def test_unpartitioned_everybody_waits_for_everybody_busy() -> None:
    alive = [life(share("a", 100)), life(share("b", 100, Kind.RETRAINING))]
    assert slower(Sharing.UNPARTITIONED, alive, 1, 0)[0] == pytest.approx(1 + 1.5)
    speed = training_speed(Sharing.UNPARTITIONED, H200.sms, alive[1], alive, {"a": 1.0, "b": 0.0})
    assert speed == pytest.approx(1 / (1 + TURNS_OF_SERVING))


def test_a_training_is_slowed_by_busy_serving_under_mps_only() -> None:
    serving = life(share("a", 100 * INTERFERING_PART))
    alive = [serving, life(share("b", 40, Kind.RETRAINING))]

    def speed(sharing: Sharing, busy: float) -> float:
        return training_speed(sharing, H200.sms, alive[1], alive, {"a": busy, "b": 0.0})

    assert speed(Sharing.MIG, 1.0) == speed(Sharing.MPS, 0.0) == 1.0
    assert speed(Sharing.MPS, 1.0) == pytest.approx(1 / (1 + TRAINING_INTERFERENCE))


def test_unpartitioned_a_serving_neighbour_delays_by_its_batch_at_most() -> None:
    alive = [life(share("a", 100)), life(share("b", 100))]
    idle, _ = slower(Sharing.UNPARTITIONED, alive, 1, 0)
    full, _ = slower(Sharing.UNPARTITIONED, alive, 1, 1e6)
    assert idle == 1.0
    assert full == pytest.approx(2.0)  # its batches take as long as ours, less than the 1.5 times


def test_unpartitioned_processes_of_a_tenant_take_turns_and_answer_no_more() -> None:
    many = [life(share("a", 100, number=number)) for number in range(4)]
    busy = activities(Sharing.UNPARTITIONED, H200.sms, SERVICES[:1], many, {"a": 1e6})
    assert busy == {"a": 1.0}
    factors = slowdowns(
        Sharing.UNPARTITIONED, H200.sms, SERVICES[:1], [many], {"a": np.array([1e6])}
    )
    assert factors["a"][0] == pytest.approx(4.0)


def test_slow_batches_keep_processes_busy_for_longer() -> None:
    serving, training = life(share("a", 100)), life(share("a", 100, Kind.RETRAINING))
    rate_rps = 0.4 * SERVICES[0].capability_rps(H200.sms)

    def busy(*alive: SimulatedWorker) -> float:
        kind = Sharing.UNPARTITIONED
        return activities(kind, H200.sms, SERVICES[:1], alive, {"a": rate_rps})["a"]

    assert busy(serving) == pytest.approx(0.4)
    assert busy(serving, training) == pytest.approx(1.0)  # 0.4 x (1 + 1.5)
