"""Objects in child processes: calls, answers, failures, losses, and the end of either process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import PYTHONPATH
from support.waiting import until

from migrator.core.errors import InputError
from migrator.io.object_process import CallFailedError, ObjectProcess
from migrator.io.processes import is_running
from migrator.io.spawn import ChildLostError

LIMIT_S = 60.0


class Counter:
    """Counts, and fails in several ways."""

    def __init__(self, first: int) -> None:
        self.number = first

    def add(self, more: int) -> int:
        self.number += more
        return self.number

    def environment(self, name: str) -> str | None:
        return os.environ.get(name)

    def pid(self) -> int:
        return os.getpid()

    def refuse(self) -> None:
        raise InputError("not like this") from KeyError("cause")

    def crash(self) -> None:
        sys.exit("the sky is falling")

    def killed(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def work(self, file: Path, seconds: float) -> None:
        file.write_text(str(os.getpid()), encoding="ascii")
        time.sleep(seconds)
        file.write_text("done", encoding="ascii")

    def answer_with(self, what: str) -> object:
        return Unreadable() if what == "unreadable" else threading.Lock()


class Unreadable:
    """Can be sent, and cannot be read."""

    def __reduce__(self) -> tuple[type[int], tuple[str]]:
        return int, ("no number",)


@contextmanager
def counter(**options: bool) -> Iterator[ObjectProcess]:
    process = ObjectProcess("the counter", Counter, 40, **options)  # type: ignore[arg-type]
    try:
        yield process
    finally:
        process.kill()


def test_calls_are_answered_in_order_and_the_process_outlives_those_that_fail() -> None:
    environment = {**os.environ, "MIGRATOR_TEST": "seen"}
    process = ObjectProcess("the counter", Counter, 40, environment=environment)

    def failure() -> CallFailedError:
        with pytest.raises(CallFailedError) as raised:
            process.answer(LIMIT_S)
        return raised.value

    for more in (1, 1, 10, "text"):
        process.call("add", more)
    assert [process.answer(LIMIT_S) for _ in range(3)] == [41, 42, 52]
    assert str(failure()).startswith("TypeError: unsupported operand")
    assert not process.has_answer()
    process.call("environment", "MIGRATOR_TEST")
    assert process.answer(LIMIT_S) == "seen"
    process.call("refuse")
    refused = failure()
    assert str(refused).startswith("not like this")
    assert {"InputError", "KeyError", "MigratorError"} <= refused.types
    assert "in refuse" in refused.__notes__[0]
    for what, why in (("unreadable", "answer cannot be read"), ("lock", "cannot pickle")):
        process.call("answer_with", what)
        assert why in str(failure())
    process.call("add", 1)
    assert process.answer(LIMIT_S) == 53
    assert process.alive
    process.end(LIMIT_S)
    assert not process.alive


def test_long_calls_and_answers_do_not_block_the_caller() -> None:
    process = ObjectProcess("an echo", str)
    content = "x" * 5_000_000
    process.call("join", [content])
    process.call("__add__", content)
    assert process.answer(LIMIT_S) == content
    assert process.answer(LIMIT_S) == content
    process.end(LIMIT_S)
    assert not process.alive


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("crash", "^the counter exited with 1: the sky is falling$"),
        ("killed", "^the counter was killed by SIGKILL$"),
    ],
)
def test_a_process_that_exits_is_lost_with_its_status_and_last_line(call: str, why: str) -> None:
    with counter(keeps_output=True) as process:
        process.call(call)
        with pytest.raises(ChildLostError, match=why):
            process.answer(LIMIT_S)
        assert not process.alive


def test_an_answer_that_does_not_come_in_time_is_an_error(tmp_path: Path) -> None:
    with counter() as process:
        process.call("work", tmp_path / "file", 600.0)
        with pytest.raises(ChildLostError, match=r"did not answer within 0\.1 s"):
            process.answer(0.1)


@pytest.mark.parametrize("finishes", [False, True])
def test_a_call_is_finished_after_the_parents_end_only_if_wanted(
    tmp_path: Path, finishes: bool
) -> None:
    file = tmp_path / "file"
    with counter(finishes_calls=finishes) as process:
        process.call("work", file, 1.0)
        pid = int(until(lambda: file.exists() and file.read_text(encoding="ascii")))
        process.hang_up()
        until(lambda: not is_running(pid))
        assert (file.read_text(encoding="ascii") == "done") == finishes


BEGUN = """
import time
from pathlib import Path
from io_objects import Counter
from migrator.io.object_process import ObjectProcess
process = ObjectProcess("the counter", Counter, 0)
process.call("pid")
print(process.answer(60), flush=True)
"""


@pytest.mark.parametrize("doing", ["busy", "killed"])
def test_it_ends_quietly_with_the_process_that_started_it(doing: str, tmp_path: Path) -> None:
    more = {
        "busy": "process.call('work', Path('busy'), 600.0)\ntime.sleep(0.2)",
        "killed": "process.call('add', 1)\ntime.sleep(600)",
    }[doing]
    module = f"from {__name__.rpartition('.')[2]} import Counter"
    code = BEGUN.replace("from io_objects import Counter", module) + more
    paths = os.pathsep.join([str(Path(__file__).parent), PYTHONPATH])
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        pid = int(parent.stdout.readline())
        if doing == "killed":
            parent.kill()
        until(lambda: not is_running(pid))
        assert "Traceback" not in parent.stderr.read()
