"""The example of docs/learning.md: one window on a CPU lifts the accuracy on its new classes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "retrain_first_window.py"


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
