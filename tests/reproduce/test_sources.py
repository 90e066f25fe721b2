import pickle
from pathlib import Path

import numpy as np
import pytest

from migrator.core.scenario import Scenario
from migrator.reproduce.evaluation import (
    ALIBABA,
    AZURE,
    INCEPTION,
    RESNET,
    Arriving,
    MotivationSource,
    Supposing,
    WorkloadSource,
)
from migrator.workload.capacity import highest_rps
from migrator.workload.workloads import workload


def _mean_rps(scenario: Scenario, at: int) -> float:
    tenant = scenario.tenants[at]
    run_s = int(scenario.windows * scenario.window_s)
    return float(tenant.trace.counts[tenant.offset_s : tenant.offset_s + run_s].mean())


def test_sources_are_values() -> None:
    one, same = (WorkloadSource("W1", Path("traces"), 4, 0.5, False) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != WorkloadSource("W1", Path("traces"), 4, 0.5, True)


def test_a_workload_keeps_its_arrivals_when_it_is_run_otherwise() -> None:
    plain = workload("W5", batch=4, seed=3)
    made = WorkloadSource("W5", None, 4, 0.5, False)(3, 2)
    assert (made.slot_s, made.prepared, made.windows) == (0.5, False, 2)
    for one, other in zip(plain.tenants, made.tenants, strict=True):
        assert np.array_equal(one.trace.counts, other.trace.counts)


def test_the_motivation_has_the_load_it_asks_for() -> None:
    source = MotivationSource(
        "both", (Arriving(INCEPTION, AZURE, 0.45), Arriving(RESNET, ALIBABA, 0.2))
    )
    made = source(0, None)
    assert [each.name for each in made.tenants] == [INCEPTION, RESNET]
    for at, load in enumerate((0.45, 0.2)):
        most = highest_rps(made.tenants[at].service, made.board)
        assert _mean_rps(made, at) == pytest.approx(load * most, rel=0.02)


def test_one_trace_for_two_models_is_the_same_requests() -> None:
    source = MotivationSource(
        "same", (Arriving(INCEPTION, AZURE, 0.1), Arriving(RESNET, AZURE, 0.1, INCEPTION))
    )
    first, second = source(1, 1).tenants
    assert np.array_equal(first.trace.counts, second.trace.counts)
    assert first.drifts != second.drifts


def test_supposing_changes_one_thing() -> None:
    plain = WorkloadSource("W7")(0, 1)
    small = WorkloadSource("W7", supposing=Supposing.SMALL_BOARD)(0, 1)
    assert (plain.board.sms, small.board.sms) == (132, 112)
    assert small.board.sms_of(1) == plain.board.sms_of(1)
    assert [e.service for e in small.tenants] == [e.service for e in plain.tenants]
    published = WorkloadSource("W1", supposing=Supposing.PRETRAINED)(0, 4)
    assert [e.accuracy_post for e in published.tenants[0].drifts] == [0.945, 0.9111, 0.9075, 0.908]
    assert [e.accuracy_post for e in published.tenants[1].drifts] == [0.96, 0.9078, 0.9175, 0.9087]
    still = WorkloadSource("W7", supposing=Supposing.NO_INTERFERENCE)(0, 1)
    assert {e.service.profile.interference for e in still.tenants} == {0.0}
    assert still.board == plain.board
