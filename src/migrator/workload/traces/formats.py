"""The formats of trace files: plain lists, and public traces as they are published.

The first lines of a file decide its format. Random draws are seeded, so that a file always gives
the same trace. A module here lists its own formats in `FORMATS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.core.registry import found_in
from migrator.core.scenario import Trace
from migrator.io.file_kind import TRACE, wrong_kind
from migrator.workload.traces.reading import (
    LATEST_S,
    check_length,
    head,
    is_number,
    is_title,
    parse_lines,
    per_second,
    quoted,
    refuse_empty,
    trace_name,
)

_MINUTE_S, _DAY_S = 60, 86_400
_LARGEST_COUNT = 10**9
_FUNCTIONS_TITLES = ["hashowner", "hashapp", "hashfunction", "trigger"]
_SERVEGEN_COLUMNS = 6
_QUIET, _GAMMA, _WEIBULL = 0.0, 1.0, 2.0
_SERVEGEN_PATTERNS = {"": _QUIET, "Gamma": _GAMMA, "Weibull": _WEIBULL}
_SERVEGEN_PERIOD_S = 600
"""Seconds of a period if the file has only one."""
_MOST_REQUESTS = 10**8
"""Maximum number of requests in a period: they are drawn individually, in memory."""


@dataclass(frozen=True)
class TraceFormat:
    """One format of trace files."""

    name: str
    recognises: Callable[[list[str]], bool]
    """Takes the first one or two lines that are not blank. At most one format returns True."""
    load: Callable[[Path], Trace]


@cache
def formats() -> dict[str, TraceFormat]:
    """Every format by name."""
    return found_in("migrator.workload.traces", "FORMATS")


def load_trace(path: Path) -> Trace:
    """The trace in a file, plain or gzip. The first lines decide its format."""
    try:
        return _load(path)
    except InputError as error:
        if kind := wrong_kind(path, (TRACE,)):
            raise InputError(f"{path}: {kind}") from error
        raise


def _load(path: Path) -> Trace:
    first = head(path)
    # The second line is used only if the first one, which may be any header, is not recognised.
    for lines in (first[:1], first):
        for trace_format in formats().values():
            if trace_format.recognises(lines):
                return trace_format.load(path)
    raise InputError(
        f"{path}: line 1 is {quoted(first[0])}, which is the beginning of no known trace format; "
        "give second,count rows, one timestamp per line, or an original named in docs/traces.md"
    )


# second,count rows, with or without a header. Missing seconds are empty.


def _load_counts(path: Path) -> Trace:
    """The trace of rows in any order. The counts of a repeated second are summed."""
    expected = "a whole second and a whole count of 0 or more such as 17,3"
    rows = parse_lines(path, _count_rows, expected, _is_count_header)
    return per_second(path, rows[:, 0], rows[:, 1])


def _count_rows(lines: list[str]) -> NDArray[np.int64]:
    if not lines:
        return np.zeros((0, 2), dtype=np.int64)
    rows = np.loadtxt(lines, delimiter=",", comments=None, quotechar='"', ndmin=2)
    # NaN fails every comparison, so it is rejected as well.
    if rows.shape[1] != 2 or not np.all(np.abs(rows) < LATEST_S) or np.any(rows % 1):
        raise ValueError
    if not np.all((rows[:, 1] >= 0) & (rows[:, 1] <= _LARGEST_COUNT)):
        raise ValueError
    return rows.astype(np.int64)


def _is_count_header(line: str) -> bool:
    return all(is_title(cell) for cell in line.split(","))


# Lists of times, one request per line: seconds since an epoch, or ISO 8601, in any order.


def _load_times(path: Path) -> Trace:
    expected = "a time in seconds or ISO 8601, written like the first line's"
    return per_second(path, parse_lines(path, _time_seconds, expected, is_title))


def _time_seconds(lines: list[str]) -> NDArray[np.int64]:
    moments = [line.strip().strip('"') for line in lines]
    if not moments or not is_number(moments[0]):
        return _iso_seconds(moments)
    numbers = np.loadtxt(moments, delimiter=",", comments=None, ndmin=2)
    if numbers.shape[1] != 1 or not np.all(np.abs(numbers) < LATEST_S):
        raise ValueError
    return np.floor(numbers[:, 0]).astype(np.int64)


def _iso_seconds(moments: Iterable[str]) -> NDArray[np.int64]:
    """Whole seconds since 1970 of ISO 8601 times, all with an offset or all without (UTC)."""
    times = [datetime.fromisoformat(moment) for moment in moments]
    zone = UTC if times and times[0].tzinfo else None
    if any((time.tzinfo is None) != (zone is None) for time in times):
        raise ValueError
    epoch = datetime(1970, 1, 1, tzinfo=zone)
    since = (time - epoch for time in times)
    return np.array([passed.days * _DAY_S + passed.seconds for passed in since], dtype=np.int64)


def _recognises_times(lines: list[str]) -> bool:
    return "," not in lines[0] and any(map(_is_moment, lines))


def _is_moment(text: str) -> bool:
    bare = text.strip('"')
    try:
        return is_number(bare) or bool(datetime.fromisoformat(bare))
    except ValueError:
        return False


# Azure LLM inference traces (2023, 2024): TIMESTAMP,ContextTokens,GeneratedTokens.


def _load_azure_llm(path: Path) -> Trace:
    """One request per row, without its tokens."""
    expected = "a time and numbers of tokens such as 2023-11-16 18:15:46.68,374,44"
    return per_second(path, parse_lines(path, _azure_llm_seconds, expected, _is_azure_llm_header))


def _azure_llm_seconds(lines: list[str]) -> NDArray[np.int64]:
    if any(line.count(",") < 2 for line in lines):
        raise ValueError
    return _iso_seconds(line[: line.index(",")] for line in lines)


def _is_azure_llm_header(line: str) -> bool:
    columns = line.lower().split(",")
    # Later releases put further columns between these.
    return columns[0] == "timestamp" and {"contexttokens", "generatedtokens"} <= set(columns)


# Azure Functions trace 2019: invocations per function and minute, one file per day.


def _load_azure_functions(path: Path) -> Trace:
    """The requests of all functions together.

    A request falls into each second of its minute with equal probability.
    """
    minutes = head(path)[0].count(",") + 1 - len(_FUNCTIONS_TITLES)
    check_length(path, minutes * _MINUTE_S)

    def summed(lines: list[str]) -> NDArray[np.int64]:
        """One row: the sum of the lines, so that a day of functions is never in memory at once."""
        if not lines:
            return np.zeros((0, minutes), dtype=np.int64)
        cells = [line.split(",", len(_FUNCTIONS_TITLES)) for line in lines]
        if any(len(cell) <= len(_FUNCTIONS_TITLES) for cell in cells):
            raise ValueError
        tails = [cell[-1] for cell in cells]
        counts = np.loadtxt(tails, delimiter=",", comments=None, dtype=np.int64, ndmin=2)
        if counts.shape[1] != minutes or counts.min() < 0 or counts.max() > _LARGEST_COUNT:
            raise ValueError
        total: NDArray[np.int64] = counts.sum(axis=0, keepdims=True)
        return total

    expected = f"{len(_FUNCTIONS_TITLES)} texts and {minutes:,} whole counts of 0 or more"
    counts = parse_lines(path, summed, expected, _is_functions_header).sum(axis=0)
    if not counts.any():
        refuse_empty(path)
    spread = np.random.default_rng(0).multinomial(counts, np.full(_MINUTE_S, 1.0 / _MINUTE_S))
    return Trace(trace_name(path), spread.reshape(-1).astype(np.int64))


def _is_functions_header(line: str) -> bool:
    return line.lower().split(",")[: len(_FUNCTIONS_TITLES)] == _FUNCTIONS_TITLES


# Batch tasks of the Alibaba cluster traces: tables without a header, one row per task.


@dataclass(frozen=True)
class _TaskTable:
    """The columns of one release, counted from 0."""

    columns: int
    time: int
    status: int

    def recognises(self, lines: list[str]) -> bool:
        rows = [line.split(",") for line in lines]
        return any(
            len(row) == self.columns
            and row[self.status].isalpha()
            and (not row[self.time] or row[self.time].removeprefix("-").isdecimal())
            for row in rows
        )

    def load(self, path: Path) -> Trace:
        """One request per task, at its creation or start. Times of 0 or less are ignored."""
        expected = f"{self.columns} columns with whole seconds in column {self.time + 1}"
        seconds = parse_lines(path, self._seconds, expected)
        return per_second(path, seconds[seconds > 0])

    def _seconds(self, lines: list[str]) -> NDArray[np.int64]:
        rows = [line.split(",") for line in lines]
        if any(len(row) != self.columns for row in rows):
            raise ValueError
        # A task that has not started has no time, or 0.
        seconds = np.array([int(row[self.time] or 0) for row in rows], dtype=np.float64)
        if not np.all(np.abs(seconds) < LATEST_S):
            raise ValueError
        return seconds.astype(np.int64)


# create time, modify time, job, task, instances, status, plan_cpu, plan_mem
_ALIBABA_2017 = _TaskTable(columns=8, time=0, status=5)
# task, instances, job, type, status, start time, end time, plan_cpu, plan_mem
_ALIBABA_2018 = _TaskTable(columns=9, time=5, status=4)


# ServeGen chunks: one client's rate and fitted inter-arrival times, per period of minutes. Rows are
# time,rate,cv,pattern,shape,scale without a header.


def _load_servegen(path: Path) -> Trace:
    """One client's requests, resampled. Second 0 is the first row's time."""
    expected = "time,rate,cv,pattern,shape,scale such as 600,5.5,0.9,Gamma,2.1,0.05"
    rows = parse_lines(path, _servegen_rows, expected)
    if not len(rows):
        refuse_empty(path)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    lengths = _period_lengths(path, rows[:, 0].astype(np.int64))
    draw = np.random.default_rng(0)
    counts = np.concatenate(
        [_period(path, row, int(length), draw) for row, length in zip(rows, lengths, strict=True)]
    )
    if not counts.any():
        refuse_empty(path)
    return Trace(trace_name(path), counts)


def _servegen_rows(lines: list[str]) -> NDArray[np.float64]:
    return np.array([_servegen_row(line) for line in lines], dtype=np.float64).reshape(-1, 4)


def _servegen_row(line: str) -> tuple[float, float, float, float]:
    """Time, rate, pattern and shape. A period without a pattern has no requests."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != _SERVEGEN_COLUMNS or cells[3] not in _SERVEGEN_PATTERNS:
        raise ValueError
    time, pattern = int(cells[0]), _SERVEGEN_PATTERNS[cells[3]]
    if abs(time) > LATEST_S:
        raise ValueError
    if pattern == _QUIET:
        return time, 0.0, pattern, 1.0
    rate, shape = float(cells[1]), float(cells[4])
    if not (0.0 <= rate < math.inf and 0.0 < shape < math.inf):
        raise ValueError
    return time, rate, pattern, shape


def _period_lengths(path: Path, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Seconds until the next period. The last period is as long as the one before."""
    lengths = np.diff(times)
    if np.any(lengths == 0):
        twice = int(times[:-1][lengths == 0][0])
        raise InputError(f"{path}: the time {twice} is in two rows; keep one of them")
    lengths = np.append(lengths, lengths[-1:] if len(lengths) else _SERVEGEN_PERIOD_S)
    check_length(path, int(lengths.sum()))
    return lengths


def _period(
    path: Path, row: NDArray[np.float64], length_s: int, draw: np.random.Generator
) -> NDArray[np.int64]:
    """Requests per second: the rate gives their number, the fit the proportions of their gaps."""
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


def _recognises_servegen(lines: list[str]) -> bool:
    rows = [line.split(",") for line in lines]
    return any(
        len(row) == _SERVEGEN_COLUMNS and is_number(row[0]) and row[3].strip() in _SERVEGEN_PATTERNS
        for row in rows
    )


FORMATS = (
    TraceFormat("second-counts", lambda lines: lines[0].count(",") == 1, _load_counts),
    TraceFormat("timestamps", _recognises_times, _load_times),
    TraceFormat("azure-llm", lambda lines: _is_azure_llm_header(lines[0]), _load_azure_llm),
    TraceFormat(
        "azure-functions",
        lambda lines: (
            _is_functions_header(lines[0]) and lines[0].count(",") >= len(_FUNCTIONS_TITLES)
        ),
        _load_azure_functions,
    ),
    TraceFormat("alibaba-v2017", _ALIBABA_2017.recognises, _ALIBABA_2017.load),
    TraceFormat("alibaba-v2018", _ALIBABA_2018.recognises, _ALIBABA_2018.load),
    TraceFormat("servegen", _recognises_servegen, _load_servegen),
)
