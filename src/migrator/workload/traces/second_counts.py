"""Plain traces: `second,count` rows, with or without a header. Missing seconds are empty."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrator.core.scenario import Trace
from migrator.workload.traces.reading import (
    LATEST_S,
    TraceFormat,
    is_title,
    parse_lines,
    per_second,
)

_LARGEST_COUNT = 1e9


def load(path: Path) -> Trace:
    """The trace of rows in any order. The counts of a repeated second are summed."""
    expected = "a whole second and a whole count of 0 or more such as 17,3"
    rows = parse_lines(path, _rows, expected, _is_header)
    return per_second(path, rows[:, 0], rows[:, 1])


def _rows(lines: list[str]) -> NDArray[np.int64]:
    if not lines:
        return np.zeros((0, 2), dtype=np.int64)
    rows = np.loadtxt(lines, delimiter=",", comments=None, quotechar='"', ndmin=2)
    # NaN fails every comparison, so it is rejected as well.
    if rows.shape[1] != 2 or not np.all(np.abs(rows) < LATEST_S) or np.any(rows % 1):
        raise ValueError
    if not np.all((rows[:, 1] >= 0) & (rows[:, 1] <= _LARGEST_COUNT)):
        raise ValueError
    return rows.astype(np.int64)


def _is_header(line: str) -> bool:
    return all(is_title(cell) for cell in line.split(","))


def _recognises(lines: list[str]) -> bool:
    return lines[0].count(",") == 1


FORMATS = (TraceFormat("second-counts", "second,count rows", _recognises, load),)
