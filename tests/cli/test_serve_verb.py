"""Options of `migrator serve` that are refused before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.gpu_cli import refused

EXAMPLE = Path(__file__).parents[2] / "examples" / "live.yaml"


@pytest.mark.parametrize(
    ("option", "given", "known"),
    [("--log-format", "xml", "text or json"), ("--log-level", "loud", "debug or info")],
)
def test_unknown_log_options_are_refused(option: str, given: str, known: str) -> None:
    said = refused("serve", EXAMPLE, option, given)
    assert said.startswith(f"{option}: '{given}' is not known; use {known}")
