"""Draws a plan into a file: slices over time, and each tenant's arrivals and goodput below.

The way in of the `plan_*` modules here: `plan_drawing` says what to draw, a writer per suffix
lays it out. The drawing libraries are loaded only when a figure is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from migrator.core.errors import InputError, MigratorError
from migrator.core.plan import Plan
from migrator.core.problem import Problem
from migrator.observe.plan_drawing import PlanDrawing, drawing_of

Writer = Callable[[PlanDrawing, Path], None]

_WRITERS = {".html": "migrator.observe.plan_html", ".png": "migrator.observe.plan_png"}


def draw_plan(problem: Problem, plan: Plan, path: Path) -> None:
    """Draw `plan` as HTML or PNG, by the suffix of `path`; a failure leaves no file behind."""
    check_figure_path(path)
    write = _writer(path.suffix.lower())
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        write(drawing_of(problem, plan), unfinished)
        unfinished.replace(path)
    except OSError as error:
        raise InputError(
            f"--figure: cannot write {path} ({error.strerror or error}); name another file"
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink()


def check_figure_path(path: Path) -> None:
    """InputError where a figure cannot go to `path`; to be asked before a long computation."""
    if path.suffix.lower() not in _WRITERS:
        raise InputError(f"--figure: {path.name!r} must end in {' or '.join(_WRITERS)}")
    if not path.parent.is_dir():
        raise InputError(f"--figure: {path.parent} is not a directory; create it first")


def _writer(suffix: str) -> Writer:
    try:
        write: Writer = import_module(_WRITERS[suffix]).write
    except ModuleNotFoundError as error:
        raise MigratorError(
            f"--figure needs {error.name}, which is not installed: pip install 'migrator[figures]'"
        ) from error
    return write
