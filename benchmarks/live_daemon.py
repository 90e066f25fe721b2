"""`migrator serve` as benchmarks run it: a real daemon in a folder of its own, and its records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrator.io.yaml_text import load_yaml
from migrator.records.rows import RunRecords
from migrator.records.store import read_records

MIGRATOR = (sys.executable, "-m", "migrator")
ROOT = Path(__file__).parent.parent
START_S, END_S = 180.0, 60.0


@dataclass(frozen=True)
class LiveDaemon:
    """A daemon that serves, or has served."""

    url: str
    state: Path
    scenario: str
    process: subprocess.Popen[bytes]

    @property
    def folder(self) -> Path:
        """Of its scenario: models, labels, records."""
        return self.state / "live" / self.scenario

    def records(self) -> RunRecords:
        """What it wrote down."""
        return read_records(self.folder / "records.db")

    def wait(self) -> None:
        """Until it has served the windows it was asked for."""
        self.process.wait(END_S)


@contextmanager
def served(scenario: Path, state: Path, *options: str) -> Iterator[LiveDaemon]:
    """A daemon on a free port; its first window begins with the first request."""
    state.mkdir(parents=True, exist_ok=True)
    command = [*MIGRATOR, "serve", str(scenario), "--port", "0", "--state", str(state)]
    with (state / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--from-first-request", *options], stderr=log, env=environment()
        )
    try:
        url = _url(state / "serve.log", process)
        yield LiveDaemon(url, state, name_of(scenario), process)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(END_S)


def name_of(scenario: Path) -> str:
    """The name in a scenario file; that of the file if there is none."""
    document = load_yaml(scenario.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return str(document.get("name") or scenario.stem)


def environment() -> Mapping[str, str]:
    """One thread per model, and with the policies and models of this package."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}


def write_scenario(path: Path, scenario: Mapping[str, Any]) -> Path:
    """YAML is a superset of JSON."""
    path.write_text(json.dumps(scenario, indent=1), encoding="utf-8")
    return path


def _url(log: Path, process: subprocess.Popen[bytes]) -> str:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s and process.poll() is None:
        for line in log.read_text(encoding="utf-8").splitlines():
            if line.startswith("serving at "):
                return line.removeprefix("serving at ")
        time.sleep(0.1)
    raise SystemExit(f"{log}: {log.read_text(encoding='utf-8')[-800:] or 'it does not serve'}")
