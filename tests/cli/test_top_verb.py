"""`migrator top`: one snapshot where it is piped, live on a terminal, through restarts."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.api_server import running_server
from support.live_records import Made, write_run
from support.waiting import LIMIT_S
from typer.testing import CliRunner

from migrator.cli import app
from migrator.core.errors import InputError


def asked(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["top", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["top", *arguments])
    assert isinstance(done.exception, InputError), done.output
    return str(done.exception)


def test_piped_it_is_one_plain_snapshot(records: Path) -> None:
    write_run(records)
    output = asked()
    assert "\x1b" not in output
    assert output.startswith("quick  A100-40GB  emulated  migrator  run 1")
    assert re.search(r"slot 1[1-5] of 20", output)  # by how busy the machine is
    assert "model: photos: version 2 is better" in output
    assert asked("quick")[:40] == asked("somewhere/quick.yaml")[:40] == output[:40]
    output = json.loads(asked("--json"))
    assert (output["scenario"], output["life"], output["paused"]) == ("quick", "running", False)
    assert {tenant["name"] for tenant in output["tenants"]} == {"photos", "cameras"}
    assert output["planned"][0]["tenant"] == "photos"


def test_a_daemon_by_its_address_and_what_cannot_be_looked_at(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nothing was served" in refused()
    write_run(records)
    assert "nothing called 'other'" in refused("other")
    assert "leave out SCENARIO" in refused("quick", "--url", "http://127.0.0.1:1")
    with running_server(admin="secret") as (url, _):
        assert "MIGRATOR_ADMIN_TOKEN" in refused("--url", url)
        monkeypatch.setenv("MIGRATOR_ADMIN_TOKEN", "secret")
        output = asked("--url", url, "--every", "0.2")
    assert output.startswith("stand-in")
    assert "images" in output


@dataclass
class Terminal:
    """`migrator top` on a terminal of 80 by 24, and all that it has drawn."""

    process: subprocess.Popen[bytes]
    line: int
    drawn: bytes = field(default=b"")

    @property
    def words(self) -> str:
        """The last whole screen, without colours."""
        frames = self.drawn.split(b"\x1b[H")
        last = frames[-1] if len(frames[-1]) > 200 or len(frames) < 2 else frames[-2]
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", last.decode("utf-8", "replace"))

    def wait_for(self, seen: Callable[[str], bool], what: str) -> str:
        until_s = time.monotonic() + LIMIT_S
        while time.monotonic() < until_s:
            self._read()
            if seen(self.words):
                return self.words
        raise AssertionError(f"never: {what}; {self.words}")

    def ended(self) -> int:
        until_s = time.monotonic() + LIMIT_S
        while self.process.poll() is None and time.monotonic() < until_s:
            self._read()
        self._read()
        return self.process.wait(1)

    def _read(self) -> None:
        # once the other end is closed there is nothing to be read any more
        with suppress(OSError):
            if select.select([self.line], [], [], 0.1)[0]:
                self.drawn += os.read(self.line, 65536)


@contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "migrator", "top", "--every", "0.2", *arguments]
    shown = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=shown, start_new_session=True
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)


def _lines(screen: str) -> list[str]:
    return [line.rstrip() for line in screen.replace("\r", "").splitlines()]


def test_live_it_draws_in_colours_continues_with_the_next_daemon_and_q_ends_it(
    records: Path,
) -> None:
    write_run(records, Made(ends=True))
    with terminal() as shown:
        shown.wait_for(lambda text: "ended; waiting for it to start again" in text, "it ended")
        write_run(records, Made(policy="static-4-3"))
        screen = shown.wait_for(
            lambda text: "static-4-3  run 2" in text and "waiting for" not in text,
            "the next run is shown",
        )
        assert b"\x1b[?1049h" in shown.drawn  # a screen of its own, so that nothing scrolls away
        assert b";48;2;" in shown.drawn  # a tenant's colour as the ground of its block
        assert max(map(len, _lines(screen))) <= 80
        assert len(_lines(screen)) <= 24
        os.write(shown.line, b"q")
        assert shown.ended() == 0
        assert b"\x1b[?1049l" in shown.drawn


def test_it_waits_for_an_address_that_ends_until_ctrl_c(records: Path) -> None:
    del records
    with ExitStack() as server:
        url, _ = server.enter_context(running_server())
        with terminal("--url", url) as shown:
            shown.wait_for(lambda text: "images" in text, "it draws")
            server.close()
            shown.wait_for(
                lambda text: "does not answer" in text and "images" in text,
                "it says so and keeps what it knew",
            )
            shown.process.send_signal(signal.SIGINT)
            assert shown.ended() == 0
