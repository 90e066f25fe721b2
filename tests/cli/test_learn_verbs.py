"""The verbs retrain, models and benchmarks, as a user types them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.gpu_cli import answered, migrator, refused

TINY = ["--model", "support.tiny_model:Tiny", "--epochs", "2", "--samples", "40"]


def test_models_and_benchmarks_are_listed() -> None:
    listed = migrator("models").out
    assert "small-cnn" in listed
    assert "hf:FOLDER_OR_ID" in listed
    assert "nc-core50" in migrator("benchmarks").out
    models = {model["name"]: model for model in answered("models")}
    assert models["bert-base"]["modality"] == "text"
    by_name = {benchmark["name"]: benchmark for benchmark in answered("benchmarks")}
    assert by_name["nc-20-newsgroups"]["windows"] == 9
    assert by_name["nc-20-newsgroups"]["classes_per_window"] == 2


def test_a_course_is_resumed_and_printed(tmp_path: Path) -> None:
    kept = ["--checkpoint", str(tmp_path / "run")]
    first = answered("retrain", "nc-synthetic", *TINY, "--windows", "1", *kept)
    assert len(first["rows"]) == 1
    assert first["weights"] == "random, seed 0"
    assert first["board"].startswith("CPU") or torch.cuda.is_available()
    resumed = ("retrain", "nc-synthetic", *TINY, "--windows", "2", *kept, "--resume")
    written = answered(*resumed)
    done = migrator(*resumed)
    assert done.code == 0, done.err
    for text in ("made from seed 0", "new classes", "adopted", "estimates missed by"):
        assert text in done.out
    assert len(written["rows"]) == 2
    assert written["rows"][0] == first["rows"][0]
    row = written["rows"][1]
    assert row["error"] == pytest.approx(row["accuracy_estimated"] - row["accuracy_post"])
    expected = {"epochs": 2, "batch": 64, "replay": 200, "samples": 40, "pixels": None}
    assert {key: written[key] for key in expected} == expected
    assert (written["shuffle"], written["torch"]) == (False, torch.__version__)
    assert written["device"] in ("cpu", "cuda")
    assert len(written["date"]) == len("2026-01-31")
    assert 0 <= written["median_error"] <= 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nc-cifar", *TINY], "did you mean nc-cifar-10"),
        (["nc-synthetic", "--model", "resnet"], "did you mean resnet-50"),
        (["nc-synthetic", "--model", "small-text"], "reads text"),
        (["nc-synthetic", *TINY, "--device", "tpu"], "use auto, cpu, cuda"),
        (["nc-synthetic", *TINY, "--resume"], "with --checkpoint"),
        (["nc-cifar-10", *TINY, "--data", "absent", "--windows", "9"], "has 4 windows"),
        (["nc-cifar-10", "--model", "small-cnn", "--data", "absent"], "get cifar-10-python"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(arguments: list[str], said: str) -> None:
    assert said in refused("retrain", *arguments)


def test_a_model_that_diverges_is_a_warning() -> None:
    options = ["--model", "support.tiny_model:Hot", "--epochs", "1", "--samples", "40"]
    done = migrator("retrain", "nc-synthetic", *options, "--windows", "1")
    assert done.code == 0, done.err
    assert "warning: window 1: the loss became" in done.err
    assert "stopped, kept the old" in done.out
