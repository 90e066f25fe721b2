"""Azure Functions trace 2019: invocations per function and minute, one file per day."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrator.core.scenario import Trace
from migrator.workload.traces.reading import (
    TraceFormat,
    check_length,
    head,
    parse_lines,
    refuse_empty,
    trace_name,
)

_TITLES = ["hashowner", "hashapp", "hashfunction", "trigger"]
_MINUTE_S = 60
_LARGEST_COUNT = 10**9


def load(path: Path, *, seed: int = 0) -> Trace:
    """The requests of all functions together.

    A request falls into each second of its minute with equal probability.
    """
    minutes = head(path)[0].count(",") + 1 - len(_TITLES)
    check_length(path, minutes * _MINUTE_S)

    def summed(lines: list[str]) -> NDArray[np.int64]:
        return _summed(lines, minutes)

    expected = f"{len(_TITLES)} texts and {minutes:,} whole counts of 0 or more"
    counts = parse_lines(path, summed, expected, _is_header).sum(axis=0)
    if not counts.any():
        refuse_empty(path)
    draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    spread = draw.multinomial(counts, np.full(_MINUTE_S, 1.0 / _MINUTE_S))
    return Trace(trace_name(path), spread.reshape(-1).astype(np.int64))


def _summed(lines: list[str], minutes: int) -> NDArray[np.int64]:
    """One row: the sum of the lines. A whole day of functions is thus never in memory at once."""
    if not lines:
        return np.zeros((0, minutes), dtype=np.int64)
    cells = [line.split(",", len(_TITLES)) for line in lines]
    if any(len(each) <= len(_TITLES) for each in cells):
        raise ValueError
    tails = [each[-1] for each in cells]
    counts = np.loadtxt(tails, delimiter=",", comments=None, dtype=np.int64, ndmin=2)
    if counts.shape[1] != minutes or counts.min() < 0 or counts.max() > _LARGEST_COUNT:
        raise ValueError
    total: NDArray[np.int64] = counts.sum(axis=0, keepdims=True)
    return total


def _is_header(line: str) -> bool:
    return line.lower().split(",")[: len(_TITLES)] == _TITLES


def _recognises(lines: list[str]) -> bool:
    return _is_header(lines[0]) and lines[0].count(",") >= len(_TITLES)


FORMATS = (TraceFormat("azure-functions", "Azure Functions trace 2019", _recognises, load),)
