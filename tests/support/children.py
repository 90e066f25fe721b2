"""A Python program beside a test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def child(*arguments: object, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Its process and the first line that it prints; killed in the end."""
    with subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().rstrip("\n")
        finally:
            process.kill()
