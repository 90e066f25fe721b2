"""From measurements to a profile: every figure by hand."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.core.catalogue import board
from migrator.core.profiles import profile
from migrator.profiling.entries import entry

H200 = board("H200-141GB")


def job(task: str, model: str, batch: int, sms: int, p50_ms: float, **more: Any) -> dict[str, Any]:
    return {
        **{"task": task, "model": model, "batch": batch, "sms": sms, "p50_ms": p50_ms},
        **{"p95_ms": p50_ms * 1.1, "p99_ms": p50_ms * 1.2, "memory_mib": 100.0, "graph": True},
        **more,
    }


def row(study: str, *jobs: dict[str, Any], partition: str = "shares") -> dict[str, Any]:
    return {"study": study, "partition": partition, "model": jobs[0]["model"], "jobs": list(jobs)}


def latency(batch: int, sms: int, p50_ms: float, **more: Any) -> dict[str, Any]:
    return row("latency", job("inference", "mine", batch, sms, p50_ms, **more))


def found(*rows: dict[str, Any]) -> dict[str, Any]:
    measured = entry("mine", H200, rows, "here")
    assert measured is not None
    return measured


def test_latencies_are_medians_over_rounds() -> None:
    measured = found(*(latency(1, 16, p50_ms) for p50_ms in (2.0, 9.0, 3.0)), latency(1, 64, 1.0))
    assert measured["latency_ms"] == {"1": {"16": 3.0, "64": 1.0}}
    assert measured["latency_p99_ms"]["1"]["16"] == 3.6
    assert measured["memory_mib"] == {"1": 100.0}


def test_a_training_step_is_held_against_the_largest_batch() -> None:
    steps = [row("training", job("training", "mine", 32, 16, 60.0))]
    measured = found(latency(1, 16, 1.0), latency(16, 16, 10.0), *steps)
    assert measured["training_ratio"] == pytest.approx(60 / 32 / (10 / 16))


def test_interference_is_scaled_to_neighbours_on_64_sms() -> None:
    siblings = [job("inference", "mine", 1, 16, 2.6)] * 7
    beside = [job("inference", "mine", 1, 60, 1.2), job("training", "other", 32, 64, 50.0)]
    measured = found(
        latency(1, 16, 2.0),
        latency(1, 60, 1.0),
        row("interference", *siblings),
        row("interference", *beside),
    )
    assert measured["interference"] == pytest.approx((0.3 * 64 / 96 + 0.2) / 2, abs=1e-4)


def test_contention_is_what_one_neighbour_adds_without_shares() -> None:
    own = job("inference", "mine", 1, 132, 1.0)
    slow = job("inference", "mine", 1, 132, 3.5)
    both = (slow, job("training", "other", 32, 132, 50.0))
    rows = [
        row("interference", own, partition="none"),
        row("interference", *both, partition="none"),
    ]
    assert found(latency(1, 16, 2.0), *rows)["contention"] == pytest.approx(2.5)


def test_what_was_not_measured_is_taken_from_elsewhere_and_said() -> None:
    measured = found(latency(1, 16, 2.0))
    assert measured["training_ratio"] == 3.0
    for source in ("training_ratio assumed", "interference assumed", "contention assumed"):
        assert source in measured["provenance"]
    packaged = profile("bert-base", "H200-141GB")
    rows = [row("latency", job("inference", "bert-base", 1, 16, 2.0))]
    measured = entry("bert-base", H200, rows, "here") or {}
    assert measured["training_ratio"] == packaged.training_ratio
    assert measured["overhead"]["load_s"] == packaged.overhead.load_s
    assert "training_ratio of the packaged profile" in measured["provenance"]


def test_instances_that_were_created_tell_how_long_it_takes() -> None:
    took = [{"create_s": create_s, "destroy_s": create_s / 2} for create_s in (0.2, 0.9, 0.3)]
    measured = entry("mine", H200, [latency(1, 16, 2.0)], "here", took) or {}
    assert measured["overhead"]["create_s"] == pytest.approx(0.45)
    assert measured["overhead_parts_s"] == {"destroyed_s": 0.15, "created_s": 0.3}
    assert "create_s measured" in measured["provenance"]
    published = found(latency(1, 16, 2.0))
    assert published["overhead"]["create_s"] == 0.53
    assert "create_s published" in published["provenance"]


def test_answers_that_are_not_finite_are_noted() -> None:
    measured = found(latency(1, 16, 2.0, finite=True), latency(1, 60, 1.0, finite=False))
    assert "answers not finite on 60 SMs" in measured["provenance"]


def test_a_model_without_any_latency_has_no_profile() -> None:
    assert entry("other", H200, [latency(1, 16, 2.0)], "here") is None
