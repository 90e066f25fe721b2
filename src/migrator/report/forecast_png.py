"""Forecasters compared as PNG: a panel per measure, bars per trace and forecaster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from migrator.report.forecast_report import MEASURES, ForecastRow, names_of
from migrator.report.page import paint_of
from migrator.report.page_charts import shade_of
from migrator.report.plan_png import STYLE

_DPI = 200
_PANEL = 1.9
_GROUP = 0.8
"""The part of a trace's place that its bars fill."""
_NOMINAL = 0.8
"""What an interval between the 10% and the 90% quantile should cover."""


def write(rows: Sequence[ForecastRow], path: Path) -> None:
    """Write the picture to `path`."""
    with mpl.rc_context(STYLE):
        _figure(rows).savefig(path, format="png", dpi=_DPI)


def _figure(rows: Sequence[ForecastRow]) -> Figure:
    traces, forecasters = names_of(rows)
    width = min(20.0, max(7.0, 0.25 * len(traces) * (len(forecasters) + 1)))
    figure = Figure(figsize=(width, 0.6 + _PANEL * len(MEASURES)), layout="constrained")
    panels = figure.subplots(len(MEASURES), 1, sharex=True, squeeze=False)[:, 0]
    for axes, measure in zip(panels, MEASURES, strict=True):
        _draw(axes, rows, measure)
    panels[-1].set_xticks(range(len(traces)), traces)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=min(6, len(forecasters)))
    return figure


def _draw(axes: Axes, rows: Sequence[ForecastRow], measure: str) -> None:
    traces, forecasters = names_of(rows)
    _, value = MEASURES[measure]
    bar = _GROUP / len(forecasters)
    for index, name in enumerate(forecasters):
        mine = {row.trace: value(row) for row in rows if row.forecaster == name}
        found = (mine.get(trace) for trace in traces)
        heights = [np.nan if each is None else each for each in found]
        left = np.arange(len(traces)) - _GROUP / 2 + (index + 0.5) * bar
        axes.bar(left, heights, 0.9 * bar, color=shade_of(paint_of(index)).fill, label=name)
    if measure == "coverage":
        axes.axhline(_NOMINAL, color="0.4", linewidth=0.8, linestyle="--")
    axes.set_ylabel("ms" if measure == "time" else measure)
