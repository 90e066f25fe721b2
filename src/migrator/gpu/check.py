"""A check of `doctor.py`: what was looked at, how it is, and what to run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Check:
    """One thing looked at: how it is, and the command that mends it or shows more."""

    name: str
    verdict: Verdict
    words: str
    run: str | None = None
