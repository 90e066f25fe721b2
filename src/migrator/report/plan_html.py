"""A plan's picture as one HTML page that needs no network: zoom in time, hover for details."""

from __future__ import annotations

import html
import json
import math
from pathlib import Path

from plotly.offline import get_plotlyjs

from migrator.report.plan_blocks import short
from migrator.report.plan_drawing import Key, PlanDrawing, panel_range, result
from migrator.report.plan_series import TenantSeries
from migrator.report.plan_traces import (
    DASHES,
    GREY,
    HATCH,
    INK,
    Trace,
    block_traces,
    change_traces,
    completion_traces,
    panel_traces,
    safe,
)

_TITLE, _LEGEND_ROW, _SLICE, _RUG, _PANEL, _GAP, _BOTTOM = 66, 22, 36, 11, 100, 40, 48
_LEFT, _RIGHT, _NARROWEST = 76, 24, 1000
_FAINT = "#E8E8E8"
_BUTTONS = ["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]
"""Named one by one: some of plotly's default ones lead to its servers."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
html {{ overflow-y: scroll; }}
body {{ margin: 0; background: Canvas; }}
#plan {{ min-width: {narrowest}px; max-width: 1600px; margin: 0 auto; background: #fff; }}
</style>
<script>{library}</script>
</head>
<body>
<div id="plan"></div>
<script>
const figure = {figure};
Plotly.newPlot("plan", figure.data, figure.layout, figure.config);
</script>
</body>
</html>
"""


def write(drawing: PlanDrawing, path: Path) -> None:
    """Write the page to `path`."""
    # "</script>" inside a script would end it; in JSON "<\/" says the same.
    figure = json.dumps(figure_of(drawing), separators=(",", ":")).replace("</", "<\\/")
    page = _PAGE.format(
        title=html.escape(drawing.headline),
        narrowest=_NARROWEST,
        library=get_plotlyjs(),
        figure=figure,
    )
    path.write_text(page, encoding="utf-8")


def figure_of(drawing: PlanDrawing) -> Trace:
    """The whole figure in plotly's schema: data, layout, config."""
    top = _board_tall(drawing) / _SLICE
    traces = [*block_traces(drawing), *change_traces(drawing, _RUG / _SLICE)]
    traces += completion_traces(drawing, top)
    for index, series in enumerate(drawing.tenants):
        panel = panel_traces(drawing, series, drawing.shades[index])
        traces += [trace | {"yaxis": f"y{index + 2}"} for trace in panel]
    return {
        "data": [*traces, *_keys(drawing)],
        "layout": _layout(drawing),
        "config": {"displaylogo": False, "responsive": True, "modeBarButtons": [_BUTTONS]},
    }


def _board_tall(drawing: PlanDrawing) -> float:
    """The pixels of the top panel: its slices, and the rows of ticks where there are changes."""
    return _SLICE * drawing.slices + _RUG * len(drawing.tenants) * drawing.has_changes


def _keys(drawing: PlanDrawing) -> list[Trace]:
    """Traces without data that only stand in the second legend."""
    looks = {
        Key.SERVING: _patch({"color": "#8C8C8C"}),
        Key.COLD: _patch({"color": "#D6D6D6"}),
        Key.RETRAINING: _patch({"pattern": HATCH | {"fgcolor": GREY, "bgcolor": "#EEEEEE"}}),
        Key.UNUSED: _patch({"color": "#FFFFFF", "line": {"color": "#AAAAAA", "width": 1}}),
        Key.RETRAINED: _stroke(DASHES),
        Key.ARRIVALS: _stroke({"color": INK, "width": 1.2}),
        Key.BAND: _patch({"color": "#D4D4D4"}),
        Key.CAPABILITY: _stroke({"color": GREY, "width": 1}),
        Key.GOODPUT: _patch({"color": "#B5B5B5"}),
    }
    return [looks[key] | {"name": str(key), "legend": "legend2"} for key in drawing.keys]


def _patch(marker: Trace) -> Trace:
    return {"type": "bar", "x": [None], "y": [None], "marker": marker}


def _stroke(line: Trace) -> Trace:
    return {"type": "scatter", "mode": "lines", "x": [None], "y": [None], "line": line}


def _layout(drawing: PlanDrawing) -> Trace:
    tenant_rows = _legend_rows([short(each.name) for each in drawing.tenants])
    legend_rows = tenant_rows + _legend_rows([str(key) for key in drawing.keys])
    above = _TITLE + _LEGEND_ROW * legend_rows + 14
    tall = _board_tall(drawing) + (_GAP + _PANEL) * len(drawing.tenants)
    height = above + tall + _BOTTOM
    fixed = {"itemclick": False, "itemdoubleclick": False}
    return {
        "height": height,
        "margin": {"l": _LEFT, "r": _RIGHT, "t": above, "b": _BOTTOM},
        "font": {"family": "Helvetica, Arial, sans-serif", "size": 12, "color": INK},
        "paper_bgcolor": "#FFFFFF",
        "plot_bgcolor": "#FFFFFF",
        "barmode": "overlay",
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "#FFFFFF", "bordercolor": GREY, "font": {"color": INK}},
        "uniformtext": {"mode": "hide", "minsize": 10},
        "title": _title(drawing, height),
        "legend": _legend(1 - _TITLE / height),
        "legend2": _legend(1 - (_TITLE + _LEGEND_ROW * tenant_rows) / height) | fixed,
        "shapes": [_rule(boundary) for boundary in range(drawing.slices + 1)],
        "xaxis": _time_axis(drawing),
        "yaxis": _slice_axis(drawing, 1 - _board_tall(drawing) / tall),
        **_panels(drawing, tall),
    }


def _panels(drawing: PlanDrawing, tall: float) -> Trace:
    """An axis and a heading per tenant, below the board."""
    axes: Trace = {}
    headings: list[Trace] = []
    for index, (series, shade) in enumerate(zip(drawing.tenants, drawing.shades, strict=True)):
        bottom = 1 - (_board_tall(drawing) + (_GAP + _PANEL) * (index + 1)) / tall
        top = bottom + _PANEL / tall
        axes[f"yaxis{index + 2}"] = _requests_axis(series, max(0.0, bottom), top)
        name = f"<b>{safe(short(series.name))}</b>"
        headings.append(_heading(name, 0, top, {"size": 13, "color": shade.dark}))
        words = result(series, drawing.slot_s)
        headings.append(_heading(words, 1, top, {"size": 12, "color": "#444444"}))
    return axes | {"annotations": headings}


def _heading(text: str, side: int, y: float, font: Trace) -> Trace:
    anchor = {"xref": "paper", "yref": "paper", "x": side, "y": y, "yanchor": "bottom"}
    anchor["xanchor"] = "right" if side else "left"
    return {"text": text, "showarrow": False, "font": font, "xshift": 0, "yshift": 2} | anchor


def _legend_rows(names: list[str]) -> int:
    """How many rows a legend takes on the narrowest page."""
    wide = sum(6.5 * len(name) + 50 for name in names)
    return math.ceil(wide / (_NARROWEST - _LEFT - _RIGHT))


def _legend(top: float) -> Trace:
    place = {"x": 0, "xanchor": "left", "y": top, "yanchor": "top", "yref": "container"}
    return place | {"orientation": "h", "bgcolor": "rgba(0,0,0,0)"}


def _title(drawing: PlanDrawing, height: float) -> Trace:
    second = f'<span style="font-size:13px;color:#444444">{drawing.verdict}</span>'
    return {
        "text": f"<b>{safe(drawing.headline)}</b><br>{second}",
        "font": {"size": 16},
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": 1 - 26 / height,
        "yref": "container",
        "yanchor": "top",
    }


def _time_axis(drawing: PlanDrawing) -> Trace:
    pointer = {"showspikes": True, "spikemode": "across", "spikethickness": 1}
    pointer |= {"spikedash": "dot", "spikecolor": GREY, "spikesnap": "cursor"}
    return {
        "title": {"text": "time (s)", "standoff": 8},
        "anchor": f"y{len(drawing.tenants) + 1}",
        "range": [0, drawing.window_s],
        "minallowed": 0,
        "maxallowed": drawing.window_s,
        "showgrid": False,
        "zeroline": False,
        "ticks": "outside",
        "linecolor": GREY,
        **pointer,
    }


def _slice_axis(drawing: PlanDrawing, bottom: float) -> Trace:
    top = _board_tall(drawing) / _SLICE
    at = [index + 0.5 for index in range(drawing.slices)]
    names = [str(index) for index in range(drawing.slices)]
    if top > drawing.slices:
        at.append((top + drawing.slices) / 2)
        names.append("changes")
    return {
        "title": {"text": "memory slice"},
        "domain": [bottom, 1],
        "range": [0, top],
        "fixedrange": True,
        "showline": True,
        "linecolor": GREY,
        "tickvals": at,
        "ticktext": names,
        "showgrid": False,
        "zeroline": False,
    }


def _rule(boundary: int) -> Trace:
    """A faint line between two slices, under the blocks."""
    ends = {"x0": 0, "x1": 1, "y0": boundary, "y1": boundary, "xref": "paper", "yref": "y"}
    return ends | {"type": "line", "layer": "below", "line": {"color": _FAINT, "width": 1}}


def _requests_axis(series: TenantSeries, bottom: float, top: float) -> Trace:
    return {
        "title": {"text": "req / slot", "font": {"size": 11}},
        "domain": [bottom, top],
        "range": list(panel_range(series)),
        "fixedrange": True,
        "nticks": 5,
        "showline": True,
        "linecolor": GREY,
        "gridcolor": _FAINT,
        "zerolinecolor": GREY,
        "zerolinewidth": 1,
        "tickfont": {"size": 11},
    }
