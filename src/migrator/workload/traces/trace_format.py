"""A trace format: how it is recognised and read. Each module that reads one offers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from migrator.core.trace import Trace


@dataclass(frozen=True)
class TraceFormat:
    """One layout of trace files."""

    name: str
    summary: str
    """One line for people."""
    recognises: Callable[[list[str]], bool]
    """Given the first one or two lines that are not blank; at most one format says yes."""
    load: Callable[[Path], Trace]
