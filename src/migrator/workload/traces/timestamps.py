"""Lists of times, one request per line: seconds since an epoch, or ISO 8601, in any order."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrator.core.scenario import Trace
from migrator.workload.traces.reading import (
    LATEST_S,
    TraceFormat,
    is_number,
    is_title,
    parse_lines,
    per_second,
)

_DAY_S = 86_400


def load(path: Path) -> Trace:
    """The trace of a list of times. Second 0 is the whole second of the earliest time."""
    expected = "a time in seconds or ISO 8601, written like the first line's"
    return per_second(path, parse_lines(path, _seconds, expected, is_title))


def iso_seconds(moments: Iterable[str]) -> NDArray[np.int64]:
    """Whole seconds since 1970 of ISO 8601 times, all with an offset or all without (UTC)."""
    times = [datetime.fromisoformat(each) for each in moments]
    if not times:
        return np.zeros(0, dtype=np.int64)
    zone = UTC if times[0].tzinfo else None
    if any((each.tzinfo is None) != (zone is None) for each in times):
        raise ValueError
    epoch = datetime(1970, 1, 1, tzinfo=zone)
    since = (each - epoch for each in times)
    return np.array([each.days * _DAY_S + each.seconds for each in since], dtype=np.int64)


def _seconds(lines: list[str]) -> NDArray[np.int64]:
    moments = [line.strip().strip('"') for line in lines]
    if not moments or not is_number(moments[0]):
        return iso_seconds(moments)
    numbers = np.loadtxt(moments, delimiter=",", comments=None, ndmin=2)
    if numbers.shape[1] != 1 or not np.all(np.abs(numbers) < LATEST_S):
        raise ValueError
    return np.floor(numbers[:, 0]).astype(np.int64)


def _is_moment(text: str) -> bool:
    bare = text.strip('"')
    try:
        return is_number(bare) or bool(datetime.fromisoformat(bare))
    except ValueError:
        return False


def _recognises(lines: list[str]) -> bool:
    return "," not in lines[0] and any(map(_is_moment, lines))


FORMATS = (TraceFormat("timestamps", "one time per line", _recognises, load),)
