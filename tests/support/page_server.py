"""`migrator dashboard` as a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def shown(*records: Path | str, port: int = 0) -> Iterator[str]:
    """The page of these records and its address; Ctrl-C ends it without a word of complaint."""
    command = [sys.executable, "-m", "migrator", "dashboard", *map(str, records)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, "--port", str(port), "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        try:
            yield json.loads(line)["url"]
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, ""), (process.returncode, errors)
