"""The traces of a plan's HTML picture, in plotly's schema as plain dictionaries.

All blocks of a task are one trace, so that a page of thousands of blocks opens at once.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from migrator.core.instance import Kind, Task
from migrator.report.plan_blocks import Block, blocks_by_task, label_that_fits, short
from migrator.report.plan_drawing import PlanDrawing, panel_range
from migrator.report.plan_palette import Shade
from migrator.report.plan_series import Series, TenantSeries

Trace = dict[str, Any]

INK, GREY = "#222222", "#777777"
DASHES = {"color": INK, "width": 1.2, "dash": "5px,3px"}
HATCH = {"shape": "/", "size": 7, "solidity": 0.16}
_USUAL_WIDTH, _CHARACTER = 1200, 7.0
"""Pixels, to choose between a long and a short label; plotly hides what does not fit."""


def block_traces(drawing: PlanDrawing) -> list[Trace]:
    """The board: the blocks nobody uses, then each tenant's in its colours."""
    grouped = blocks_by_task(drawing.blocks)
    traces = [_bars(drawing, grouped[None]) | _unused_look()] if None in grouped else []
    for series, shade in zip(drawing.tenants, drawing.shades, strict=True):
        serving = grouped.get(Task(series.name, Kind.INFERENCE), [])
        retraining = grouped.get(Task(series.name, Kind.RETRAINING), [])
        key = {"name": safe(short(series.name)), "showlegend": True}
        own = [
            _bars(drawing, serving) | _serving_look(shade) | key,
            _cold_bars(drawing, serving) | {"marker": {"color": shade.light}},
            _bars(drawing, retraining) | _retraining_look(shade),
        ]
        traces += [trace | {"legendgroup": series.name} for trace in own if trace["x"]]
    return traces


def _bars(drawing: PlanDrawing, blocks: Sequence[Block]) -> Trace:
    """The warm part of each block, with its label."""
    slot_s = drawing.slot_s
    spans = [(each.first * slot_s + each.cold_s, each.end * slot_s) for each in blocks]
    room = _USUAL_WIDTH / drawing.window_s / _CHARACTER
    labels = [
        # At least the size: it may not show now, but has room after zooming in.
        label_that_fits(block, max(3, (right - left) * room))
        for block, (left, right) in zip(blocks, spans, strict=True)
    ]
    words = {
        "text": [safe(label) for label in labels],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
    }
    return _slabs(drawing, blocks, spans) | words


def _cold_bars(drawing: PlanDrawing, blocks: Sequence[Block]) -> Trace:
    """The first part of each block that does not serve at once."""
    cold = [each for each in blocks if each.cold_s > 0]
    starts = [each.first * drawing.slot_s for each in cold]
    spans = [(at, at + each.cold_s) for at, each in zip(starts, cold, strict=True)]
    return _slabs(drawing, cold, spans)


def _slabs(
    drawing: PlanDrawing, blocks: Sequence[Block], spans: Sequence[tuple[float, float]]
) -> Trace:
    """Horizontal bars, each from one moment to another on the slices of a block."""
    return {
        "type": "bar",
        "orientation": "h",
        "base": [left for left, _ in spans],
        "x": [right - left for left, right in spans],
        "y": [each.start + each.width / 2 for each in blocks],
        "width": [each.width - 0.1 for each in blocks],
        "hovertext": [_describe(each, drawing.slot_s) for each in blocks],
        "hoverinfo": "text",
        "showlegend": False,
    }


def _serving_look(shade: Shade) -> Trace:
    return {
        "marker": {"color": shade.fill, "line": {"color": "#FFFFFF", "width": 0.5}},
        "insidetextfont": {"color": shade.ink},
    }


def _retraining_look(shade: Shade) -> Trace:
    pattern = HATCH | {"fgcolor": shade.fill, "bgcolor": shade.light}
    outline = {"color": shade.fill, "width": 1}
    return {"marker": {"pattern": pattern, "line": outline}, "insidetextfont": {"color": INK}}


def _unused_look() -> Trace:
    outline = {"color": "#BBBBBB", "width": 1}
    return {
        "marker": {"color": "rgba(0,0,0,0)", "line": outline},
        "insidetextfont": {"color": GREY},
    }


def _describe(block: Block, slot_s: float) -> str:
    """The words that appear when the pointer rests on a block."""
    who = f"<b>{safe(block.task.tenant)}</b> {block.task.kind}" if block.task else "unused"
    cold = f"<br>serves nothing in its first {block.cold_s:g} s" if block.cold_s else ""
    return (
        f"{who}<br>{block.profile} on {block.slices}"
        f"<br>{block.first * slot_s:g}-{block.end * slot_s:g} s{cold}"
    )


def change_traces(drawing: PlanDrawing, row: float) -> list[Trace]:
    """Above the slices, a row of ticks per tenant (`row` slices high): its charged changes."""
    traces = []
    count = len(drawing.tenants)
    for index, (series, shade) in enumerate(zip(drawing.tenants, drawing.shades, strict=True)):
        low = drawing.slices + row * (count - 1 - index)
        at = [slot * drawing.slot_s for slot in series.changes]
        x = [each for moment in at for each in (moment, moment, None)]
        y = [low + 0.2 * row, low + 0.95 * row, None] * len(at)
        if at:
            traces.append(_line(x, y, series) | {"line": {"color": shade.fill, "width": 1.5}})
    return traces


def completion_traces(drawing: PlanDrawing, top: float) -> list[Trace]:
    """Dashed marks over the board where retrainings end, the tenant's colour at their head."""
    traces = []
    for series, shade in zip(drawing.tenants, drawing.shades, strict=True):
        if series.completed is not None:
            outline = {"color": INK, "width": 0.8}
            head = {"symbol": "triangle-down", "size": [0, 11], "color": shade.fill, "opacity": 1}
            mark = _completion(drawing, series, (0.0, top))
            mark |= {"mode": "lines+markers", "marker": head | {"line": outline}}
            traces.append(mark | {"cliponaxis": False})
    return traces


def _completion(drawing: PlanDrawing, series: TenantSeries, ends: tuple[float, float]) -> Trace:
    at = (series.completed or 0) * drawing.slot_s
    return _line([at, at], list(ends), series) | {"line": DASHES}


def panel_traces(drawing: PlanDrawing, series: TenantSeries, shade: Shade) -> list[Trace]:
    """One tenant's arrivals, capability and goodput, all constant within a slot."""
    invisible = {"width": 0, "shape": "hv"}
    traces = []
    if series.band:
        low, high = (_step(drawing, series, each) | {"line": invisible} for each in series.band)
        traces += [high, low | {"fill": "tonexty", "fillcolor": "#D4D4D4"}]
    area = {"line": invisible, "fill": "tozeroy", "fillcolor": shade.fill + "90"}
    traces.append(_step(drawing, series, series.goodput) | area)
    for values, colour, width in (
        (series.capability, shade.dark, 1.0),
        (series.arrivals, INK, 1.2),
    ):
        line = {"color": colour, "width": width, "shape": "hv"}
        traces.append(_step(drawing, series, values) | {"line": line})
    if series.completed is not None:
        traces.append(_completion(drawing, series, panel_range(series)))
    return [*traces, _hover_field(drawing, series)]


def _step(drawing: PlanDrawing, series: TenantSeries, values: Series) -> Trace:
    """A line whose last value is repeated, so that the last slot has its width."""
    return _line(_edges(drawing), _rounded(np.append(values, values[-1])), series)


def _line(x: Sequence[float | None], y: Sequence[float | None], series: TenantSeries) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "legendgroup": series.name,
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _hover_field(drawing: PlanDrawing, series: TenantSeries) -> Trace:
    """An invisible cell per slot as high as the panel: the pointer need not hit a thin line."""
    columns = [series.arrivals, series.capability, series.goodput, *(series.band or ())]
    edges = _edges(drawing)
    spans = [f"{left:g}-{right:g} s" for left, right in pairwise(edges)]
    band = f" (10-90%: {_number(3)}-{_number(4)})" if series.band else ""
    return {
        "type": "heatmap",
        "x": edges,
        "y": list(panel_range(series)),
        "z": [[0] * drawing.slots],
        "text": [spans],
        "customdata": [[_rounded(row) for row in np.stack(columns, axis=1)]],
        "colorscale": [[0, "rgba(0,0,0,0)"], [1, "rgba(0,0,0,0)"]],
        "showscale": False,
        "hovertemplate": (
            f"%{{text}}<br>arrivals {_number(0)}{band}<br>capability {_number(1)}"
            f"<br>goodput {_number(2)}<extra></extra>"
        ),
    }


def _number(column: int) -> str:
    return f"%{{customdata[{column}]:,.4~g}}"


def _edges(drawing: PlanDrawing) -> list[float]:
    return [slot * drawing.slot_s for slot in range(drawing.slots + 1)]


def _rounded(values: Series) -> list[float]:
    """Enough digits to draw and to read, few enough to keep the page small."""
    return [float(f"{value:.6g}") for value in values.tolist()]


def safe(text: str) -> str:
    """Plotly reads a subset of HTML in every label; a name must not become markup."""
    return html.escape(text, quote=False)
