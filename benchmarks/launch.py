"""Run a command from a process of a few megabytes and tell its wall time and peak memory.

    python -I -S benchmarks/launch.py COMMAND...

Linux counts into a child's peak memory what its parent held when it was started, so a
benchmark that has loaded numba itself would measure its own size. Standard library only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

_RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


def launch(command: list[str]) -> dict[str, float | int | str]:
    """Wall seconds until the command has printed its last byte, its peak memory, its answer."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        answer = process.stdout.read()
    wall_s = time.perf_counter() - began
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "code": process.returncode,
        "wall_s": wall_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_rss_mb": usage.ru_maxrss * _RSS_UNIT_BYTES / 1e6,
        "answer": answer.decode(),
    }


if __name__ == "__main__":
    json.dump(launch(sys.argv[1:]), sys.stdout)
