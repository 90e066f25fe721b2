"""Alibaba cluster trace v2018, batch_task.csv: tasks by the second in which they started."""

from __future__ import annotations

from pathlib import Path

from migrator.core.trace import Trace
from migrator.workload.traces.alibaba_tasks import TaskTable
from migrator.workload.traces.trace_format import TraceFormat

# task, instances, job, type, status, start time, end time, plan_cpu, plan_mem
_TABLE = TaskTable(columns=9, time=5, status=4)


def load(path: Path) -> Trace:
    """One request per task, in the second it started."""
    return _TABLE.load(path)


FORMATS = (
    TraceFormat("alibaba-v2018", "Alibaba cluster trace v2018 tasks", _TABLE.recognises, load),
)
