"""Every file that `migrator example` prints, used as its comments say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.gpu_cli import migrator
from support.served_file import serving, shorten

from migrator.workload.examples import NAMES
from migrator.workload.workloads import all_workloads

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
OWN = ("--model", "my_model:NearestMean", "--benchmark", "nc-synthetic")


@pytest.mark.parametrize("name", [*NAMES, *all_workloads()])
def test_an_example_runs_as_printed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    printed(tmp_path, "quickstart")
    file = printed(tmp_path, name)
    for use in ("validate {}", USES.get(name, SIMULATED)):
        done = migrator(*use.format(file.name).split(), MIGRATOR_STATE=str(tmp_path / "state"))
        assert done.code == 0, (use, done.err)


@pytest.mark.parametrize(("own", "labels"), [((), ("feedback", "start")), (OWN, ("feedback",))])
def test_the_live_example_is_served_and_loaded_with_both_kinds_of_labels(
    own: tuple[str, ...],
    labels: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MIGRATOR_STATE", str(tmp_path / "state"))
    printed(tmp_path, "model")
    file = printed(tmp_path, "live", *own)
    shorten(file)
    if own:  # what `migrator profile` measures is tested with it
        text = file.read_text(encoding="utf-8").replace("my.profiles.json", "assumed")
        file.write_text(text, encoding="utf-8")
    with serving(f"migrator serve {file.name}", tmp_path):
        for when in labels:
            done = migrator("load", file, "--labels-at", when, "--windows", 1, "--json")
            assert done.code == 0, done.err
            parsed_json = json.loads(done.out)
            assert parsed_json["in_time"] > 0, parsed_json
            assert not parsed_json["failed"], parsed_json
            assert parsed_json["labels_stored"] > 0, parsed_json
            assert not parsed_json["labels_lost"], parsed_json


def printed(folder: Path, name: str, *arguments: str) -> Path:
    """The example in a file."""
    path = folder / f"my_{name}.{ENDINGS.get(name, 'yaml')}"
    done = migrator("example", name, *arguments)
    assert done.code == 0, done.err
    path.write_text(done.out, encoding="utf-8")
    return path
