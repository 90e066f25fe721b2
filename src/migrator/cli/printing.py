"""Output shared by the verbs: JSON, errors, confirmation, progress, compilation notices."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import typer

from migrator.core.errors import InputError
from migrator.core.problem import Charge

BAD_INPUT, FAILED, REFUSED = 2, 1, 3
"""Exit codes. REFUSED: the GPU driver refused, or the GPU is not in the expected state."""

_SERVE = ("httptools", "msgspec", "prometheus_client", "starlette", "uvicorn")
_EXTRAS = {"serve": _SERVE, "cluster": (*_SERVE, "fsspec", "ray")}
"""Extra -> modules that its verbs always import."""


def require_extra(extra: str, what: str) -> None:
    """InputError if a module of the extra is not installed; imports nothing."""
    if any(find_spec(each) is None for each in _EXTRAS[extra]):
        raise InputError(f"{what} needs the extra '{extra}': pip install 'migrator[{extra}]'")


def complain(sentence: str) -> None:
    """Print an error message to standard error."""
    print(f"error: {sentence}", file=sys.stderr)


def require_confirmation(yes: bool) -> None:
    """InputError if confirmation is needed and there is no terminal to ask on."""
    if not yes and not sys.stdin.isatty():
        raise InputError("--yes: no terminal to confirm on; pass --yes")


def confirm(consequence: str, yes: bool) -> None:
    """Ask on standard error whether to continue, unless `yes`; exit code 1 if not confirmed."""
    if yes:
        return
    print(f"{consequence} Do it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        complain("nothing was done; it was not confirmed")
        raise typer.Exit(FAILED)


def say(words: str) -> None:
    """Print a progress line to standard error, unbuffered."""
    print(words, file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Print a value as JSON on one line."""
    print(json.dumps(value, allow_nan=False), flush=True)  # flush: a process may be reading


def compile_first(charge: Charge) -> None:
    """Load the planner's kernels; print a notice if they have to be compiled first."""
    from migrator.plan.kernels import is_compiled
    from migrator.plan.solve import ready

    if not is_compiled(charge):
        say("first use: compiling the planner, half a minute, once per installation")
    ready(charge)
    gc.freeze()
    gc.enable()


def warm(policies: Iterable[str]) -> None:
    """Load the planners of these policies; print a notice if they have to be compiled first."""
    from migrator.policies.policy import Sight
    from migrator.policies.registry import policy

    if any(policy(each).sight is not Sight.NOTHING for each in set(policies)):
        for charge in Charge:
            compile_first(charge)
    gc.enable()


@contextmanager
def progress(steps: int, what: str) -> Iterator[Callable[[], None]]:
    """A progress bar that advances with every call; none if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=steps)
        yield lambda: bar.advance(task)
