"""What is measured: every size and batch first, nothing that does not fit the board together."""

from __future__ import annotations

from collections import deque
from itertools import pairwise, product

import pytest

from migrator.core.catalogue import board, boards
from migrator.core.errors import InputError
from migrator.profiling.measurements import (
    Measurement,
    Partition,
    Study,
    WorkKind,
    estimate_s,
    measurements,
    on_instances,
)
from migrator.profiling.run import next_group

H200 = board("H200-141GB")
MODELS = ["resnet-50", "bert-base"]


def keys(listed: list[Measurement]) -> list[str]:
    return [measurement.key for measurement in listed]


def test_every_model_size_and_batch_has_its_latency_measured_once_a_round() -> None:
    got = [
        (sms, job.model, job.batch, measurement.round, job.task)
        for measurement in measurements(H200, MODELS, [1, 4], rounds=2)
        if measurement.study is Study.LATENCY
        for sms, job in measurement.jobs
    ]
    sizes = (16, 32, 60, 64, 132)
    assert sorted(got) == sorted(product(sizes, MODELS, (1, 4), (0, 1), [WorkKind.INFERENCE]))


@pytest.mark.parametrize("name", ["A30-24GB", "H20-96GB", "H200-141GB", "GB300-278GB"])
def test_on_every_board_jobs_run_together_only_where_they_fit(name: str) -> None:
    divided = boards()[name]
    if any(profile.sms is None for profile in divided.plain_profiles.values()):
        with pytest.raises(InputError, match="is not published"):
            measurements(divided, MODELS, [1])
        return
    listed = measurements(divided, MODELS, [1, 4, 16], interference=True)
    together = [
        measurement
        for measurement in listed
        if len(measurement.jobs) > 1 and measurement.partition is Partition.SHARES
    ]
    assert together
    for measurement in together:
        assert sum(sms for sms, _ in measurement.jobs) <= divided.sms, measurement.description
        assert measurement.jobs[0][1].task is WorkKind.INFERENCE
    apart = [measurement for measurement in listed if measurement.partition is Partition.NONE]
    assert {len(measurement.jobs) for measurement in apart} == {1, 2}


def test_the_list_says_what_runs_and_how_long_it_takes() -> None:
    listed = measurements(H200, MODELS, [1, 4], interference=True)
    descriptions = [measurement.description for measurement in listed]
    assert "inference of resnet-50, batch 4, on 60 SMs" in descriptions
    assert "7 times inference of bert-base, batch 1, on 16 SMs" in descriptions
    beside = "inference of bert-base, batch 1, on 60 SMs beside training of resnet-50, batch 32, "
    assert f"{beside}on 64 SMs" in descriptions
    shorter = measurements(H200, MODELS, [1, 4], interference=True, pace=0.1)
    assert estimate_s(shorter) < estimate_s(listed)
    assert keys(shorter) == keys(listed)


def test_instances_are_measured_size_after_size_the_largest_first() -> None:
    listed = measurements(H200, MODELS, [1, 4], rounds=2)
    ordered = on_instances(listed)
    assert set(keys(ordered)) == set(keys(listed))
    studies, same = (
        list(dict.fromkeys((measurement.study, measurement.round) for measurement in each))
        for each in (listed, ordered)
    )
    assert same == studies
    sizes = [
        (measurement.study, measurement.round, *(sms for sms, _ in measurement.jobs))
        for measurement in ordered
    ]
    changes = [after for before, after in pairwise(sizes) if before != after]
    assert len(changes) == len(set(changes)), "a size is left and come back to"
    first = [size[2] for size in dict.fromkeys(sizes) if size[:2] == ("latency", 0)]
    assert first == [132, 64, 60, 32, 16]


def test_interference_under_mps_is_not_measured_on_instances() -> None:
    with pytest.raises(InputError, match=r"--interference: .*; leave it out, or use --driver mps"):
        on_instances(measurements(H200, MODELS, [1], interference=True))


def test_only_shares_that_coexist_are_prepared_together() -> None:
    listed = measurements(H200, MODELS[:1], [1])
    together = next_group(deque(listed), set())
    assert [sms for measurement in together for sms, _ in measurement.jobs] == [16, 32, 60, 64, 132]
    waiting = deque(listed)
    assert next_group(waiting, set(), coexist=False) == listed[:1]
    assert len(waiting) == len(listed) - 1
