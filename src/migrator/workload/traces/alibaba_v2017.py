"""Alibaba cluster trace v2017, batch_task.csv: tasks by the second in which they were created."""

from __future__ import annotations

from pathlib import Path

from migrator.core.trace import Trace
from migrator.workload.traces.alibaba_tasks import TaskTable
from migrator.workload.traces.trace_format import TraceFormat

# create time, modify time, job, task, instances, status, plan_cpu, plan_mem
_TABLE = TaskTable(columns=8, time=0, status=5)


def load(path: Path) -> Trace:
    """One request per task, in the second it was created."""
    return _TABLE.load(path)


FORMATS = (
    TraceFormat("alibaba-v2017", "Alibaba cluster trace v2017 tasks", _TABLE.recognises, load),
)
