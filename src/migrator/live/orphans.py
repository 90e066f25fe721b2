"""Processes that a killed daemon left running.

Every process of a daemon carries a mark in its environment. It exits when its daemon is gone, but a
process that hangs or is stopped cannot, and would keep its instance. The next daemon of the same
folder kills such processes before it starts.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from migrator.io.processes import Process, process_environment, process_ids

MARK = "MIGRATOR_DAEMON"
"""Environment variable: process id, start time and folder of the daemon."""
GONE_S = 5.0
"""Seconds to wait until killed processes have exited."""
_LOOK_S = 0.02


def mark(folder: Path) -> None:
    """Mark the processes that this one starts."""
    me = Process.of(os.getpid())
    os.environ[MARK] = f"{me.pid} {me.began} {folder.absolute()}"


def kill(folder: Path) -> tuple[Process, ...]:
    """Kill and return the processes of dead daemons of that folder."""
    found = tuple(_orphans(folder.absolute()))
    for each in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(each.pid, signal.SIGKILL)
    return found


def wait_until_gone(processes: Sequence[Process]) -> None:
    """Wait for killed processes to exit: a process on a GPU takes a while to release it."""
    until_s = time.monotonic() + GONE_S
    while any(each.alive for each in processes) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)


def _orphans(folder: Path) -> Iterator[Process]:
    for pid in process_ids():
        if pid == os.getpid():
            continue
        process, marked = Process.of(pid), process_environment(pid).get(MARK)
        if marked is not None and _is_orphan(marked, folder):
            yield process


def _is_orphan(marked: str, folder: Path) -> bool:
    """Whether the mark names that folder and a dead daemon."""
    pid, _, rest = marked.partition(" ")
    began, _, where = rest.partition(" ")
    if where != str(folder) or not pid.isdecimal() or not began.isdecimal():
        return False
    return not Process(int(pid), "", int(began)).alive
