"""Charts of a page in plotly's schema, as plain dictionaries.

Titles and legends are HTML beside the chart, where they wrap. Colours of words and grid come from
the style sheet, so that dark mode and print need no redrawing.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from migrator.report.page import (
    Axis,
    Bars,
    Chart,
    HeatMap,
    Lines,
    Series,
    Slab,
    Slices,
    band_floors,
    paints,
)
from migrator.report.paint import Paint, tenant_paint

Figure = dict[str, Any]

INK, GREY, FAINT = "#222222", "#777777", "#E4E4E4"
PAGE_INK = "#1C1C1C"
"""Text on translucent grey, through which the page shows: style sheets replace this colour by the
ink of the theme."""
_PALE_CIVIDIS = ((0.0, "#928C78"), (0.4, "#B7AB70"), (0.7, "#DAC661"), (1.0, "#FFE945"))
"""The light half of Cividis, on which `INK` is legible."""
_DASHES = {"color": GREY, "width": 1.2, "dash": "5px,3px"}
_HATCH = {"shape": "/", "size": 6, "solidity": 0.35}
_MOST_MARKERS = 40
_MOST_TICKS = 15
_MOST_CELLS = 400
"""Cells of a heat map that have room for their number."""


def height_of(chart: Chart) -> int:
    """The height of a chart in pixels."""
    match chart:
        case Bars(horizontal=True):
            bars = 1 if chart.stacked else len(chart.series)
            return 70 + len(chart.categories) * (12 + 16 * bars)
        case HeatMap():
            return 110 + 26 * len(chart.rows)
        case Slices():
            return 60 + 30 * chart.slices
        case _:
            return 300


def width_of(chart: Chart) -> int:
    """The width in pixels below which a chart scrolls instead of shrinking."""
    match chart:
        case HeatMap():
            return 150 + 38 * len(chart.columns)
        case Bars(horizontal=False):
            side_by_side = 1 if chart.stacked else len(chart.series)
            return 50 + len(chart.categories) * (6 + 6 * side_by_side)
        case _:
            return 0


def upright_title(chart: Chart) -> str | None:
    """What the vertical axis measures, written above it; None: it needs no words."""
    match chart:
        case Slices():
            return "memory slice"
        case HeatMap():
            return chart.z.label
        case Bars(horizontal=True):
            return None
        case _:
            return chart.y.label


def figure_of(chart: Chart) -> Figure:
    """Data and layout."""
    match chart:
        case Bars():
            data, layout = _bars(chart), _bars_layout(chart)
        case Lines():
            data, layout = _lines(chart), _lines_layout(chart)
        case HeatMap():
            data, layout = [_heat(chart)], _heat_layout(chart)
        case Slices():
            data, layout = _slices(chart), _slices_layout(chart)
    if isinstance(chart, Lines | Slices) and chart.linked:
        layout["meta"] = "linked"
    return {"data": data, "layout": _base_layout(height_of(chart)) | layout}


def _marker(paint: Paint) -> Figure:
    shade = paint.shade
    if not paint.hatched:
        return {"color": paint.fill, "line": {"width": 0}}
    pattern = _HATCH | {"fgcolor": shade.fill, "bgcolor": paint.ground, "fillmode": "overlay"}
    return {"color": paint.ground, "pattern": pattern, "line": {"color": shade.fill, "width": 1}}


def _clean(values: Sequence[float | None]) -> list[float | None]:
    """Six digits keep the page small; JSON has no NaN and no infinity."""
    return [
        None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
        for value in values
    ]


def _bars(chart: Bars) -> list[Figure]:
    pairs = zip(chart.series, paints(chart.series), strict=True)
    return [_bar_trace(chart, series, paint) for series, paint in pairs]


def _bar_trace(chart: Bars, series: Series, paint: Paint) -> Figure:
    along, across = ("y", "x") if chart.horizontal else ("x", "y")
    texts = [chart.y.text(value) for value in series.values]
    trace: Figure = {
        "type": "bar",
        "orientation": "h" if chart.horizontal else "v",
        "name": safe(series.name),
        along: [safe(category) for category in chart.categories],
        across: _clean(series.values),
        "marker": _marker(paint),
        "customdata": texts,
        "hovertemplate": f"%{{fullData.name}}<br>%{{{along}}}: %{{customdata}}<extra></extra>",
    }
    if series.half_widths is not None:
        look = {"color": INK, "thickness": 1.2, "width": 3}
        trace[f"error_{across}"] = look | {"type": "data", "array": _clean(series.half_widths)}
    elif chart.horizontal and len(chart.series) == 1 and chart.series[0].half_widths is None:
        trace |= {"text": texts, "textposition": "auto", "cliponaxis": False}
    return trace


def _lines(chart: Lines) -> list[Figure]:
    if chart.stacked:
        pairs = zip(chart.series, paints(chart.series), strict=True)
        return [_area(chart, *pair) for pair in pairs]
    at: list[float | None] = _clean(chart.at)
    steps = chart.until is not None
    # a noisy line would hide the forecast below it
    faint = steps and any(row.dashed for row in chart.series)
    mode = "lines" if steps or len(at) > _MOST_MARKERS else "lines+markers"
    traces, floors = [], band_floors(chart.series)
    for number, (series, paint) in enumerate(zip(chart.series, paints(chart.series), strict=True)):
        values = _clean(series.values)
        trace: Figure = {
            "type": "scatter",
            "mode": mode,
            "name": safe(series.name),
            "x": [*at, chart.until] if steps else at,
            "y": [*values, values[-1]] if steps else values,
            "line": {
                "color": paint.fill if paint.light else paint.shade.dark,
                "width": 2.4 if series.dashed else 1.0 if faint else 1.6,
                "dash": "4px,3px" if series.dashed else "solid",
                "shape": "hv" if steps else "linear",
            },
            "opacity": 0.6 if faint and not series.dashed else 1,
            "hovertemplate": _hover(chart.y),
        }
        if series.filled or number in floors:
            trace |= {"mode": "lines", "opacity": 1, "line": trace["line"] | {"width": 0}}
        if series.filled:
            trace |= {"fill": "tonexty", "fillcolor": paint.fill}
        if series.area:
            trace |= {"fill": "tozeroy", "fillcolor": paint.shade.fill + "90"}
            trace |= {"opacity": 1, "line": trace["line"] | {"width": 0}}
        traces.append(trace)
    # dashed ones last, so on top
    return sorted(traces, key=lambda trace: trace["line"]["dash"] != "solid")


def _hover(axis: Axis) -> str:
    return "%{y:.1%}" if axis.share else "%{y:,.4~g} " + safe(axis.unit)


def _area(chart: Lines, series: Series, paint: Paint) -> Figure:
    values = [value or 0.0 for value in _clean(series.values)]
    shade = paint.shade
    trace: Figure = {
        "type": "scatter",
        "mode": "lines",
        "name": safe(series.name),
        "stackgroup": "one",
        "x": [*_clean(chart.at), chart.until],
        "y": [*values, values[-1]],
        "line": {"shape": "hv", "width": 0.5, "color": shade.fill},
        "fillcolor": paint.fill,
        "hovertemplate": _hover(chart.y),
    }
    if paint.hatched:
        trace["fillpattern"] = _HATCH | {"fgcolor": shade.fill, "bgcolor": shade.light}
    return trace


def _heat(chart: HeatMap) -> Figure:
    cells = len(chart.rows) * len(chart.columns)
    trace: Figure = {
        "type": "heatmap",
        "x": [safe(column) for column in chart.columns],
        "y": [safe(row) for row in chart.rows],
        "z": [_clean(value) for value in chart.values],
        "customdata": [[chart.z.text(value) for value in row] for row in chart.values],
        "hovertemplate": "%{y}<br>%{x}: %{customdata}<extra></extra>",
        "colorscale": "Cividis",
        "xgap": 1,
        "ygap": 1,
        "showscale": cells > _MOST_CELLS,
        "colorbar": {
            "thickness": 12,
            "outlinewidth": 0,
            "tickformat": ".0%" if chart.z.share else "",
        },
    }
    if cells <= _MOST_CELLS:
        trace["texttemplate"] = "%{z:.0%}" if chart.z.share else "%{z:.3~g}"
        trace |= {"colorscale": _PALE_CIVIDIS, "textfont": {"color": INK}}
    return trace


def _slices(chart: Slices) -> list[Figure]:
    traces = []
    for name, paint in chart.keys:
        traces.append(_slab_trace(name, paint, [slab for slab in chart.slabs if slab.name == name]))
    return [*traces, *_retrained_traces(chart)]


def _retrained_traces(chart: Slices) -> list[Figure]:
    """Dashed lines where retrained models take over, the tenant's colour at their head."""
    traces = []
    for tenant, at_s in chart.retrained:
        colour = tenant_paint(chart.place(tenant)).shade.fill
        head = {"symbol": "triangle-down", "size": [0, 11], "color": colour, "opacity": 1}
        traces.append(
            {"type": "scatter", "x": [at_s, at_s], "y": [0, chart.slices], "line": _DASHES}
            | {"mode": "lines+markers", "marker": head | {"line": {"color": INK, "width": 0.8}}}
            | {"cliponaxis": False, "hoverinfo": "text"}
            | {"hovertext": f"<b>{safe(tenant)}</b><br>retrained at {at_s:g} s"}
        )
    return traces


def _slab_trace(name: str, paint: Paint, slabs: Sequence[Slab]) -> Figure:
    marker = _marker(paint)
    if not paint.hatched:
        marker["line"] = {"color": "#FFFFFF", "width": 0.5}
    ink = INK if paint.hatched or paint.light else paint.shade.ink
    if paint.hue is None:
        ink = PAGE_INK
    return {
        "type": "bar",
        "orientation": "h",
        "name": safe(name),
        "base": _clean([slab.from_s for slab in slabs]),
        "x": _clean([slab.until_s - slab.from_s for slab in slabs]),
        "y": [slab.start + slab.width / 2 for slab in slabs],
        "width": [slab.width - 0.1 for slab in slabs],
        "text": [safe(slab.size) for slab in slabs],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "insidetextfont": {"color": ink},
        "hovertext": [
            f"<b>{safe(name)}</b><br>{safe(slab.note or slab.size)}"
            f"<br>{round(slab.from_s, 1):g}-{round(slab.until_s, 1):g} s"
            for slab in slabs
        ],
        "hoverinfo": "text",
        "marker": marker,
    }


def _base_layout(height: int) -> Figure:
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
        "title": {"text": safe(axis.label)} if titled else {"text": ""},
        "automargin": True,
        "rangemode": "tozero",
        "fixedrange": True,
        "tickformat": ".0%" if axis.share else "",
        "gridcolor": FAINT,
        "zerolinecolor": GREY,
        "nticks": 7,
        "separatethousands": True,
    }


def _bars_layout(chart: Bars) -> Figure:
    names = _category_axis(chart.x)
    values = _value_axis(chart.y, titled=chart.horizontal)
    if chart.horizontal:
        names |= {"autorange": "reversed", "title": {"text": ""}, "ticksuffix": " "}
    axes = {"yaxis": names, "xaxis": values} if chart.horizontal else {}
    axes = axes or {"xaxis": names, "yaxis": values}
    layout: Figure = axes | {"barmode": "stack" if chart.stacked else "group", "bargap": 0.25}
    if chart.mark is not None:
        layout["shapes"] = [_dashed("x" if chart.horizontal else "y", chart.mark)]
    return layout


def _dashed(axis: str, at: float) -> Figure:
    """A dashed line across the chart at a value of one axis."""
    across = "y" if axis == "x" else "x"
    place = {f"{axis}0": at, f"{axis}1": at, f"{across}0": 0, f"{across}1": 1}
    return place | {"type": "line", f"{across}ref": "paper", "line": _DASHES}


def _xy_layout(x: Axis, y: Axis) -> Figure:
    along = {
        "title": {"text": safe(x.label)},
        "automargin": True,
        "showgrid": False,
        "zeroline": False,
        "linecolor": GREY,
        "ticks": "outside",
    }
    return {"xaxis": along, "yaxis": _value_axis(y, titled=False), "hovermode": "x unified"}


def _lines_layout(chart: Lines) -> Figure:
    """Ticks are at the points if there is room."""
    layout = _xy_layout(chart.x, chart.y)
    layout["shapes"] = [_dashed("x", mark) for mark in chart.marks]
    if chart.y_range is not None:
        layout["yaxis"] |= {"range": list(chart.y_range)}
    if chart.until is not None:
        layout["xaxis"] |= {"range": [chart.at[0] if chart.at else 0, chart.until]}
    elif _tickable(chart.at):
        layout["xaxis"] |= {"tickvals": list(chart.at)}
    return layout


def _tickable(at: Sequence[float]) -> bool:
    """Whether a tick at every point leaves room for its number, also on a phone."""
    gaps = [right - left for left, right in pairwise(at)]
    return not gaps or min(gaps) * _MOST_TICKS >= at[-1] - at[0]


def _heat_layout(chart: HeatMap) -> Figure:
    rows = _category_axis(chart.y) | {"autorange": "reversed", "ticksuffix": " "}
    untitled = {"title": {"text": ""}}
    return {"xaxis": _category_axis(chart.x) | untitled, "yaxis": rows | untitled}


def _slices_layout(chart: Slices) -> Figure:
    time = Axis("time", "s")
    layout = _xy_layout(time, time)
    layout["xaxis"] |= {"range": [0, chart.until_s]}
    layout["yaxis"] = {
        "range": [0, chart.slices],
        "fixedrange": True,
        "automargin": True,
        "tickvals": [index + 0.5 for index in range(chart.slices)],
        "ticktext": [*map(str, range(chart.slices))],
        "showgrid": False,
        "zeroline": False,
    }
    return layout | {
        "barmode": "overlay",
        "hovermode": "closest",
        "uniformtext": {"mode": "hide", "minsize": 10},
    }


def safe(text: str) -> str:
    """Escaped: plotly reads a subset of HTML in every label."""
    return html.escape(text, quote=False)
