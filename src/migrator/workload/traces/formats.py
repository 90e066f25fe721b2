"""Trace files of any known format. A module of this package offers its own in `FORMATS`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from migrator.core.errors import InputError
from migrator.core.registry import found_in
from migrator.core.trace import Trace
from migrator.workload.traces.lines import head, shown
from migrator.workload.traces.trace_format import TraceFormat


@cache
def formats() -> dict[str, TraceFormat]:
    """Every format by name."""
    return found_in("migrator.workload.traces", "FORMATS")


def load_trace(path: Path) -> Trace:
    """The trace in a file whose format is told by its first lines; it may be packed by gzip."""
    first = head(path)
    # The second line is asked only where the first says nothing: it may be a header of any kind.
    for lines in (first[:1], first):
        for each in formats().values():
            if each.recognises(lines):
                return each.load(path)
    raise InputError(
        f"{path}: line 1 is {shown(first[0])}, which is the beginning of no known trace format; "
        "give second,count rows, one timestamp per line, or an original named in docs/traces.md"
    )
