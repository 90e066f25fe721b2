from pathlib import Path

import numpy as np
import pytest

from benchmarks.traces import separate_offsets
from migrator.core.scenario import Scenario, Trace
from migrator.reproduce.sources import (
    ALIBABA,
    AZURE,
    INCEPTION,
    RESNET,
    MotivationSource,
    TracedModel,
    WorkloadSource,
)
from migrator.workload.capacity import highest_rps
from migrator.workload.traces.generator import KINDS
from migrator.workload.workloads import TRACES, workload, workloads


def _mean_rps(scenario: Scenario, at: int) -> float:
    tenant = scenario.tenants[at]
    run_s = int(scenario.windows * scenario.window_s)
    return float(tenant.trace.counts[tenant.offset_s : tenant.offset_s + run_s].mean())


def test_a_workload_keeps_its_arrivals_when_it_is_run_otherwise() -> None:
    plain = workload("W5", batch=4, seed=3)
    made = WorkloadSource("W5", None, 4, 0.5, False)(3, 2)
    assert (made.slot_s, made.prepared, made.windows) == (0.5, False, 2)
    for tenant, other in zip(plain.tenants, made.tenants, strict=True):
        assert np.array_equal(tenant.trace.counts, other.trace.counts)


def test_the_motivation_has_the_load_it_asks_for() -> None:
    source = MotivationSource(
        "both", (TracedModel(INCEPTION, AZURE, 0.45), TracedModel(RESNET, ALIBABA, 0.2))
    )
    made = source(0, None)
    assert [tenant.name for tenant in made.tenants] == [INCEPTION, RESNET]
    for at, load in enumerate((0.45, 0.2)):
        most = highest_rps(made.tenants[at].service, made.board)
        assert _mean_rps(made, at) == pytest.approx(load * most, rel=0.02)


def test_one_trace_for_two_models_is_the_same_requests() -> None:
    source = MotivationSource(
        "same", (TracedModel(INCEPTION, AZURE, 0.1), TracedModel(RESNET, AZURE, 0.1, INCEPTION))
    )
    first, second = source(1, 1).tenants
    assert np.array_equal(first.trace.counts, second.trace.counts)
    assert first.drifts != second.drifts


def test_published_weights_change_the_gains_only() -> None:
    plain = WorkloadSource("W1")(0, 4)
    published = WorkloadSource("W1", published=True)(0, 4)
    assert [drift.accuracy_post for drift in published.tenants[0].drifts] == [
        0.945,
        0.9111,
        0.9075,
        0.908,
    ]
    assert [drift.accuracy_post for drift in published.tenants[1].drifts] == [
        0.96,
        0.9078,
        0.9175,
        0.9087,
    ]
    assert [tenant.service for tenant in published.tenants] == [
        tenant.service for tenant in plain.tenants
    ]


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """A folder with short traces of both kinds; the rate rises from second to second."""
    for kind in TRACES:
        rows = "\n".join(f"{second},{1 + second // 100}" for second in range(3600))
        (tmp_path / str(KINDS[kind].file_name)).write_text(rows + "\n", encoding="utf-8")
    return tmp_path


def test_every_workload_begins_at_another_place_of_real_traces(traces: Path) -> None:
    made = {name: WorkloadSource(name, traces)(0, 2) for name in workloads()}
    for tenant in (0, 1):
        begins = sorted(scenario.tenants[tenant].offset_s for scenario in made.values())
        assert (begins[0], begins[-1]) == (600, 3600 - 2 * 200)
        assert set(np.diff(begins)) == {173, 174}
    first, second = (sorted(made[f"W{n}"].tenants[0].offset_s for n in ns) for ns in _HALVES)
    assert max(np.diff(first)) <= 3 * 174 >= max(np.diff(second))  # each half is spread as well
    for scenario in made.values():
        for at in (0, 1):
            most = highest_rps(scenario.tenants[at].service, scenario.board)
            assert _mean_rps(scenario, at) == pytest.approx(0.3 * most, rel=1e-3)


def test_separate_runs_do_not_overlap_and_have_a_history() -> None:
    def begins(seconds: int) -> tuple[int, ...]:
        return separate_offsets(Trace("t", np.ones(seconds, np.int64)), 4)

    assert begins(3502) == (600, 1400, 2200)
    assert begins(1400) == (600,)
    assert begins(1399) == ()


_HALVES = range(1, 9), range(9, 17)


def test_another_seed_moves_all_workloads_on(traces: Path) -> None:
    begins = [
        [WorkloadSource(name, traces)(seed, 2).tenants[0].offset_s for name in workloads()]
        for seed in (0, 1)
    ]
    assert sorted(begins[0]) == sorted(begins[1])
    assert all(begin != other for begin, other in zip(*begins, strict=True))


def test_a_run_begins_at_another_window_of_the_data_if_there_is_room(traces: Path) -> None:
    whole = workload("W6").tenants[0].drifts
    assert len(whole) == 4
    # W6 is at place 3, and runs of two windows can begin at three windows of four
    assert WorkloadSource("W6", traces)(0, 2).tenants[0].drifts == whole
    assert WorkloadSource("W6", traces)(1, 2).tenants[0].drifts == whole[1:]
    assert WorkloadSource("W6", traces)(1, 4).tenants[0].drifts == whole
