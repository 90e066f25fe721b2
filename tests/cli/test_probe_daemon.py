"""Finding a live run, and whether its daemon is there: real processes and a real server."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from migrator.cli.daemon import named_records, probe_daemon, records_file
from migrator.core.errors import InputError
from migrator.records.current_run import DaemonState
from migrator.records.rows import RunRow

RUN = RunRow(1, time.time(), None, "live", "A100-40GB", "emulated", "migrator", 0, os.getpid())


@contextmanager
def answering(status: int, body: bytes) -> Iterator[tuple[str, list[str | None]]]:
    """A server with one answer, and the tokens it was asked with."""
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("authorization"))
            self.send_response(status if self.path == "/admin/status" else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


def test_a_daemon_that_answers_runs() -> None:
    body = json.dumps({"pid": os.getpid(), "window": 3}).encode()
    with answering(200, body) as (url, seen):
        probe = probe_daemon(replace(RUN, about={"url": url}), True, "a-token")
    assert (probe.state, probe.reply) == (DaemonState.RUNNING, {"pid": os.getpid(), "window": 3})
    assert seen == ["Bearer a-token"]


def test_a_daemon_without_a_recorded_address_is_known_by_its_process(ended_pid: int) -> None:
    assert probe_daemon(RUN, True, None).state is DaemonState.RUNNING
    assert probe_daemon(replace(RUN, pid=ended_pid), True, None).state is DaemonState.KILLED
    assert probe_daemon(replace(RUN, ended_s=time.time()), True, None).state is DaemonState.ENDED


def test_a_clock_that_was_set_forward_does_not_hide_a_daemon_that_answers() -> None:
    body = json.dumps({"pid": os.getpid()}).encode()
    long_ago = replace(RUN, began_s=time.time() - 30 * 24 * 3600)
    assert probe_daemon(long_ago, True, None).state is DaemonState.KILLED
    with answering(200, body) as (url, _):
        assert (
            probe_daemon(replace(long_ago, about={"url": url}), True, None).state
            is DaemonState.RUNNING
        )
    assert (
        probe_daemon(replace(long_ago, about={"url": url}), True, None).state is DaemonState.KILLED
    )


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b"{}", "MIGRATOR_ADMIN_TOKEN"),
        (403, b"{}", "MIGRATOR_ADMIN_TOKEN"),
        (500, b"{}", "returned 500"),
        (200, b"not json", "instead of a status"),
        (200, b"[1]", "instead of a status"),
    ],
)
def test_a_reply_that_is_no_status_is_reported(status: int, body: bytes, words: str) -> None:
    with answering(status, body) as (url, _):
        probe = probe_daemon(replace(RUN, about={"url": url}), True, None)
    assert probe.state is DaemonState.SILENT
    assert words in probe.why


def test_another_process_at_the_address_is_not_the_daemon() -> None:
    with answering(200, b'{"pid": 1}') as (url, _):
        probe = probe_daemon(replace(RUN, about={"url": url}), True, None)
    assert probe.state is DaemonState.SILENT
    assert probe.reply is None
    assert "another process" in probe.why


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://127.0.0.1:99999999", "nonsense"])
def test_an_address_that_does_not_answer(url: str) -> None:
    probe = probe_daemon(replace(RUN, about={"url": url}), True, None)
    assert (probe.state, probe.reply) == (DaemonState.SILENT, None)
    assert url in probe.why
    assert "migrator status" not in probe.why  # which says this


def test_the_scenario_written_last_is_meant(tmp_path: Path) -> None:
    for name, at_s in (("b", 50), ("a", 100), ("c", 20)):
        path = tmp_path / "live" / name / "records.db"
        path.parent.mkdir(parents=True)
        path.touch()
        os.utime(path, (at_s, at_s))
    assert records_file(tmp_path, None).parent.name == "a"
    log = tmp_path / "live" / "c" / "records.db-wal"
    log.touch()
    assert records_file(tmp_path, None).parent.name == "c"
    assert records_file(tmp_path, "b").parent.name == "b"
    with pytest.raises(InputError, match="use a or b or c"):
        records_file(tmp_path, "d")


def test_records_are_named_by_a_file_a_folder_or_a_scenario(tmp_path: Path) -> None:
    own = tmp_path / "state" / "live" / "quick" / "records.db"
    own.parent.mkdir(parents=True)
    own.touch()
    for given in (own, own.parent, tmp_path / "state", "quick"):
        assert named_records(str(given), tmp_path / "state", "--beside") == own
    with pytest.raises(InputError, match="--beside: there is no"):
        named_records(str(tmp_path / "nothing"), tmp_path / "state", "--beside")
