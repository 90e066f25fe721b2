"""The example of docs/learning.md: one window on a CPU lifts the accuracy on its new classes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from migrator.core.errors import InputError
from migrator.learn.benchmark_run import BenchmarkRun, BenchmarkSettings
from migrator.learn.benchmarks.benchmark import VARIABLE, Material, Origin
from migrator.learn.registry import benchmark
from migrator.learn.retraining import RetrainingSettings

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "retrain_first_window.py"
SETTINGS = BenchmarkSettings(
    "nc-cifar-10", "small-cnn", RetrainingSettings(epochs=4), per_class=200, pixels=16
)


def test_the_example_runs_on_made_up_classes_where_there_is_no_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(EXAMPLE))["main"]
    small = ["--samples", "40", "--pixels", "8", "--epochs", "4"]
    main(["nc-cifar-10", "--data", str(tmp_path), *small])
    said = capsys.readouterr().out
    assert "get cifar-10-python.tar.gz" in said
    assert "nc-synthetic: made from seed 0" in said
    line = next(
        output_line for output_line in said.splitlines() if output_line.startswith("new classes")
    )
    before, after = (int(percentage.rstrip("%")) for percentage in line.split()[2::2])
    assert after >= before + 20


def test_a_small_model_learns_two_classes_of_cifar() -> None:
    row = BenchmarkRun(SETTINGS, _loaded()).run(1).rows[0]
    assert row.adopted
    assert row.accuracy_new_post >= row.accuracy_new_pre + 0.2


def _loaded() -> Material:
    try:
        return benchmark("nc-cifar-10").load(Origin())
    except InputError as error:
        if "its data is not" not in str(error):
            raise
        pytest.skip(f"it is not where {VARIABLE} points; docs/learning.md says what to get")
