"""Options of `migrator serve` that are refused before anything is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "live.yaml"


@pytest.mark.parametrize(
    ("option", "given", "known"),
    [("--log-format", "xml", "text or json"), ("--log-level", "loud", "debug or info")],
)
def test_unknown_log_options_are_refused_with_what_there_is(
    option: str, given: str, known: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "migrator", "serve", str(EXAMPLE), option, given],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {option}: '{given}' is not known; use {known}")
