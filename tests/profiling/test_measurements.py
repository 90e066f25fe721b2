"""What is measured: every size and batch first, nothing that does not fit the board together."""

from __future__ import annotations

from collections import deque
from itertools import pairwise, product

import pytest

from migrator.core.catalogue import board, boards
from migrator.core.errors import InputError
from migrator.profiling.drivers import Cpu
from migrator.profiling.measurements import (
    Measurement,
    Partition,
    Study,
    Task,
    estimate_s,
    measurements,
    on_instances,
)
from migrator.profiling.run import next_group
from migrator.profiling.workers import Pool

H200 = board("H200-141GB")
MODELS = ["resnet-50", "bert-base"]


def of(study: Study, found: list[Measurement]) -> list[Measurement]:
    return [each for each in found if each.study is study]


def test_every_model_size_and_batch_has_its_latency_measured_once_a_round() -> None:
    found = of(Study.LATENCY, measurements(H200, MODELS, [1, 4], rounds=2))
    got = [(sms, job.model, job.batch, e.round) for e in found for sms, job in e.jobs]
    wanted = set(product((16, 32, 60, 64, 132), MODELS, (1, 4), (0, 1)))
    assert len(got) == len(wanted)
    assert set(got) == wanted
    assert {job.task for each in found for _, job in each.jobs} == {Task.INFERENCE}


def test_what_matters_most_comes_first() -> None:
    found = measurements(H200, MODELS, [1, 4], interference=True, rounds=2)
    order = list(dict.fromkeys((each.study, each.round) for each in found))
    assert order == [
        (Study.LATENCY, 0),
        (Study.TRAINING, 0),
        (Study.START, 0),
        (Study.LATENCY, 1),
        (Study.INTERFERENCE, 0),
    ]
    assert len({each.key for each in found}) == len(found)


@pytest.mark.parametrize("name", sorted(boards()))
def test_on_every_board_jobs_run_together_only_where_they_fit(name: str) -> None:
    known = boards()[name]
    if any(each.sms is None for each in known.plain_profiles.values()):
        with pytest.raises(InputError, match="is not published"):
            measurements(known, MODELS, [1])
        return
    found = measurements(known, MODELS, [1, 4, 16], interference=True)
    together = [e for e in found if len(e.jobs) > 1 and e.partition is Partition.SHARES]
    assert together
    for each in together:
        assert sum(sms for sms, _ in each.jobs) <= known.sms, each.words
        assert each.jobs[0][1].task is Task.INFERENCE
    apart = [e for e in found if e.partition is Partition.NONE]
    assert {len(each.jobs) for each in apart} == {1, 2}


def test_the_list_says_what_runs_and_how_long_it_takes() -> None:
    found = measurements(H200, MODELS, [1, 4], interference=True)
    words = [each.words for each in found]
    assert "inference of resnet-50, batch 4, on 60 SMs" in words
    assert "7 times inference of bert-base, batch 1, on 16 SMs" in words
    beside = "inference of bert-base, batch 1, on 60 SMs beside training of resnet-50, batch 32, "
    assert f"{beside}on 64 SMs" in words
    shorter = measurements(H200, MODELS, [1, 4], interference=True, pace=0.1)
    assert estimate_s(shorter) < estimate_s(found)
    assert [each.key for each in shorter] == [each.key for each in found]


def test_instances_are_measured_size_after_size_the_largest_first() -> None:
    listed = measurements(H200, MODELS, [1, 4], rounds=2)
    found = on_instances(listed)
    assert {each.key for each in found} == {each.key for each in listed}
    studies = [(each.study, each.round) for each in listed]
    assert list(dict.fromkeys((each.study, each.round) for each in found)) == list(
        dict.fromkeys(studies)
    )
    sizes = [(each.study, each.round, *(sms for sms, _ in each.jobs)) for each in found]
    changes = [after for before, after in pairwise(sizes) if before != after]
    assert len(changes) == len(set(changes)), "a size is left and come back to"
    assert [each[2] for each in dict.fromkeys(sizes) if each[:2] == ("latency", 0)] == [
        132,
        64,
        60,
        32,
        16,
    ]


def test_interference_under_mps_is_not_measured_on_instances() -> None:
    with pytest.raises(InputError, match=r"--interference: .*; leave it out, or use --driver mps"):
        on_instances(measurements(H200, MODELS, [1], interference=True))


def test_only_shares_that_coexist_are_prepared_together() -> None:
    listed = measurements(H200, MODELS[:1], [1])
    together = next_group(deque(listed), set())
    assert [sms for each in together for sms, _ in each.jobs] == [16, 32, 60, 64, 132]
    waiting = deque(listed)
    assert next_group(waiting, set(), coexist=False) == listed[:1]
    assert len(waiting) == len(listed) - 1


def test_on_a_cpu_one_process_measures_every_size() -> None:
    """Importing the model's libraries takes longer than its measurements."""
    pool = Pool(Cpu.find(0, H200))
    listed = measurements(H200, MODELS[:1], [1, 4], interference=True)
    shares = [each for each in listed if each.partition is Partition.SHARES]
    assert len({tuple(pool.keys(each)) for each in shares if len(each.jobs) == 1}) == 1
    for each in shares:
        assert len(set(pool.keys(each))) == len(each.jobs)
