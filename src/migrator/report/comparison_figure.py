"""Draws a comparison of policies into a file, as a page or a picture by its suffix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from migrator.core.comparison import Row
from migrator.core.errors import InputError
from migrator.io.whole_file import check_path, drawing_module, written_whole
from migrator.report.comparison_report import comparison_page
from migrator.report.page_html import write_page


def draw_comparison(rows: Sequence[Row], path: Path, option: str = "--figure") -> None:
    """Draw `rows` as HTML or PNG; a failure or Ctrl-C leaves no file that looks whole."""
    check_comparison_path(path, option)
    if not rows:
        raise InputError(f"{option}: there is nothing to draw; compare at least one policy")
    if path.suffix.lower() == ".html":
        write_page(comparison_page(rows), path, option)
        return
    write: Callable[[Sequence[Row], Path], None]
    write = drawing_module("migrator.report.comparison_png", option).write
    with written_whole(path, option) as unfinished:
        write(rows, unfinished)


def check_comparison_path(path: Path, option: str = "--figure") -> None:
    """InputError where a comparison cannot go to `path`; to be asked before the runs."""
    check_path(path, (".html", ".png"), option)
