"""Records and processes for the verbs of live runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the records of a run belong in a state folder of the test's own; no tokens are set."""
    monkeypatch.setenv("MIGRATOR_STATE", str(tmp_path / "state"))
    for variable in ("MIGRATOR_TOKEN", "MIGRATOR_ADMIN_TOKEN", "COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "state" / "live" / "quick" / "records.db"


@pytest.fixture
def ended_pid() -> int:
    """The id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid
