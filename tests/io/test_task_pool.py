"""A pool of processes: its results, and what happens when a process dies or the caller leaves."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from support.waiting import until

from migrator.core.errors import InputError, MigratorError
from migrator.io.processes import is_running
from migrator.io.task_pool import open_workers


def twice(number: int) -> int:
    return 2 * number


def die(number: int) -> int:
    """As the kernel ends processes of a machine that is out of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def refuse(number: int) -> int:
    raise InputError(f"{number} is refused")


def sleep(path: str) -> None:
    if not path:
        return
    Path(path).write_text(str(os.getpid()), encoding="ascii")
    time.sleep(600)


def test_results_in_order_and_as_they_come_and_errors_of_tasks() -> None:
    with open_workers(2) as workers:
        assert list(workers.map(twice, range(9))) == [2 * number for number in range(9)]
        assert sorted(workers.as_completed(twice, range(9))) == [(n, 2 * n) for n in range(9)]
        assert list(workers.map(twice, [])) == []
        with pytest.raises(InputError, match="3 is refused"):
            list(workers.map(refuse, [3]))
        with pytest.raises(MigratorError, match="a process of this run died"):
            list(workers.as_completed(die, [1]))
        with pytest.raises(MigratorError, match="with fewer processes"):
            list(workers.map(twice, [1]))


def test_leaving_ends_running_tasks(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with open_workers(2) as workers:
        next(workers.as_completed(sleep, ["", str(file)]))
        pid = int(until(lambda: file.exists() and file.read_text(encoding="ascii")))
        assert is_running(pid)
    assert not is_running(pid)
