"""A daemon checks when it starts that it may open enough files."""

from __future__ import annotations

import subprocess
import sys

LIMITED = """
import logging, resource, sys
from migrator.core.errors import InputError
from migrator.serving.http.requests import ClientLimits
from migrator.serving.http.server import affordable
logging.basicConfig(format="%(message)s", stream=sys.stdout)
for limits in sys.argv[1:]:
    soft, hard = map(int, limits.split(":"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        connections = affordable(ClientLimits(connections=1000)).connections
    except InputError as error:
        connections = f"error: {error}"
    print(connections, *resource.getrlimit(resource.RLIMIT_NOFILE), sep="|")
"""


def test_too_few_open_files_for_the_connections_are_noticed_at_the_start() -> None:
    limits = ("256:4096", "2000:4096", "256:512", "64:100")  # a limit can only be lowered
    command = [sys.executable, "-c", LIMITED, *limits]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    enough, more, warned, fewer, refused = done.stdout.splitlines()
    assert (enough, more) == ("1000|1128|4096", "1000|2000|4096")
    assert "384 connections are served at a time instead of 1000" in warned
    assert fewer == "384|512|512"
    assert "open files: the limit of this process is 100, too low to serve" in refused
