"""A placement drawn to a file: a page with every GPU, or a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from migrator.core.cluster import ClusterPlan, GpuPlacement
from migrator.io.whole_file import check_path, drawing_module, written_whole
from migrator.report.cluster_text import many, plan_words
from migrator.report.page import Axis, Lines, Page, Section, Series, Table
from migrator.report.page_html import write_page

HEADERS = ("GPU", "board", "node", "tenants", "goodput/s", "load")


def draw_placement(plan: ClusterPlan, path: Path, option: str = "--out") -> None:
    """Draw as HTML or PNG; a failure or Ctrl-C leaves no file that looks whole."""
    check_placement_path(path, option)
    if path.suffix.lower() == ".html":
        write_page(placement_page(plan), path, option)
        return
    write: Callable[[ClusterPlan, Path], None]
    write = drawing_module("migrator.report.cluster_png", option).write
    with written_whole(path, option) as unfinished:
        write(plan, unfinished)


def check_placement_path(path: Path, option: str = "--out") -> None:
    """InputError where the figure cannot go to `path`; to be asked before the work."""
    check_path(path, (".html", ".png"), option)


def by_board(plan: ClusterPlan) -> dict[str, list[GpuPlacement]]:
    """Board -> its GPUs, most goodput first."""
    found: dict[str, list[GpuPlacement]] = {}
    for each in sorted(plan.gpus, key=lambda gpu: -gpu.goodput_rps):
        found.setdefault(each.gpu.board.name, []).append(each)
    return found


def placement_page(plan: ClusterPlan) -> Page:
    """The page: goodput and load of every GPU, and who lives where."""
    total = sum(len(each.tenants) for each in plan.gpus)
    lead = (
        f"{many(total, 'tenant')} on {many(len(plan.gpus), 'GPU')}: {plan.goodput_rps:,.0f} "
        f"requests a second in time and correct, at most {plan.gap:.2%} below the best placement "
        "there is."
    )
    charts = (
        _ranked(plan, "Goodput", "requests/s", lambda each: each.goodput_rps, share=False),
        _ranked(plan, "Load", "", lambda each: each.load, share=True),
    )
    sections = (
        Section("GPUs", "gpus", tuple(plan_words(plan)), charts),
        Section("Who lives where", "placement", (), (_table(plan.gpus),)),
    )
    return Page(f"Placement of {plan.scenario}", lead, sections)


def _ranked(
    plan: ClusterPlan,
    title: str,
    unit: str,
    value: Callable[[GpuPlacement], float],
    *,
    share: bool,
) -> Lines:
    """The GPUs of every board side by side, most goodput first."""
    boards = by_board(plan)
    longest = max(map(len, boards.values()))
    series = tuple(
        Series(name, (*map(value, gpus), *((None,) * (longest - len(gpus)))))
        for name, gpus in boards.items()
    )
    at = tuple(float(rank) for rank in range(1, longest + 1))
    x = Axis("GPUs of a board, most goodput first")
    return Lines(title, at, series, x, Axis(title, unit, share), until=longest + 1.0)


def _table(gpus: Sequence[GpuPlacement]) -> Table:
    rows = tuple(
        (
            each.gpu.name,
            each.gpu.board.name,
            each.gpu.node or "-",
            ", ".join(each.tenants) or "-",
            f"{each.goodput_rps:,.0f}",
            f"{each.load:.0%}",
        )
        for each in gpus
    )
    return Table("Every GPU", HEADERS, rows, frozenset((4, 5)))
