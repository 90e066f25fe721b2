"""A placement as PNG: goodput and load of every GPU, board by board."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from migrator.core.cluster import ClusterPlan
from migrator.report.cluster_report import by_board
from migrator.report.page import paint_of
from migrator.report.page_charts import shade_of
from migrator.report.plan_png import STYLE

_DPI = 200
_NAMED = 24
"""Up to so many GPUs each has its name below it."""


def write(plan: ClusterPlan, path: Path) -> None:
    """Write the picture to `path`."""
    with mpl.rc_context(STYLE):
        _figure(plan).savefig(path, format="png", dpi=_DPI)


def _figure(plan: ClusterPlan) -> Figure:
    figure = Figure(figsize=(8.0, 4.4), layout="constrained")
    goodput, load = figure.subplots(2, 1, sharex=True)
    names: list[str] = []
    for index, (board, gpus) in enumerate(by_board(plan).items()):
        colour = shade_of(paint_of(index)).fill
        places = range(len(names), len(names) + len(gpus))
        goodput.bar(places, [each.goodput_rps for each in gpus], 0.9, color=colour, label=board)
        load.bar(places, [100 * each.load for each in gpus], 0.9, color=colour)
        names += [each.gpu.name for each in gpus]
    goodput.set_ylabel("goodput, requests/s")
    load.set_ylabel("load, %")
    load.set_xlabel("GPUs by board, most goodput first")
    if len(names) <= _NAMED:
        load.set_xticks(range(len(names)), names, rotation=30, ha="right")
    goodput.set_title(
        f"{plan.scenario}: {plan.goodput_rps:,.0f} requests/s, gap {plan.gap:.2%}", loc="left"
    )
    goodput.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)
    return figure
