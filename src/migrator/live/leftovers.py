"""What a killed daemon left running: every process of a daemon carries its mark.

They end by themselves when their daemon is gone, but one that hangs or is stopped cannot, and
would keep its instance. The next daemon of the same folder ends those before it begins.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from migrator.gpu.processes import Process, numbers, variables

MARK = "MIGRATOR_DAEMON"
"""In the environment of every process of a daemon: whose it is."""
GONE_S = 5.0
"""For so long it is waited until the ended ones are gone."""
_LOOK_S = 0.02


def mark(folder: Path) -> None:
    """From now on every process that this one starts is known as its own."""
    me = Process.of(os.getpid())
    os.environ[MARK] = f"{me.pid} {me.began} {folder.absolute()}"


def kill(folder: Path) -> tuple[Process, ...]:
    """Kill what daemons of that folder, none of which lives, have left; what that was."""
    found = tuple(_left(folder.absolute()))
    for each in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(each.pid, signal.SIGKILL)
    return found


def wait_until_gone(processes: Sequence[Process]) -> None:
    """Wait for killed processes to end: a process on a GPU takes a while to release it."""
    until_s = time.monotonic() + GONE_S
    while any(each.alive for each in processes) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)


def _left(folder: Path) -> Iterator[Process]:
    for pid in numbers():
        if pid == os.getpid():
            continue
        process, marked = Process.of(pid), variables(pid).get(MARK)
        if marked is not None and _is_orphan(marked, folder):
            yield process


def _is_orphan(marked: str, folder: Path) -> bool:
    """Whether it is of that folder and its daemon is gone; what is not ours to read is not."""
    pid, _, rest = marked.partition(" ")
    began, _, where = rest.partition(" ")
    if where != str(folder) or not pid.isdecimal() or not began.isdecimal():
        return False
    return not Process(int(pid), "", int(began)).alive
