"""Prometheus queries taken apart, no further than into their names; and promtool, where it is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
_SELECTORS = re.compile(r"\{[^}]*\}|\[[^\]]*\]")
_GROUPINGS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_NUMBERS = re.compile(r"\b\d+(?:\.\d+)?(?:e\d+)?\b")
_NAMES = re.compile(r"[a-zA-Z_:][\w:]*")
_OPERATORS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left"}
_FUNCTIONS = {"sum", "min", "max", "rate", "increase", "changes", "round", "vector"}
WORDS = _OPERATORS | _FUNCTIONS | {"histogram_quantile", "clamp_min", "label_values"}
"""Functions and operators that our queries use."""


def names_in(query: str) -> set[str]:
    """The names of all series that a query reads."""
    for pattern in (_STRINGS, _SELECTORS, _GROUPINGS, _NUMBERS):
        query = pattern.sub(" ", query)
    return set(_NAMES.findall(query)) - WORDS


def promtool(*arguments: str | Path, given: str | None = None) -> str:
    """What promtool says; the test fails where it objects, and is skipped where it is not there."""
    executable = shutil.which("promtool")
    if executable is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    done = subprocess.run(
        [executable, *arguments], input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
