"""Draws a plan into a file: slices over time, and each tenant's arrivals and goodput below.

The way in of the `plan_*` modules here: `plan_drawing` says what to draw, a writer per suffix
lays it out. The drawing libraries are loaded only when a figure is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from migrator.core.plan import Plan
from migrator.core.problem import Problem
from migrator.io.whole_file import check_path, drawing_module, written_whole
from migrator.report.plan_drawing import PlanDrawing, drawing_of

Writer = Callable[[PlanDrawing, Path], None]

_OPTION = "--figure"
_WRITERS = {".html": "migrator.report.plan_html", ".png": "migrator.report.plan_png"}


def draw_plan(problem: Problem, plan: Plan, path: Path) -> None:
    """Draw `plan` as HTML or PNG, by the suffix of `path`; a failure leaves no file behind."""
    check_figure_path(path)
    write: Writer = drawing_module(_WRITERS[path.suffix.lower()], _OPTION).write
    with written_whole(path, _OPTION) as unfinished:
        write(drawing_of(problem, plan), unfinished)


def check_figure_path(path: Path) -> None:
    """InputError where a figure cannot go to `path`; to be asked before a long computation."""
    check_path(path, _WRITERS, _OPTION)
