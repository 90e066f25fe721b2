"""docs/bring-your-model.md: its commands, as a reader types them, one after the other."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "bring-your-model.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
START_S, COMMAND_S = 180.0, 300.0


def commands() -> list[str]:
    """Every line of the page's blocks."""
    text = PAGE.read_text(encoding="utf-8")
    return [line for block in BLOCK.findall(text) for line in block.splitlines()]


def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    lines = commands()
    assert len(lines) == 10
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    before, (serve, *after) = lines[:5], lines[5:]
    for line in before:
        run(line, tmp_path)
    use_a_free_port(tmp_path / "my.yaml")
    with serving(serve, tmp_path):
        said = {line: run(line, tmp_path) for line in after}
    load, status, windows, _ = said.values()
    sent = re.search(r"^all +my-model +(\d+) +(\d+)", load, re.MULTILINE)
    assert sent is not None
    assert int(sent[2]) > 0.2 * int(sent[1])
    assert "my-model" in status
    assert len(re.findall(r"^\s*[01]\b", windows, re.MULTILINE)) >= 2
    assert "my-model" in (tmp_path / "my.html").read_text(encoding="utf-8")


def run(line: str, folder: Path) -> str:
    """The output of a command; it must succeed."""
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    assert done.returncode == 0, f"{line}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@contextmanager
def serving(line: str, folder: Path) -> Iterator[None]:
    """Run a command until Ctrl-C; it begins to serve and ends without an error."""
    assert line.startswith("migrator serve ")
    log = folder / "serve.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=folder,
            env=environment(folder),
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        until_s = time.monotonic() + START_S
        while "serving at " not in log.read_text() and process.poll() is None:
            assert time.monotonic() < until_s, log.read_text()
            time.sleep(0.2)
        assert process.poll() is None, log.read_text()
        yield
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0, log.read_text()[-2000:]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def environment(folder: Path) -> dict[str, str]:
    """This interpreter's programs first; state in the test's own folder."""
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **own, "MIGRATOR_STATE": str(folder / "state")}


def use_a_free_port(scenario: Path) -> None:
    """Another test or daemon may use the usual one."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = scenario.read_text(encoding="utf-8")
    assert "port: 8600" in text
    scenario.write_text(text.replace("port: 8600", f"port: {port}"), encoding="utf-8")
