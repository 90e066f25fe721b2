"""The example of docs/learning.md: one window on a CPU lifts the accuracy on its new classes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from migrator.cli import app
from migrator.core.errors import InputError
from migrator.learn.benchmarks.finding import VARIABLE

SMALL = ["--model", "small-cnn", "--windows", "1", "--epochs", "4", "--pixels", "16"]


def first_window(name: str, samples: int) -> Any:
    words = ["retrain", name, *SMALL, "--samples", str(samples), "--device", "cpu", "--json"]
    done = CliRunner().invoke(app, words)
    if isinstance(done.exception, InputError) and "its data is not" in str(done.exception):
        pytest.skip(f"{name} is not where {VARIABLE} points; docs/learning.md says what to get")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["rows"][0]


def test_a_small_model_learns_made_up_classes() -> None:
    row = first_window("nc-synthetic", 150)
    assert row["adopted"]
    assert row["accuracy_new_post"] >= row["accuracy_new_pre"] + 0.2


def test_a_small_model_learns_two_classes_of_cifar() -> None:
    row = first_window("nc-cifar-10", 200)
    assert row["adopted"]
    assert row["accuracy_new_post"] >= row["accuracy_new_pre"] + 0.2
