"""`migrator admin`: which daemon, with which token, confirmation and outcome."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.api_server import running_server
from support.gpu_cli import Answer, migrator, refused
from support.live_records import Made, write_run

from migrator.cli.daemon import read_token
from migrator.core.errors import InputError

pytestmark = pytest.mark.usefixtures("records")
TOKENS = {"images": "secret-i", "texts": "secret-t"}


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with running_server() as (url, process):
        yield url, process.pid


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with running_server(tokens=TOKENS, admin="secret-a") as (url, _):
        yield url


def run(*arguments: object) -> Answer:
    return migrator("admin", *arguments)


def failed(*arguments: object) -> str:
    done = run(*arguments)
    assert done.code == 1, done.err
    return done.refusal


def acted(url: str) -> list[list[str | None]]:
    actions: list[list[str | None]] = httpx.get(f"{url}/admin/status").json()["acted"]
    return actions


def test_every_action_is_sent_and_its_outcome_printed(server: tuple[str, int]) -> None:
    of_all, of_one = ("pause", "resume", "replan"), ("drain", "undrain", "retrain")
    for kind in (*of_all, *of_one):
        tenant = "images" if kind in of_one else None
        done = run(kind, *filter(None, [tenant]), "--url", server[0], "--yes")
        assert (done.code, done.out) == (0, f"{kind} in words\n")
        assert acted(server[0])[-1] == [kind, tenant, "cli"]


def test_what_takes_a_while_says_at_once_what_it_waits_for(
    server: tuple[str, int], tmp_path: Path
) -> None:
    where = ("--url", server[0], "--yes")
    for kind in ("drain", "remove"):
        said = run(kind, "images", *where).err.splitlines()[0]
        assert said.startswith("waiting until the requests of images are answered")
    (tmp_path / "more.yaml").write_text("{name: more, model: cifar10}", encoding="utf-8")
    for kind, what in (("load", "images"), ("add", str(tmp_path / "more.yaml"))):
        said = run(kind, what, *where).err.splitlines()[0]
        assert said.startswith("waiting until an instance serves")
    assert run("pause", *where).err == ""


def test_the_daemon_is_the_one_of_the_records(server: tuple[str, int], records: Path) -> None:
    url, pid = server
    write_run(records, Made(url=url, pid=pid))
    assert run("pause", "--yes", "--json").json == {"outcome": "done", "words": "pause in words"}


def test_another_process_at_the_address_is_not_acted_on(
    server: tuple[str, int], records: Path
) -> None:
    write_run(records, Made(url=server[0]))  # written by this process, which does not listen
    before = acted(server[0])
    assert "another process" in failed("pause", "--yes")
    assert acted(server[0]) == before


def test_what_the_daemon_refuses_is_printed_and_exits_with_1(server: tuple[str, int]) -> None:
    done = run("roll-back", "texts", "--url", server[0], "--yes")
    assert (done.code, done.out, done.err) == (1, "", "error: roll-back in words\n")
    done = run("roll-back", "images", "--url", server[0], "--yes", "--json")
    assert (done.code, done.json["outcome"]) == (1, "failed")


def test_without_a_terminal_it_must_be_confirmed_by_an_option(server: tuple[str, int]) -> None:
    before = acted(server[0])
    assert "pass --yes" in refused("admin", "pause", "--url", server[0])
    assert acted(server[0]) == before


@pytest.mark.parametrize(("said", "code"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1)])
def test_on_a_terminal_it_asks_first(
    server: tuple[str, int], said: bytes, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, before = server[0], len(acted(server[0]))
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        os.write(ours, said)
        done = migrator("admin", "drain", "texts", "--url", url)
    os.close(ours)
    assert "New requests of texts are refused with 503" in done.err
    assert done.code == code, done.err
    assert done.out == ("drain in words\n" if code == 0 else "")
    assert len(acted(url)) == before + (code == 0)


def test_the_token_comes_from_a_file_or_the_environment(
    guarded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    path.write_text("secret-a\n", encoding="utf-8")
    assert run("pause", "--url", guarded, "--yes", "--token-file", str(path)).code == 0
    monkeypatch.setenv("MIGRATOR_ADMIN_TOKEN", "secret-a")
    assert run("pause", "--url", guarded, "--yes").code == 0


def test_a_token_that_is_missing_or_wrong(
    guarded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("pause", "--url", guarded, "--yes")
    assert "MIGRATOR_ADMIN_TOKEN" in refused("admin", *asked)
    missing = str(tmp_path / "nothing")
    assert "--token-file" in refused("admin", *asked, "--token-file", missing)
    for wrong in ("guess", "secret-i"):
        monkeypatch.setenv("MIGRATOR_ADMIN_TOKEN", wrong)
        assert "does not accept this admin token" in refused("admin", *asked)
    monkeypatch.setenv("MIGRATOR_ADMIN_TOKEN", "two words")
    assert "characters that no token has" in refused("admin", *asked)


def test_a_token_file_without_a_token_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    empty, pipe = tmp_path / "empty", tmp_path / "pipe"
    empty.write_text("\n", encoding="utf-8")
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="is empty; write the token into it"):
        read_token(empty)
    with pytest.raises(InputError, match="is a FIFO, socket or device; give a regular file"):
        read_token(pipe)


def test_where_no_daemon_runs(records: Path, ended_pid: int) -> None:
    assert "nothing was served" in refused("admin", "pause", "--yes")
    write_run(records, Made(ends=True))
    assert "has ended; start `migrator serve`" in failed("pause", "--yes")
    write_run(records, Made(pid=ended_pid))
    assert "was killed or crashed" in failed("pause", "--yes")
    write_run(records)
    assert "still starting" in failed("pause", "--yes")


def test_an_address_that_is_none() -> None:
    wrong = ("http://[::1", "http://host:99999", "http://host:port", "http://a b")
    for url in ("nonsense", "ftp://host", "http://", *wrong):
        assert "--url" in refused("admin", "pause", "--yes", "--url", url)
