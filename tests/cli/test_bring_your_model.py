"""docs/bring-your-model.md: its commands, as a reader types them, one after the other."""

from __future__ import annotations

import re
import shlex
import sys
from contextlib import chdir
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from support.served_file import serving, shorten
from typer.testing import CliRunner

from migrator.cli import app

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "bring-your-model.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHORTER = {"COUNT": 16, "STEPS": 5}
"""Fewer pictures and steps than the page's example takes."""


def commands() -> list[str]:
    """Every line of the page's blocks."""
    text = PAGE.read_text(encoding="utf-8")
    return [line for block in BLOCK.findall(text) for line in block.splitlines()]


def test_the_commands_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIGRATOR_STATE", str(tmp_path / "state"))
    lines = commands()
    assert len(lines) == 10
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    make, retrain, example, profile, simulate, serve, *after = lines
    assert make == "python examples/own_model.py"
    make_model(tmp_path, monkeypatch)
    for line in (retrain, example):
        run(line, tmp_path)
    shorten(tmp_path / "my.yaml")
    assert "--pace 0.1" in profile
    run(profile.replace("--pace 0.1", "--pace 0.02"), tmp_path)
    run(simulate, tmp_path)
    with serving(serve, tmp_path):
        said = {line: run(line, tmp_path) for line in after}
    load, status, windows, _ = said.values()
    sent = re.search(r"^all +my-model +(\d+) +(\d+)", load, re.MULTILINE)
    assert sent is not None
    assert int(sent[2]) > 0.2 * int(sent[1])
    assert "my-model" in status
    assert len(re.findall(r"^\s*[01]\b", windows, re.MULTILINE)) >= 2
    assert "my-model" in (tmp_path / "my.html").read_text(encoding="utf-8")


def make_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the example makes."""
    path = ROOT / "examples" / "own_model.py"
    spec = spec_from_file_location("own_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    for constant, value in SHORTER.items():
        monkeypatch.setattr(module, constant, value)
    monkeypatch.setattr(sys, "argv", [str(path), str(folder)])
    module.main()


def run(line: str, folder: Path) -> str:
    """The output of a command of ours, also in the file that it names; it must succeed."""
    typed, _, file = line.partition(" > ")
    with chdir(folder):
        done = CliRunner().invoke(app, shlex.split(typed)[1:], prog_name="migrator")
    assert done.exit_code == 0, f"{line}: {done.output[-2000:]} {done.exception}"
    if file:
        (folder / file).write_text(done.stdout, encoding="utf-8")
    return done.stdout
