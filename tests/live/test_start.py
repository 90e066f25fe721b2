"""What a daemon sees to when it starts: tokens stay with it, open files suffice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.faults import family, settled
from support.live_daemon import scenario_file, served

from migrator.io.processes import process_environment

TOKENS = {"SHOP_ADMIN": "a" * 40, "PYTHON_OF_PHOTOS": "p" * 40, "MIGRATOR_ADMIN_TOKEN": "m" * 40}
LIMITED = """
import logging, resource, sys
from migrator.core.errors import InputError
from migrator.serve.http.requests import Limits
from migrator.serve.http.server import affordable
logging.basicConfig(format="%(message)s", stream=sys.stdout)
try:
    print(affordable(Limits(connections=1000)).connections)
except InputError as error:
    print("error:", error)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_token_variables_reach_no_process_of_a_daemon(tmp_path: Path) -> None:
    path, state = scenario_file(tmp_path, "photos"), tmp_path / "state"
    text = path.read_text(encoding="utf-8")
    names = "{admin: SHOP_ADMIN, photos: PYTHON_OF_PHOTOS}"
    path.write_text(
        text.replace("live: {port: 0}", f"live: {{port: 0, token_variables: {names}}}"),
        encoding="utf-8",
    )
    with served(path, state, token="a" * 40, **TOKENS) as daemon:
        settled(daemon)
        children = family(daemon.process.pid) - {daemon.process.pid}
        assert len(children) >= 4  # fork server, workers, the policy's process, retrainers
        for pid in children:
            found = set(process_environment(pid).values())
            assert not found & set(TOKENS.values()), (pid, found)


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
