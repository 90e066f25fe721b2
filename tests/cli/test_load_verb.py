"""`migrator load` against a real server: output, exit codes, sentences."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gpu_cli import migrator, refused
from support.live_scenarios import live_file
from support.oip_server import Running, oip_server
from support.waiting import LIMIT_S

from migrator.cli import app
from migrator.core.errors import InputError

TOKEN = "the-token-of-all"


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with oip_server() as server:
        yield server


def test_a_table_and_json(running: Running, tmp_path: Path) -> None:
    running.tell(label=1, version=3)
    path = live_file(tmp_path, (10,))
    done = migrator("load", path, "--url", running.url, "--labelled", 0)
    assert done.code == 0, done.err
    assert done.err == ""
    rows = [line.split() for line in done.out.splitlines()]
    assert [row[:3] for row in rows if row[:1] == ["0"]] == [["0", "a", "10"]]
    done = migrator("load", path, "--url", running.url, "--json", "--tenant", "b")
    parsed_json = json.loads(done.out)
    assert (parsed_json["sent"], parsed_json["in_time"], parsed_json["versions"]) == (
        20,
        20,
        {"3": 20},
    )
    assert list(parsed_json["tenants"]) == ["b"]


def test_bad_input_is_one_sentence_and_exit_2(running: Running, tmp_path: Path) -> None:
    running.tell(token=TOKEN)
    given = ("load", live_file(tmp_path, (5,)), "--url", running.url, "--token", "another-one")
    assert refused(*given).startswith("--token: the server refuses the token of a")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--url", "http://127.0.0.1:9"),
            r"no answer from http://127\.0\.0\.1:9 \(connection refused",
        ),
        (("--url", "127.0.0.1:8600"), "is no address of a server"),
        (("--tenant", "c"), "small has no 'c'; use a, b"),
        (("--token", "two words"), "--token: contains characters"),
        (("--seed", "-5"), "--seed: -5 is out of range; give 0 to"),
        (("--labels-at", "noon"), "'noon' is unknown; use start or feedback"),
    ],
)
def test_what_is_refused_before_anything_is_sent(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    path = live_file(tmp_path, (5,))
    with pytest.raises(InputError, match=said):
        app(["load", str(path), *arguments], standalone_mode=False)


def test_tokens_come_from_the_variable_or_the_scenario(running: Running, tmp_path: Path) -> None:
    running.tell(token=TOKEN)
    path = live_file(tmp_path, (5,))
    assert migrator("load", path, "--url", running.url, MIGRATOR_TOKEN=TOKEN).code == 0
    names = {"admin": "A_TOKEN", "a": "B_TOKEN", "b": "C_TOKEN"}
    path = live_file(tmp_path, (5,), live={"token_variables": names})
    variables = {"A_TOKEN": "of-the-administrator", "B_TOKEN": TOKEN, "C_TOKEN": f"{TOKEN}-b"}
    done = migrator("load", path, "--url", running.url, "--tenant", "a", **variables)
    assert done.code == 0, done.err


def test_a_server_that_goes_leaves_a_table_and_exit_1(tmp_path: Path) -> None:
    path = live_file(tmp_path, (20,) * 5)
    with oip_server(label=1, dies_after=30) as dying:
        done = migrator("load", path, "--url", dying.url, "--patience-s", 0.5)
    assert done.code == 1
    assert "ended early: the server answered nothing for 0.5 s" in done.out
    assert "connection refused" in done.out
    assert done.err.startswith("error: the server answered nothing for 0.5 s; check that")


def test_ctrl_c_leaves_a_table_and_exit_130(running: Running, tmp_path: Path) -> None:
    running.tell(label=1)
    path = live_file(tmp_path, (20,) * 60)
    with subprocess.Popen(
        [sys.executable, "-m", "migrator", "load", str(path), "--url", running.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until_s = time.monotonic() + 30
        while len(running.stats()["ids"]) < 40:
            assert time.monotonic() < until_s, "nothing was sent"
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "ended early: interrupted" in out
    assert errors == "error: interrupted\n"
