"""An estimate that fails on its instance, or is late, is made again with fewer samples."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.live_context import idle_context
from support.live_daemon import scenario_file

from migrator.core.errors import MigratorError
from migrator.learn.estimation import AccuracyEstimate
from migrator.live.learning import Learning
from migrator.live.options import DaemonOptions
from migrator.live.recorder import LiveRecorder
from migrator.live.rollout import Rollout
from migrator.live.training import EstimateResult, Failed, TrainingJob, TrainingLostError
from migrator.workload.live import read_live

ESTIMATE = AccuracyEstimate(0.8, 0.8, 0.4, 0.5, (0.4, 0.6), 1.0)
FAULT = Failed("CUDA error: out of memory", again=True).error("photos")


def estimated(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *results: MigratorError | AccuracyEstimate | None,
    limit_s: float | None = None,
) -> tuple[list[int], str]:
    """The samples of the trials that gave these results, and why there is no estimate.

    None: a trial that does not end.
    """
    context = idle_context(
        DaemonOptions(read_live(scenario_file(folder, "photos")), folder / "state")
    )
    recorder, left = LiveRecorder(context), list(results)
    samples: list[int] = []

    async def estimate(job: TrainingJob) -> EstimateResult:
        samples.append(job.most_samples or 0)
        result = left.pop(0)
        if isinstance(result, MigratorError):
            raise result
        if result is None:
            await asyncio.Event().wait()
        assert result is not None
        return EstimateResult((result,), 0)

    monkeypatch.setattr(context.trainings, "estimate", estimate)
    learning = Learning(context, Rollout(context, recorder), recorder)
    asyncio.run(learning.estimate("photos", 0, None, 400, limit_s))
    return samples, context.tenants["photos"].model.no_estimate


def test_one_that_failed_is_repeated_once_with_fewer_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert estimated(tmp_path, monkeypatch, FAULT, ESTIMATE) == ([400, 100], "")


def test_one_that_fails_twice_is_no_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert estimated(tmp_path, monkeypatch, FAULT, FAULT) == (
        [400, 100],
        "photos: CUDA error: out of memory",
    )


def test_one_that_was_ended_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its instance is being destroyed."""
    assert estimated(tmp_path, monkeypatch, TrainingLostError("ended")) == ([400], "ended")


def test_a_late_one_is_repeated_with_fewer_samples_in_the_time_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert estimated(tmp_path, monkeypatch, None, ESTIMATE, limit_s=0.6) == ([400, 100], "")


def test_one_that_is_late_twice_is_no_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, why = estimated(tmp_path, monkeypatch, None, None, limit_s=0.6)
    assert samples == [400, 100]
    assert "too long" in why
