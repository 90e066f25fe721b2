"""ServeGen chunks: one client's rate and fitted inter-arrival times, per period of minutes.

Rows are time,rate,cv,pattern,shape,scale without a header. The published rate gives the number of
requests in a period, the fit their distribution in it. Random draws are seeded.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.core.scenario import Trace
from migrator.workload.traces.reading import (
    LATEST_S,
    TraceFormat,
    check_length,
    is_number,
    parse_lines,
    refuse_empty,
    trace_name,
)

_COLUMNS = 6
_QUIET, _GAMMA, _WEIBULL = 0.0, 1.0, 2.0
_PATTERNS = {"": _QUIET, "Gamma": _GAMMA, "Weibull": _WEIBULL}
_STRETCH_S = 600
"""Seconds of a period if the file has only one."""
_MOST_REQUESTS = 10**8
"""Maximum number of requests in a period.

They are drawn individually, and more would not fit into memory.
"""


def load(path: Path, *, seed: int = 0) -> Trace:
    """One client's requests, resampled. Second 0 is the first row's time."""
    expected = "time,rate,cv,pattern,shape,scale such as 600,5.5,0.9,Gamma,2.1,0.05"
    rows = parse_lines(path, _rows, expected)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    lengths = _lengths(path, rows[:, 0].astype(np.int64))
    draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    counts = np.concatenate(
        [_stretch(path, row, int(length), draw) for row, length in zip(rows, lengths, strict=True)]
    )
    if not counts.any():
        refuse_empty(path)
    return Trace(trace_name(path), counts)


def _rows(lines: list[str]) -> NDArray[np.float64]:
    return np.array([_row(line) for line in lines], dtype=np.float64).reshape(-1, 4)


def _row(line: str) -> tuple[float, float, float, float]:
    """Time, rate, pattern and shape. A period without a pattern has no requests."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != _COLUMNS or cells[3] not in _PATTERNS:
        raise ValueError
    time, pattern = int(cells[0]), _PATTERNS[cells[3]]
    if abs(time) > LATEST_S:
        raise ValueError
    if pattern == _QUIET:
        return time, 0.0, pattern, 1.0
    rate, shape = float(cells[1]), float(cells[4])
    if not (0.0 <= rate < math.inf and 0.0 < shape < math.inf):
        raise ValueError
    return time, rate, pattern, shape


def _lengths(path: Path, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Seconds of each period, which lasts until the next one.

    The last is as long as the one before.
    """
    if not len(times):
        refuse_empty(path)
    lengths = np.diff(times)
    if np.any(lengths == 0):
        twice = int(times[:-1][lengths == 0][0])
        raise InputError(f"{path}: the time {twice} is in two rows; keep one of them")
    lengths = np.append(lengths, lengths[-1:] if len(lengths) else _STRETCH_S)
    check_length(path, int(lengths.sum()))
    return lengths


def _stretch(
    path: Path, row: NDArray[np.float64], length_s: int, draw: np.random.Generator
) -> NDArray[np.int64]:
    """Requests per second of a period.

    The rate gives their number, the fit the proportions of their gaps.
    """
    time, rate, pattern, shape = row
    if rate * length_s > _MOST_REQUESTS:
        raise InputError(
            f"{path}: the rate {rate:g} at time {time:.0f} makes more than {_MOST_REQUESTS:,} "
            "requests before the next row; give requests per second"
        )
    requests = math.floor(rate * length_s + draw.random())
    # Only the shape matters, because the gaps are scaled to fill the period.
    size = requests + 1
    gaps = draw.gamma(shape, size=size) if pattern == _GAMMA else draw.weibull(shape, size=size)
    filled = max(float(gaps.sum()), np.finfo(np.float64).tiny)
    seconds = (np.cumsum(gaps[:-1]) / filled * length_s).astype(np.int64)
    return np.bincount(np.minimum(seconds, length_s - 1), minlength=length_s).astype(np.int64)


def _recognises(lines: list[str]) -> bool:
    rows = [line.split(",") for line in lines]
    return any(
        len(row) == _COLUMNS and is_number(row[0]) and row[3].strip() in _PATTERNS for row in rows
    )


FORMATS = (TraceFormat("servegen", "ServeGen chunk of one client", _recognises, load),)
