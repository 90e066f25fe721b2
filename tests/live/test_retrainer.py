"""What a retrainer does, in this process: judged on what it never saw, refused where worse."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.live_learning import MASKED, MEANS, MODEL, SETTINGS, UNBOUNDED, made_job
from support.tiny_model import Tiny

from migrator.core.errors import InputError
from migrator.learn import checkpoint
from migrator.learn.estimation import Past
from migrator.learn.retraining import accuracy
from migrator.live.labels import Labels
from migrator.live.retrainer import EPOCHS, EmulatedPace, Work, answer
from migrator.live.training import (
    Begin,
    EstimateResult,
    Failed,
    JobKind,
    TrainingJob,
    TrainingResult,
)
from migrator.live.training_data import window_data
from migrator.serving.workers.forkserver_process import build_all


@pytest.fixture(autouse=True)
def checkpoints_after_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine that is too busy to write them quickly."""
    monkeypatch.setattr(checkpoint, "FREE_S", math.inf)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    return made_job(tmp_path_factory.mktemp("learning"))


def run(job: TrainingJob) -> TrainingResult | EstimateResult:
    return work(job).run()


def work(job: TrainingJob, began_s: float | None = None) -> Work:
    built = build_all({job.tenant: job.model})[job.tenant]
    return Work(job, built, began_s or time.monotonic(), lambda _part: None)


def retrained(job: TrainingJob) -> TrainingResult:
    result = run(job)
    assert isinstance(result, TrainingResult)
    return result


def model_of(path: Path) -> Tiny:
    model = Tiny.build(MODEL.classes, 0)
    model.load(path)
    return model


def test_new_classes_are_learned_from_labels_and_old_ones_kept(
    job: TrainingJob, tmp_path: Path
) -> None:
    result = retrained(replace(job, folder=tmp_path))
    assert result.new_classes == (2, 3)
    assert result.adopted
    assert result.accuracy_after > result.accuracy_before + 0.2
    assert result.weights is not None
    data = window_data(job.labels, job.tenant, 0, replay=job.replay)
    assert result.samples == len(data.training)
    assert accuracy(model_of(result.weights), data.held_out) == result.accuracy_after


def test_the_start_of_the_process_is_no_part_of_the_training(
    job: TrainingJob, tmp_path: Path
) -> None:
    asked_s = time.monotonic() - 30.0
    paced = replace(job, folder=tmp_path, pace_s=0.5)
    result = work(paced, asked_s).run()
    assert isinstance(result, TrainingResult)
    assert result.start_s >= 30.0
    assert result.training_s >= 0.5
    assert result.seconds == result.start_s + result.training_s
    assert result.training_s <= time.monotonic() - asked_s - 30.0


def test_infinite_weights_are_refused_unless_the_model_began_with_them(
    job: TrainingJob, tmp_path: Path
) -> None:
    first = replace(job, folder=tmp_path, weights=None)
    result = retrained(replace(first, model=UNBOUNDED))
    assert (result.adopted, result.weights) == (False, None)
    assert "weights became NaN or infinite (sums)" in result.why
    assert not list(tmp_path.glob("*.safetensors*"))
    assert retrained(replace(first, model=MASKED)).adopted


def test_a_job_of_another_window_never_goes_on_from_these_checkpoints(
    job: TrainingJob, tmp_path: Path
) -> None:
    here = replace(job, folder=tmp_path)
    retrained(here)
    assert retrained(here).epochs_resumed == SETTINGS.epochs
    # where it runs and how fast is nothing its checkpoints depend on
    assert retrained(replace(here, pace_s=0.01)).epochs_resumed == SETTINGS.epochs
    for other in (replace(here, replay=10), replace(here, weights=None)):
        assert retrained(other).epochs_resumed == 0


def test_an_estimate_says_what_a_retraining_brings(job: TrainingJob, tmp_path: Path) -> None:
    past = (Past(limit=0.6, before=0.0, came=0.95, new_part=1.0),)
    result = run(replace(job, kind=JobKind.ESTIMATE, folder=tmp_path, past=past))
    assert isinstance(result, EstimateResult)
    truth = retrained(replace(job, folder=tmp_path))
    (estimate,) = result.estimates
    assert estimate.before == truth.accuracy_before
    assert estimate.accuracy == pytest.approx(truth.accuracy_after, abs=0.25)
    assert not (tmp_path / "estimate" / EPOCHS).exists()


def test_pre_training_leaves_a_memory_for_the_first_retraining(tmp_path: Path) -> None:
    path = tmp_path / "labels.db"
    asyncio.run(Labels(path).close())
    job = TrainingJob(
        JobKind.PRETRAIN,
        "vision",
        MODEL,
        tmp_path / "training",
        labels=path,
        benchmark="nc-synthetic",
        replay=20,
        settings=SETTINGS,
    )
    result = retrained(job)
    assert result.accuracy_after > 0.8
    # what it removed of the errors left by a trial corrects the first estimate
    assert result.parts_s["trial_s"] > 0
    assert result.estimate is not None
    assert result.estimate.before == result.accuracy_before
    assert result.estimate.samples == result.samples
    data = window_data(path, "vision", 0, replay=20)
    assert len(data.new) == 0
    assert sorted(data.replay.labels) == [0] * 20 + [1] * 20
    assert set(data.held_out.labels) == {0, 1}
    assert data.new_classes == frozenset()
    with pytest.raises(InputError, match="no samples"):
        retrained(replace(job, kind=JobKind.RETRAIN))
    # a pre-training that is repeated leaves the same memory
    retrained(job)
    assert len(window_data(path, "vision", 0).replay) == 40


def test_the_memory_of_a_pre_training_has_pictures_of_the_size_that_clients_send(
    tmp_path: Path,
) -> None:
    path = tmp_path / "labels.db"
    asyncio.run(Labels(path).close())
    job = TrainingJob(
        JobKind.PRETRAIN,
        "vision",
        replace(MODEL, model="small-cnn", pixels=24),  # pictures of the benchmark have 16
        tmp_path / "training",
        labels=path,
        benchmark="nc-synthetic",
        replay=5,
        settings=SETTINGS,
    )
    retrained(job)
    assert window_data(path, "vision", 0, replay=5).replay.inputs.shape == (10, 3, 24, 24)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (lambda job: replace(job, labels=Path("nowhere.db")), "no such file"),
        (lambda job: replace(job, tenant="unknown"), "has no labels"),
        (lambda job: replace(job, window=-5), "has no labels"),
        (lambda job: replace(job, weights=Path("nowhere.safetensors")), "no such file"),
        (
            lambda job: replace(job, model=replace(MODEL, classes=3)),
            "head is not for the 3 classes",
        ),
        (
            lambda job: replace(job, model=replace(MODEL, classes=3), weights=None),
            "a sample is of class 3",
        ),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    job: TrainingJob, tmp_path: Path, changed: Callable[[TrainingJob], TrainingJob], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        retrained(changed(replace(job, folder=tmp_path)))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("LoadRefusesSaved", r"load\(\) of .*LoadRefusesSaved refuses what its save\(\) wrote"),
        ("LoadsNan", r"LoadsNan answers 1 inputs with .* contains NaN"),
    ],
)
def test_a_model_that_no_worker_could_load_is_not_adopted(
    tmp_path: Path, kind: str, says: str
) -> None:
    job = made_job(tmp_path, MEANS)
    assert retrained(job).adopted
    faulty = replace(MEANS, model=f"support.faulty_models:{kind}")
    with pytest.raises(InputError, match=says):
        retrained(replace(job, model=faulty, folder=tmp_path / "faulty"))


def test_a_folder_that_cannot_be_written_is_reported(job: TrainingJob, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    here = replace(job, folder=tmp_path / "file" / "training")
    result = answer(Begin(here, time.monotonic()), work(here).built, lambda _part: None)
    assert isinstance(result, Failed)
    assert "cannot be written" in result.why
    assert not result.again


def test_an_error_of_the_gpu_may_be_retried(
    job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Work) -> None:
        raise RuntimeError("CUDA error: out of memory")

    built = work(job).built
    monkeypatch.setattr(Work, "run", fail)
    result = answer(Begin(job, time.monotonic()), built, lambda _part: None)
    assert isinstance(result, Failed)
    assert result.again
    assert "CUDA error: out of memory" in result.why


def test_a_pace_spreads_its_seconds_over_the_steps_and_counts_the_start_in() -> None:
    began_s = time.monotonic()
    pace = EmulatedPace(1.2, 4, began_s - 0.4)
    for step in range(1, 5):
        time.sleep(0.05)
        pace.step()
        assert time.monotonic() - began_s >= 0.2 * step
    assert pace.part == 1
    resumed = EmulatedPace(60.0, 4, time.monotonic() - 30.0, 2)
    assert resumed.part == 0.5
    resumed.step()
    assert time.monotonic() - began_s < 30, "it does not wait for what is late"
