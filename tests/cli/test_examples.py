"""Every file that `migrator example` prints, used as its comments say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.gpu_cli import migrator
from support.served_file import serving, shorten

from migrator.workload.examples import NAMES

ENDINGS = {"policy": "py", "model": "py"}
SIMULATED = "simulate {} --windows 1 --policy equal-mig"
USES = {
    "window": "plan {}",
    "cluster": "cluster plan {}",
    "layout": "gpu apply {} --dry-run",
    "policy": "simulate my_quickstart.yaml --policy my_policy:busier_first --windows 1",
    "model": "retrain nc-synthetic --model my_model:NearestMean --windows 1",
}
"""What is done with an example; scenarios are simulated."""


@pytest.mark.parametrize("name", [*NAMES, "W8", "P1"])
def test_an_example_runs_as_printed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    printed(tmp_path, "quickstart")
    file = printed(tmp_path, name)
    described = migrator("validate", file.name, "--json").json
    assert described["details"]
    assert file.name in described["use"] or name in ("policy", "model")
    use = USES.get(name, SIMULATED).format(file.name)
    done = migrator(*use.split(), MIGRATOR_STATE=str(tmp_path / "state"))
    assert done.code == 0, (use, done.err)


def test_the_live_example_is_served_and_loaded_with_both_kinds_of_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIGRATOR_STATE", str(tmp_path / "state"))
    file = printed(tmp_path, "live")
    shorten(file)
    with serving(f"migrator serve {file.name}", tmp_path):
        for when in ("feedback", "start"):
            done = migrator("load", file, "--labels-at", when, "--windows", 1, "--json")
            assert done.code == 0, done.err
            parsed_json = json.loads(done.out)
            assert parsed_json["in_time"] > 0, parsed_json
            assert not parsed_json["failed"], parsed_json
            assert parsed_json["labels_stored"] > 0, parsed_json
            assert not parsed_json["labels_lost"], parsed_json


def printed(folder: Path, name: str) -> Path:
    """The example in a file."""
    path = folder / f"my_{name}.{ENDINGS.get(name, 'yaml')}"
    done = migrator("example", name)
    assert done.code == 0, done.err
    path.write_text(done.out, encoding="utf-8")
    return path
