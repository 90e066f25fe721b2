"""`migrator serve FILE` in a process of its own, for files that `migrator example live` prints."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import PYTHONPATH
from support.waiting import LIMIT_S, until


@contextmanager
def serving(line: str, folder: Path) -> Iterator[None]:
    """Run a command until Ctrl-C; it begins to serve and ends without an error."""
    log = folder / "serve.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            shlex.split(line),
            cwd=folder,
            env=environment(folder),
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: "serving at " in log.read_text() or process.poll() is not None, "it serves")
        assert process.poll() is None, log.read_text()
        yield
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LIMIT_S) == 0, log.read_text()[-2000:]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def environment(folder: Path) -> dict[str, str]:
    """This interpreter's programs and this checkout's code first; modules in the folder too."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": programs, "PYTHONPATH": f"{PYTHONPATH}{os.pathsep}{folder}"}


def shorten(scenario: Path) -> None:
    """Shorter windows and retrainings, fewer requests, at a port that no other process uses."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = scenario.read_text(encoding="utf-8")
    shorter = {
        "port: 8600": f"port: {port}",
        "epochs: 8": "epochs: 2",
        "mean_rps: 15": "mean_rps: 6",
        "window_s: 20": "window_s: 8",
        "slo_ms: 500": "slo_ms: 5000",  # for a machine that does much else
    }
    for old, new in shorter.items():
        assert old in text
        text = text.replace(old, new)
    scenario.write_text(text, encoding="utf-8")
