"""The layouts of a page's charts in plotly's schema: axes, grid, margins; no data."""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from migrator.report.page import Areas, Axis, Bars, HeatMap, Lines, Slices
from migrator.report.page_numbers import axis_text

Figure = dict[str, Any]

INK, GREY, FAINT = "#222222", "#777777", "#E4E4E4"
_MOST_TICKS = 15


def base_layout(height: int) -> Figure:
    """What all charts have alike."""
    return {
        "height": height,
        "autosize": True,
        "margin": {"l": 8, "r": 12, "t": 12, "b": 16},
        "paper_bgcolor": "#FFFFFF",
        "plot_bgcolor": "#FFFFFF",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
        "showlegend": False,
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "#FFFFFF", "bordercolor": GREY, "font": {"color": INK}},
    }


def _category_axis(axis: Axis) -> Figure:
    look = {"type": "category", "automargin": True, "fixedrange": True, "linecolor": GREY}
    return look | {"title": {"text": safe(axis.title), "standoff": 10}, "showgrid": False}


def _value_axis(axis: Axis, *, titled: bool) -> Figure:
    return {
        "title": {"text": safe(axis_text(axis))} if titled else {"text": ""},
        "automargin": True,
        "rangemode": "tozero",
        "fixedrange": True,
        "tickformat": ".0%" if axis.share else "",
        "gridcolor": FAINT,
        "zerolinecolor": GREY,
        "nticks": 7,
        "separatethousands": True,
    }


def bars_layout(chart: Bars) -> Figure:
    """Categories along one axis, values along the other."""
    names = _category_axis(chart.x)
    values = _value_axis(chart.y, titled=chart.horizontal)
    if chart.horizontal:
        names |= {"autorange": "reversed", "title": {"text": ""}, "ticksuffix": " "}
    axes = {"yaxis": names, "xaxis": values} if chart.horizontal else {}
    axes = axes or {"xaxis": names, "yaxis": values}
    return axes | {"barmode": "stack" if chart.stacked else "group", "bargap": 0.25}


def _xy_layout(x: Axis, y: Axis) -> Figure:
    along = {
        "title": {"text": safe(axis_text(x))},
        "automargin": True,
        "showgrid": False,
        "zeroline": False,
        "linecolor": GREY,
        "ticks": "outside",
    }
    return {"xaxis": along, "yaxis": _value_axis(y, titled=False), "hovermode": "x unified"}


def lines_layout(chart: Lines) -> Figure:
    """A common x, ticks where the points are if there is room."""
    layout = _xy_layout(chart.x, chart.y)
    if chart.until is not None:
        layout["xaxis"] |= {"range": [chart.at[0] if chart.at else 0, chart.until]}
    elif _tickable(chart.at):
        layout["xaxis"] |= {"tickvals": list(chart.at)}
    return layout


def _tickable(at: Sequence[float]) -> bool:
    """Whether a tick at every point leaves room for its number, on a phone too."""
    gaps = [right - left for left, right in pairwise(at)]
    return not gaps or min(gaps) * _MOST_TICKS >= at[-1] - at[0]


def areas_layout(chart: Areas) -> Figure:
    """The same for stacked areas."""
    layout = _xy_layout(chart.x, chart.y)
    layout["xaxis"] |= {"range": [chart.at[0] if chart.at else 0, chart.until]}
    return layout


def heat_layout(chart: HeatMap) -> Figure:
    """Rows from the top down."""
    rows = _category_axis(chart.y) | {"autorange": "reversed", "ticksuffix": " "}
    untitled = {"title": {"text": ""}}
    return {"xaxis": _category_axis(chart.x) | untitled, "yaxis": rows | untitled}


def slices_layout(chart: Slices) -> Figure:
    """Memory slices over time."""
    time = Axis("time", "s")
    layout = _xy_layout(time, time)
    layout["xaxis"] |= {"range": [0, chart.until_s]}
    layout["yaxis"] = {
        "range": [0, chart.slices],
        "fixedrange": True,
        "automargin": True,
        "tickvals": [index + 0.5 for index in range(chart.slices)],
        "ticktext": [str(index) for index in range(chart.slices)],
        "showgrid": False,
        "zeroline": False,
    }
    return layout | {
        "barmode": "overlay",
        "hovermode": "closest",
        "uniformtext": {"mode": "hide", "minsize": 10},
    }


def safe(text: str) -> str:
    """Plotly reads a subset of HTML in every label; a name must not become markup."""
    return html.escape(text, quote=False)
