"""Batch tasks of the Alibaba cluster traces: tables without a header, one row per task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrator.core.trace import Trace
from migrator.workload.traces.counting import LATEST_S, per_second
from migrator.workload.traces.lines import parsed


@dataclass(frozen=True)
class TaskTable:
    """Where a release keeps what we need; columns count from 0."""

    columns: int
    time: int
    status: int

    def recognises(self, lines: list[str]) -> bool:
        """Whether one of these lines can be a row of it."""
        rows = [line.split(",") for line in lines]
        return any(
            len(row) == self.columns and row[self.status].isalpha() and _is_time(row[self.time])
            for row in rows
        )

    def load(self, path: Path) -> Trace:
        """One request per task; tasks from before the trace (time 0 or less) do not count."""
        expected = f"{self.columns} columns with whole seconds in column {self.time + 1}"
        seconds = parsed(path, self._seconds, expected)
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


def _is_time(cell: str) -> bool:
    return not cell or cell.removeprefix("-").isdecimal()
