"""A plan's picture as PNG, laid out in inches so that nothing overlaps at any size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from migrator.core.instance import Kind
from migrator.report.plan_blocks import Block, blocks_by_task, label_that_fits, short
from migrator.report.plan_drawing import Key, PlanDrawing, panel_range, result
from migrator.report.plan_palette import Shade
from migrator.report.plan_series import Series, TenantSeries

_DPI = 200
_WIDTH, _LEFT, _RIGHT = 8.0, 0.58, 0.17
_TITLE, _LEGEND_ROW, _SLICE, _RUG, _PANEL, _GAP, _BOTTOM = 0.50, 0.17, 0.25, 0.09, 0.72, 0.27, 0.15
_PLOT = _WIDTH - _LEFT - _RIGHT
_FONT, _SMALL = 7.0, 6.2
_INK, _GREY, _FAINT = "#222222", "#777777", "#E4E4E4"
_DASHED: dict[str, Any] = {"color": _INK, "lw": 0.8, "ls": (0, (4, 2))}
_HATCH = "//////"
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so every machine draws the same
    "font.size": _FONT,
    "text.color": _INK,
    "text.parse_math": False,  # a tenant may be called "$x$"
    "hatch.linewidth": 0.7,
    "axes.linewidth": 0.6,
    "axes.edgecolor": _GREY,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _INK,
    "xtick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.color": _INK,
    "ytick.major.width": 0.6,
    "ytick.major.size": 2.5,
    "legend.frameon": False,
    "legend.fontsize": _SMALL,
    "legend.borderpad": 0,
    "legend.borderaxespad": 0,
    "legend.handlelength": 1.8,
    "legend.handleheight": 0.8,
    "legend.columnspacing": 1.4,
}


def write(drawing: PlanDrawing, path: Path) -> None:
    """Write the picture to `path`, 1600 pixels wide."""
    with mpl.rc_context(STYLE):
        _figure(drawing).savefig(path, format="png", dpi=_DPI)


def _figure(drawing: PlanDrawing) -> Figure:
    legends = [_tenant_keys(drawing), _grey_keys(drawing)]
    rug = _RUG * len(drawing.tenants) * drawing.has_changes
    board = _SLICE * drawing.slices + rug
    above = _TITLE + _LEGEND_ROW * sum(_legend_rows(each) for each in legends) + 0.12
    height = above + board + (_GAP + _PANEL) * len(drawing.tenants) + _GAP + _BOTTOM
    figure = Figure(figsize=(_WIDTH, height))

    def axes(top: float, tall: float) -> Axes:
        box = (_LEFT / _WIDTH, 1 - (top + tall) / height, _PLOT / _WIDTH, tall / height)
        return figure.add_axes(box)

    _write_title(figure, drawing, height)
    _add_legends(figure, legends, height)
    panels = [axes(above, board)]
    _draw_board(panels[0], drawing, rug / _SLICE)
    for series, shade in zip(drawing.tenants, drawing.shades, strict=True):
        top = above + board + _GAP + (len(panels) - 1) * (_PANEL + _GAP)
        panels.append(axes(top, _PANEL))
        _draw_tenant(panels[-1], drawing, series, shade)
    panels[-1].tick_params(labelbottom=True)
    panels[-1].set_xlabel("time (s)")
    return figure


def _write_title(figure: Figure, drawing: PlanDrawing, height: float) -> None:
    left = _LEFT / _WIDTH
    figure.text(left, 1 - 0.12 / height, drawing.headline, va="top", fontsize=9, weight="bold")
    figure.text(left, 1 - 0.30 / height, drawing.verdict, va="top", fontsize=8, color="#444444")


def _add_legends(figure: Figure, legends: Sequence[Sequence[Artist]], height: float) -> None:
    top = _TITLE
    for handles in legends:
        rows = _legend_rows(handles)
        place = (_LEFT / _WIDTH, 1 - top / height)
        columns = -(-len(handles) // rows)
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=place, ncols=columns)
        top += _LEGEND_ROW * rows


def _legend_rows(handles: Sequence[Artist]) -> int:
    """One row where the keys fit side by side, else as many as their widest one asks for."""
    wide = [_SMALL / 72 * (0.53 * len(str(each.get_label())) + 4.0) for each in handles]
    if sum(wide) <= _PLOT:
        return 1
    return -(-len(handles) // int(_PLOT / max(wide)))


def _tenant_keys(drawing: PlanDrawing) -> list[Artist]:
    return [
        Patch(facecolor=shade.fill, label=short(series.name))
        for series, shade in zip(drawing.tenants, drawing.shades, strict=True)
    ]


def _grey_keys(drawing: PlanDrawing) -> list[Artist]:
    keys: dict[Key, Artist] = {
        Key.SERVING: Patch(facecolor="#8C8C8C"),
        Key.COLD: Patch(facecolor="#D6D6D6"),
        Key.RETRAINING: Patch(facecolor="#EEEEEE", edgecolor=_GREY, hatch=_HATCH, linewidth=0.4),
        Key.UNUSED: Patch(facecolor="none", edgecolor="#AAAAAA", linewidth=0.6),
        Key.RETRAINED: Line2D([], [], **_DASHED),
        Key.ARRIVALS: Line2D([], [], color=_INK, lw=0.8),
        Key.BAND: Patch(facecolor="#CFCFCF"),
        Key.CAPABILITY: Line2D([], [], color=_GREY, lw=0.6),
        Key.GOODPUT: Patch(facecolor="#B5B5B5"),
    }
    for key, artist in keys.items():
        artist.set_label(str(key))
    return [keys[key] for key in drawing.keys]


def _draw_board(axes: Axes, drawing: PlanDrawing, rug: float) -> None:
    """A rectangle per block; above the slices, `rug` slices high, the charged changes."""
    top = drawing.slices + rug
    axes.set_xlim(0, drawing.window_s)
    axes.set_ylim(0, top)
    axes.set_yticks(np.arange(drawing.slices) + 0.5, [str(n) for n in range(drawing.slices)])
    axes.set_ylabel("memory slice", y=drawing.slices / top / 2)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(labelbottom=False)
    axes.hlines(range(drawing.slices + 1), 0, drawing.window_s, color=_FAINT, lw=0.4, zorder=0)
    _draw_blocks(axes, drawing)
    _label_blocks(axes, drawing)
    _draw_completions(axes, drawing, top)
    if rug:
        _draw_changes(axes, drawing, rug)


def _draw_blocks(axes: Axes, drawing: PlanDrawing) -> None:
    for task, blocks in blocks_by_task(drawing.blocks).items():
        spans = [(each.first * drawing.slot_s, each.end * drawing.slot_s) for each in blocks]
        if task is None:
            _fill(axes, blocks, spans, facecolor="none", edgecolor="#BBBBBB", lw=0.5)
            continue
        shade = drawing.shade(task.tenant)
        if task.kind is Kind.RETRAINING:
            look = {"facecolor": shade.light, "edgecolor": shade.fill, "hatch": _HATCH}
            _fill(axes, blocks, spans, lw=0.5, **look)
            continue
        between = _separator_width(blocks, drawing)
        _fill(axes, blocks, spans, facecolor=shade.fill, edgecolor="white", lw=between)
        cold = [(left, left + each.cold_s) for (left, _), each in zip(spans, blocks, strict=True)]
        _fill(axes, blocks, cold, facecolor=shade.light, edgecolor="none")


def _fill(
    axes: Axes, blocks: Sequence[Block], spans: Sequence[tuple[float, float]], **look: Any
) -> None:
    """Rectangles, each from one moment to another on the slices of a block."""
    corners = []
    for block, (left, right) in zip(blocks, spans, strict=True):
        low, high = block.start + 0.05, block.start + block.width - 0.05
        corners.append([(left, low), (right, low), (right, high), (left, high)])
    axes.add_collection(PolyCollection(corners, **look), autolim=False)


def _points(slots: float, drawing: PlanDrawing) -> float:
    """The width of that many slots in points (1/72 inch)."""
    return slots / drawing.slots * _PLOT * 72


def _separator_width(blocks: Sequence[Block], drawing: PlanDrawing) -> float:
    """White between neighbours, thinner where blocks are so narrow that it would bleach them."""
    typical = float(np.median([each.end - each.first for each in blocks]))
    return min(0.6, 0.1 * _points(typical, drawing))


def _label_blocks(axes: Axes, drawing: PlanDrawing) -> None:
    """Words in the middle of each block's warm part, where they fit."""
    for block in drawing.blocks:
        warm_from = block.first + block.cold_s / drawing.slot_s
        room = _points(block.end - warm_from, drawing) / (0.62 * _SMALL)
        text = label_that_fits(block, room)
        if text:
            ink, ground = _label_colours(block, drawing)
            axes.text(
                (warm_from + block.end) / 2 * drawing.slot_s,
                block.start + block.width / 2,
                text,
                ha="center",
                va="center_baseline",
                fontsize=_SMALL,
                color=ink,
                # A rim in the block's colour keeps hatching and dashed marks off the letters.
                path_effects=[withStroke(linewidth=2.2, foreground=ground)],
                zorder=6,
            )


def _label_colours(block: Block, drawing: PlanDrawing) -> tuple[str, str]:
    """Letters and what surrounds them."""
    if block.task is None:
        return _GREY, "white"
    shade = drawing.shade(block.task.tenant)
    return (_INK, shade.light) if block.task.kind is Kind.RETRAINING else (shade.ink, shade.fill)


def _draw_completions(axes: Axes, drawing: PlanDrawing, top: float) -> None:
    """Dashed marks where retrainings end, the tenant's colour at their head."""
    for series, shade in zip(drawing.tenants, drawing.shades, strict=True):
        if series.completed is not None:
            at = series.completed * drawing.slot_s
            axes.plot([at, at], [0, top], zorder=4, **_DASHED)
            axes.plot(at, top, "v", color=shade.fill, ms=5, mec=_INK, mew=0.4, clip_on=False)


def _draw_changes(axes: Axes, drawing: PlanDrawing, rug: float) -> None:
    """A row of ticks per tenant."""
    count = len(drawing.tenants)
    row = rug / count
    for index, (series, shade) in enumerate(zip(drawing.tenants, drawing.shades, strict=True)):
        low = drawing.slices + row * (count - 1 - index)
        at = [slot * drawing.slot_s for slot in series.changes]
        axes.vlines(at, low + 0.2 * row, low + 0.95 * row, color=shade.fill, lw=0.9)
    middle = (0, drawing.slices + rug / 2)
    beside: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "va": "center"}
    axes.annotate("changes", middle, (-3, 0), fontsize=_SMALL, **beside)


def _draw_tenant(axes: Axes, drawing: PlanDrawing, series: TenantSeries, shade: Shade) -> None:
    """One tenant's panel: arrivals, capability and goodput, all constant within a slot."""
    _set_panel(axes, drawing, series, shade)
    edges = np.arange(drawing.slots + 1) * drawing.slot_s
    if series.band:
        low, high = (_stepped(each) for each in series.band)
        axes.fill_between(edges, low, high, step="post", color="#CFCFCF", lw=0)
    area: dict[str, Any] = {"step": "post", "color": shade.fill, "alpha": 0.55, "lw": 0}
    axes.fill_between(edges, _stepped(series.goodput), **area)
    axes.step(edges, _stepped(series.capability), where="post", color=shade.dark, lw=0.6)
    thin = 0.5 if drawing.slots > 300 else 0.7
    axes.step(edges, _stepped(series.arrivals), where="post", color=_INK, lw=thin)
    if series.completed is not None:
        axes.axvline(series.completed * drawing.slot_s, **_DASHED)


def _set_panel(axes: Axes, drawing: PlanDrawing, series: TenantSeries, shade: Shade) -> None:
    axes.set_xlim(0, drawing.window_s)
    axes.set_ylim(*panel_range(series))
    axes.locator_params(axis="y", nbins=4)
    axes.grid(axis="y", color=_FAINT, lw=0.4)
    axes.set_axisbelow(True)
    axes.tick_params(labelbottom=False, labelsize=_SMALL)
    axes.set_ylabel("req / slot", fontsize=_SMALL)
    name: dict[str, Any] = {"color": shade.dark, "weight": "bold", "fontsize": _FONT}
    axes.set_title(short(series.name), loc="left", pad=3, **name)
    words = result(series, drawing.slot_s)
    axes.set_title(words, loc="right", pad=3, fontsize=_SMALL, color="#444444")


def _stepped(values: Series) -> Series:
    """The values with the last one repeated, so that the last slot has its width."""
    return np.append(values, values[-1])
