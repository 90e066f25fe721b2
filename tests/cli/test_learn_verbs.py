"""The verbs retrain, models and benchmarks, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.small_models import save_bert, save_convnext, write_newsgroups
from typer.testing import CliRunner, Result

from migrator.cli import app
from migrator.core.errors import InputError

TINY = ["--model", "support.tiny_model:Tiny", "--epochs", "2", "--samples", "40"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def answered(*arguments: str) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_models_and_benchmarks_are_listed() -> None:
    listed = run("models").stdout
    assert "small-cnn" in listed
    assert "hf:FOLDER_OR_ID" in listed
    assert "nc-core50" in run("benchmarks").stdout
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
    done = run(*resumed)
    assert done.exit_code == 0, done.output
    for text in ("made from seed 0", "new classes", "adopted", "estimates missed by"):
        assert text in done.stdout
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
    done = run("retrain", *arguments)
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)


def test_a_model_that_diverges_is_a_warning() -> None:
    options = ["--model", "support.tiny_model:Hot", "--epochs", "1", "--samples", "40"]
    done = run("retrain", "nc-synthetic", *options, "--windows", "1")
    assert done.exit_code == 0, done.output
    assert "warning: window 1: the loss became" in done.stderr
    assert "stopped, kept the old" in done.stdout


def test_without_a_gpu_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = run("retrain", "nc-synthetic", *TINY, "--device", "cuda")
    assert isinstance(done.exception, InputError)
    assert "sees no CUDA GPU" in str(done.exception)


def test_a_model_of_hugging_face_is_retrained(tmp_path: Path) -> None:
    save_convnext(tmp_path / "net")
    options = ["--model", f"hf:{tmp_path / 'net'}", "--epochs", "1", "--samples", "10"]
    kept = ["--checkpoint", str(tmp_path / "run")]
    course = answered("retrain", "nc-synthetic", *options, "--windows", "1", *kept)
    assert course["weights"] == "the folder net, head extended from 3 classes"
    again = answered("retrain", "nc-synthetic", *options, "--windows", "1", *kept, "--resume")
    assert again["rows"] == course["rows"]
    save_convnext(tmp_path / "net", seed=1)
    done = run("retrain", "nc-synthetic", *options, "--windows", "1", *kept, "--resume")
    assert isinstance(done.exception, InputError), "other weights are another run"


def test_texts_are_encoded_by_the_tokenizer_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_bert(tmp_path / "net", 2)
    write_newsgroups(tmp_path)
    monkeypatch.setenv("MIGRATOR_DATA", str(tmp_path))
    options = ["--model", f"hf:{tmp_path / 'net'}", "--epochs", "1", "--windows", "0"]
    course = answered("retrain", "nc-20-newsgroups", *options)
    assert course["weights"] == "the folder net, head extended from 2 classes"
