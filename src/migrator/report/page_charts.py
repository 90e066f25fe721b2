"""A page's charts in plotly's schema, as plain dictionaries.

Titles and legends are HTML beside the chart, where they wrap; colours of words and grid are
the style sheet's, so that dark mode and print need no redrawing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from migrator.report.page import (
    Areas,
    Axis,
    Bars,
    Chart,
    HeatMap,
    Lines,
    Paint,
    Series,
    Slab,
    Slices,
    paint_of,
)
from migrator.report.page_layouts import (
    INK,
    Figure,
    areas_layout,
    bars_layout,
    base_layout,
    heat_layout,
    lines_layout,
    safe,
    slices_layout,
)
from migrator.report.page_numbers import axis_text, value_text
from migrator.report.plan_palette import Shade, shades

_GREYS = Shade(fill="#9A9A9A", light="rgba(140,140,140,0.25)", dark="#5A5A5A", ink="#1A1A1A")
_HATCH = {"shape": "/", "size": 6, "solidity": 0.35}
_MOST_MARKERS = 40
_MOST_CELLS = 400
"""Cells of a heat map that still have room for their number."""


def shade_of(paint: Paint) -> Shade:
    """The tones behind a look."""
    return _GREYS if paint.hue is None else shades(paint.hue + 1)[paint.hue]


def legend_of(chart: Chart) -> tuple[tuple[str, Paint, bool], ...]:
    """Name, look and whether it is a dashed line, of everything the legend explains."""
    if isinstance(chart, HeatMap):
        return ()
    if isinstance(chart, Slices):
        return tuple((name, paint, False) for name, paint in chart.keys)
    if len(chart.series) == 1:
        return ()
    floors = _floors(chart.series)
    return tuple(
        (each.filled or each.name, paint, each.dashed)
        for at, (each, paint) in enumerate(zip(chart.series, _paints(chart.series), strict=True))
        if at not in floors
    )


def _floors(series: Sequence[Series]) -> set[int]:
    """Those that are only the lower edge of a band."""
    return {at - 1 for at, each in enumerate(series) if each.filled}


def height_of(chart: Chart) -> int:
    """Pixels that the chart needs to be read."""
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
    """Pixels below which the chart scrolls in its box rather than shrink."""
    match chart:
        case HeatMap():
            return 150 + 38 * len(chart.columns)
        case Bars(horizontal=False):
            side_by_side = 1 if chart.stacked else len(chart.series)
            return 50 + len(chart.categories) * (6 + 6 * side_by_side)
        case _:
            return 0


def upright_title(chart: Chart) -> str | None:
    """What the upright axis measures, to stand above it; None where it needs no words."""
    match chart:
        case Slices():
            return "memory slice"
        case HeatMap():
            return axis_text(chart.z)
        case Bars(horizontal=True):
            return None
        case _:
            return axis_text(chart.y)


def figure_of(chart: Chart) -> Figure:
    """Data and layout."""
    match chart:
        case Bars():
            data, layout = _bars(chart), bars_layout(chart)
        case Lines():
            data, layout = _lines(chart), lines_layout(chart)
        case Areas():
            data, layout = _areas(chart), areas_layout(chart)
        case HeatMap():
            data, layout = [_heat(chart)], heat_layout(chart)
        case Slices():
            data, layout = _slices(chart), slices_layout(chart)
    return {"data": data, "layout": base_layout(height_of(chart)) | layout}


def _paints(series: Sequence[Series]) -> list[Paint]:
    return [each.paint or paint_of(index) for index, each in enumerate(series)]


def _fill(paint: Paint) -> str:
    shade = shade_of(paint)
    return shade.light if paint.light else shade.fill


def _marker(paint: Paint) -> Figure:
    shade = shade_of(paint)
    if not paint.hatched:
        return {"color": _fill(paint), "line": {"width": 0}}
    ground = "#FFFFFF" if paint.light else shade.light
    pattern = _HATCH | {"fgcolor": shade.fill, "bgcolor": ground, "fillmode": "overlay"}
    return {"color": ground, "pattern": pattern, "line": {"color": shade.fill, "width": 1}}


def _clean(values: Sequence[float | None]) -> list[float | None]:
    """Few enough digits to keep the page small, and nothing JSON cannot say."""
    return [
        None if each is None or not math.isfinite(each) else float(f"{each:.6g}") for each in values
    ]


def _bars(chart: Bars) -> list[Figure]:
    traces = []
    names = [safe(each) for each in chart.categories]
    along, across = ("y", "x") if chart.horizontal else ("x", "y")
    for series, paint in zip(chart.series, _paints(chart.series), strict=True):
        said = [value_text(each, chart.y) for each in series.values]
        trace: Figure = {
            "type": "bar",
            "orientation": "h" if chart.horizontal else "v",
            "name": safe(series.name),
            along: names,
            across: _clean(series.values),
            "marker": _marker(paint),
            "customdata": said,
            "hovertemplate": f"%{{fullData.name}}<br>%{{{along}}}: %{{customdata}}<extra></extra>",
        }
        if series.half_widths is not None:
            trace[f"error_{across}"] = _error(series.half_widths)
        elif chart.horizontal and len(chart.series) == 1:
            trace |= {"text": said, "textposition": "auto", "cliponaxis": False}
        traces.append(trace)
    return traces


def _error(half_widths: Sequence[float | None]) -> Figure:
    return {
        "type": "data",
        "array": _clean(half_widths),
        "color": INK,
        "thickness": 1.2,
        "width": 3,
    }


def _lines(chart: Lines) -> list[Figure]:
    at: list[float | None] = _clean(chart.at)
    steps = chart.until is not None
    # A noisy line over its expectation would hide it.
    veiled = steps and any(each.dashed for each in chart.series)
    mode = "lines" if steps or len(at) > _MOST_MARKERS else "lines+markers"
    traces, floors = [], _floors(chart.series)
    for number, (series, paint) in enumerate(zip(chart.series, _paints(chart.series), strict=True)):
        values = _clean(series.values)
        trace: Figure = {
            "type": "scatter",
            "mode": mode,
            "name": safe(series.name),
            "x": [*at, chart.until] if steps else at,
            "y": [*values, values[-1]] if steps else values,
            "line": {
                "color": _fill(paint),
                "width": 2.4 if series.dashed else 1.0 if veiled else 1.6,
                "dash": "4px,3px" if series.dashed else "solid",
                "shape": "hv" if steps else "linear",
            },
            "opacity": 0.6 if veiled and not series.dashed else 1,
            "hovertemplate": _hover(chart.y),
        }
        if series.half_widths is not None:
            trace["error_y"] = _error(series.half_widths)
        if series.filled or number in floors:
            trace |= {"mode": "lines", "opacity": 1, "line": trace["line"] | {"width": 0}}
        if series.filled:
            trace |= {"fill": "tonexty", "fillcolor": _fill(paint)}
        traces.append(trace)
    # Dashed ones last, so on top.
    return sorted(traces, key=lambda trace: trace["line"]["dash"] != "solid")


def _hover(axis: Axis) -> str:
    return "%{y:.1%}" if axis.share else "%{y:,.4~g} " + safe(axis.unit)


def _areas(chart: Areas) -> list[Figure]:
    traces = []
    for series, paint in zip(chart.series, _paints(chart.series), strict=True):
        values = [each or 0.0 for each in _clean(series.values)]
        shade = shade_of(paint)
        trace: Figure = {
            "type": "scatter",
            "mode": "lines",
            "name": safe(series.name),
            "stackgroup": "one",
            "x": [*_clean(chart.at), chart.until],
            "y": [*values, values[-1]],
            "line": {"shape": "hv", "width": 0.5, "color": shade.fill},
            "fillcolor": _fill(paint),
            "hovertemplate": _hover(chart.y),
        }
        if paint.hatched:
            trace["fillpattern"] = _HATCH | {"fgcolor": shade.fill, "bgcolor": shade.light}
        traces.append(trace)
    return traces


def _heat(chart: HeatMap) -> Figure:
    cells = len(chart.rows) * len(chart.columns)
    trace: Figure = {
        "type": "heatmap",
        "x": [safe(each) for each in chart.columns],
        "y": [safe(each) for each in chart.rows],
        "z": [_clean(each) for each in chart.values],
        "customdata": [[value_text(each, chart.z) for each in row] for row in chart.values],
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
    return trace


def _slices(chart: Slices) -> list[Figure]:
    traces = []
    for index, (name, paint) in enumerate(chart.keys):
        slabs = [each for each in chart.slabs if each.key == index]
        if slabs:
            traces.append(_slab_trace(name, paint, slabs))
    if chart.starts:
        traces.append(_start_marks(chart.starts))
    return traces


def _slab_trace(name: str, paint: Paint, slabs: Sequence[Slab]) -> Figure:
    marker = _marker(paint)
    if not paint.hatched:
        marker["line"] = {"color": "#FFFFFF", "width": 0.5}
    ink = INK if paint.hatched or paint.light else shade_of(paint).ink
    return {
        "type": "bar",
        "orientation": "h",
        "name": safe(name),
        "base": _clean([each.from_s for each in slabs]),
        "x": _clean([each.until_s - each.from_s for each in slabs]),
        "y": [each.start + each.width / 2 for each in slabs],
        "width": [each.width - 0.1 for each in slabs],
        "text": [safe(each.label) for each in slabs],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "insidetextfont": {"color": ink},
        "hovertext": [
            f"<b>{safe(name)}</b><br>{safe(each.label)}<br>{each.from_s:g}-{each.until_s:g} s"
            for each in slabs
        ],
        "hoverinfo": "text",
        "marker": marker,
    }


def _start_marks(starts: Sequence[tuple[float, float]]) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [at for at, _ in starts],
        "y": [where for _, where in starts],
        "marker": {"symbol": "triangle-right", "size": 11, "color": "#FFFFFF"}
        | {"line": {"color": INK, "width": 1}},
        "hoverinfo": "skip",
        "cliponaxis": False,
    }
