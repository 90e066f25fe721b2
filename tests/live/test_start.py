"""A daemon checks when it starts that it may open enough files."""

from __future__ import annotations

import os
import subprocess
import sys

LIMITED = """
import logging, resource, sys
from migrator.core.errors import InputError
from migrator.serving.http.requests import ClientLimits
from migrator.serving.http.server import affordable
logging.basicConfig(format="%(message)s", stream=sys.stdout)
try:
    print(affordable(ClientLimits(connections=1000)).connections)
except InputError as error:
    print("error:", error)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def _limited(soft: int, hard: int) -> list[str]:
    done = subprocess.run(
        ["prlimit", f"--nofile={soft}:{hard}", sys.executable, "-c", LIMITED],
        env={**os.environ},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_too_few_open_files_for_the_connections_are_noticed_at_the_start() -> None:
    assert _limited(256, 4096) == ["1000", "1128 4096"]
    assert _limited(2000, 4096) == ["1000", "2000 4096"]
    warned, connections, limits = _limited(256, 512)
    assert "384 connections are served at a time instead of 1000" in warned
    assert (connections, limits) == ("384", "512 512")
    said, _ = _limited(64, 100)
    assert said.startswith("error: open files: the limit of this process is 100, too low to serve")
