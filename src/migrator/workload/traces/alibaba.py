"""Batch tasks of the Alibaba cluster traces: tables without a header, one row per task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrator.core.scenario import Trace
from migrator.workload.traces.reading import LATEST_S, TraceFormat, parse_lines, per_second


@dataclass(frozen=True)
class TaskTable:
    """The columns of one release, counted from 0."""

    columns: int
    time: int
    status: int

    def recognises(self, lines: list[str]) -> bool:
        """Whether one of these lines is a row of the table."""
        rows = [line.split(",") for line in lines]
        return any(
            len(row) == self.columns and row[self.status].isalpha() and _is_time(row[self.time])
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


def _is_time(cell: str) -> bool:
    return not cell or cell.removeprefix("-").isdecimal()


# create time, modify time, job, task, instances, status, plan_cpu, plan_mem
V2017 = TaskTable(columns=8, time=0, status=5)
# task, instances, job, type, status, start time, end time, plan_cpu, plan_mem
V2018 = TaskTable(columns=9, time=5, status=4)

FORMATS = (
    TraceFormat("alibaba-v2017", "Alibaba cluster trace v2017 tasks", V2017.recognises, V2017.load),
    TraceFormat("alibaba-v2018", "Alibaba cluster trace v2018 tasks", V2018.recognises, V2018.load),
)
