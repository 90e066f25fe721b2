"""Azure LLM inference traces (2023, 2024): TIMESTAMP,ContextTokens,GeneratedTokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrator.core.scenario import Trace
from migrator.workload.traces.reading import TraceFormat, parse_lines, per_second
from migrator.workload.traces.timestamps import iso_seconds


def load(path: Path) -> Trace:
    """One request per row, without its tokens. Second 0 is that of the first request."""
    expected = "a time and numbers of tokens such as 2023-11-16 18:15:46.68,374,44"
    return per_second(path, parse_lines(path, _seconds, expected, _is_header))


def _seconds(lines: list[str]) -> NDArray[np.int64]:
    if any(line.count(",") < 2 for line in lines):
        raise ValueError
    return iso_seconds(line[: line.index(",")] for line in lines)


def _is_header(line: str) -> bool:
    columns = line.lower().split(",")
    # Later releases put further columns between these.
    return columns[0] == "timestamp" and {"contexttokens", "generatedtokens"} <= set(columns)


def _recognises(lines: list[str]) -> bool:
    return _is_header(lines[0])


FORMATS = (TraceFormat("azure-llm", "Azure LLM inference trace", _recognises, load),)
