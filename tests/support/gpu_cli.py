"""`migrator ...` called as its users do, but in this process: output and exit code."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typer.main import get_command

from migrator.cli import app, main


@dataclass(frozen=True)
class Answer:
    """What a verb printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one line of JSON it printed."""
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)

    @property
    def refusal(self) -> str:
        """The one sentence with which it refused."""
        errors = [line for line in self.err.splitlines() if not line.startswith("note: ")]
        assert len(errors) == 1, self.err
        assert errors[0].startswith("error: ")
        assert self.out == ""
        return errors[0].removeprefix("error: ")

    @property
    def bad_input(self) -> str:
        """The refusal of its input, and nothing beside it."""
        assert (self.code, self.err.count("\n")) == (2, 1), self.err
        return self.refusal


@cache
def _command() -> Any:
    """The command line, built once: a process of its own builds it for one call."""
    return get_command(app)


def gpu(*arguments: str | Path) -> Answer:
    """`migrator gpu WORDS`."""
    return migrator("gpu", *arguments)


def answered(*arguments: object, **variables: str) -> Any:
    """What a verb says as JSON."""
    done = migrator(*arguments, "--json", **variables)
    assert done.code == 0, done.err
    return json.loads(done.out)


def refused(*arguments: object, **variables: str) -> str:
    """The one sentence with which a verb refuses its input."""
    return migrator(*arguments, **variables).bad_input


def migrator(*arguments: object, **variables: str) -> Answer:
    """`migrator WORDS` with these environment variables."""
    out, err = StringIO(), StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)}
    code: Any = 0
    try:
        argv = patch.object(sys, "argv", ["migrator", *map(str, arguments)])
        # the module, whose name its package gives to the Typer object
        module = sys.modules["migrator.cli.app"]
        command = patch.object(module, "app", _command())
        environment = patch.dict(os.environ, variables)
        with argv, command, environment, redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as done:
        code = done.code
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert isinstance(code, int)
    return Answer(code, out.getvalue(), err.getvalue())
