"""What all verbs share: JSON, errors, extras, progress, and the wait for the first compilation."""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from migrator.core.errors import InputError
from migrator.core.problem import Charge

BAD_INPUT, FAILED, REFUSED = 2, 1, 3
"""Exit codes; the last: a GPU refused, or is not as it should be."""

_SERVE = ("httptools", "msgspec", "prometheus_client", "starlette", "uvicorn")
_EXTRAS = {"serve": _SERVE, "cluster": (*_SERVE, "fsspec", "ray")}
"""Modules that verbs import at once; what only some scenarios need is checked where it is used."""


def require_extra(extra: str, what: str) -> None:
    """Raise InputError where a module of the extra is not installed; imports nothing."""
    if any(find_spec(each) is None for each in _EXTRAS[extra]):
        raise InputError(f"{what} needs the extra '{extra}': pip install 'migrator[{extra}]'")


def complain(sentence: str) -> None:
    """One sentence to the user."""
    print(f"error: {sentence}", file=sys.stderr)


def print_json(value: object) -> None:
    """The answer as JSON on one line."""
    print(json.dumps(value, allow_nan=False), flush=True)  # also where a process reads it


def compile_first(charge: Charge) -> None:
    """Tell a waiting user that the first plan on a machine compiles the kernels."""
    from migrator.plan.solve import ready

    words = "first use: compiling the planner, half a minute, once per installation"
    notice = threading.Timer(3.0, lambda: print(words, file=sys.stderr))
    notice.start()
    try:
        ready(charge)
    finally:
        notice.cancel()
    gc.freeze()
    gc.enable()


def warm(policies: Iterable[str]) -> None:
    """Compile or load what these policies plan with, and say so if it takes long."""
    from migrator.policies.policy import Sight
    from migrator.policies.registry import policy

    if any(policy(each).sight is not Sight.NOTHING for each in set(policies)):
        for charge in Charge:
            compile_first(charge)
    gc.enable()


@contextmanager
def progress(steps: int, what: str) -> Iterator[Callable[[], None]]:
    """A bar on the terminal that moves by one with every call; nothing where nobody watches."""
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
