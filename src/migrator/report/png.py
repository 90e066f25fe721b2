"""Draws charts one below the other into a PNG, laid out in inches so that nothing overlaps.

A legend, and the labels of the x axis, are drawn once for neighbouring charts that share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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

from migrator.report.page import (
    Bars,
    Chart,
    HeatMap,
    Lines,
    Picture,
    Series,
    Slab,
    Slices,
    Use,
    band_floors,
    legend_of,
    paints,
)
from migrator.report.paint import Paint, tenant_paint
from migrator.report.terminal import short

_DPI = 200
_NARROWEST, _WIDEST, _LEFT, _RIGHT = 8.0, 20.0, 0.62, 0.17
_HEADER, _TITLE, _LEGEND_ROW, _GAP, _X_LABELS = 0.50, 0.2, 0.17, 0.08, 0.36
_SLICE, _LINES, _BARS, _BAR = 0.25, 0.72, 1.6, 0.075
_GROUP = 0.8
"""The part of a category that its bars fill."""
_FONT, _SMALL = 7.0, 6.2
_INK, _GREY, _FAINT = "#222222", "#777777", "#E4E4E4"
_DASHED: dict[str, Any] = {"color": _INK, "lw": 0.8, "ls": (0, (4, 2))}
_HATCH = "//////"
_STYLE: dict[Any, Any] = {
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


def write(picture: Picture, path: Path) -> None:
    """Write the charts to `path`, at least 1600 pixels wide."""
    with mpl.rc_context(_STYLE):
        _figure(picture).savefig(path, format="png", dpi=_DPI)


@dataclass(frozen=True)
class _Panel:
    chart: Chart
    legend: tuple[Artist, ...]
    """Empty where the chart above shows the same one."""
    legend_columns: int
    has_x_labels: bool
    labels: _CategoryLabels | None

    @property
    def above(self) -> float:
        rows = -(-len(self.legend) // self.legend_columns) if self.legend else 0
        return _TITLE + _LEGEND_ROW * rows + (0.05 if rows else 0.0)

    @property
    def tall(self) -> float:
        match self.chart:
            case Slices():
                return _SLICE * self.chart.slices
            case Lines():
                return _LINES
            case _:
                return _BARS

    @property
    def below(self) -> float:
        if not self.has_x_labels:
            return _GAP
        return _X_LABELS if self.labels is None else self.labels.tall + _GAP


class _CategoryLabels:
    """The names of categories, slanted if they are too long to stand side by side."""

    def __init__(self, names: Sequence[str], room: float) -> None:
        self.names = [short(name, 28) for name in names]
        longest = max(map(len, self.names), default=1) * 0.055
        self.slanted = longest > room
        self.tall = 0.15 + (longest * 0.7 if self.slanted else 0.1)

    def put(self, axes: Axes) -> None:
        look: dict[str, Any] = {}
        if self.slanted:
            look = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(range(len(self.names)), self.names, **look)


def _figure(picture: Picture) -> Figure:
    width = max(_width(chart) for chart in picture.charts)
    panels = list(_panels(picture.charts, width))
    header = _HEADER if picture.title else 0.12
    height = header + sum(panel.above + panel.tall + panel.below for panel in panels)
    figure, left = Figure(figsize=(width, height)), _LEFT / width
    figure.text(left, 1 - 0.12 / height, picture.title, va="top", fontsize=9, weight="bold")
    figure.text(left, 1 - 0.30 / height, picture.subtitle, va="top", fontsize=8, color="#444444")
    top = header
    for panel in panels:
        _put_titles(figure, panel, top, width, height)
        top += panel.above
        box = (left, 1 - (top + panel.tall) / height, 1 - (_LEFT + _RIGHT) / width)
        axes = figure.add_axes((*box, panel.tall / height))
        _draw(axes, panel, (width - _LEFT - _RIGHT) * 72)
        top += panel.tall + panel.below
    return figure


def _width(chart: Chart) -> float:
    if not isinstance(chart, Bars):
        return _NARROWEST
    bars = len(chart.categories) * (len(chart.series) + 1)
    return min(_WIDEST, max(_NARROWEST, _BAR * bars))


def _panels(charts: Sequence[Chart], width: float) -> list[_Panel]:
    panels = []
    room = width - _LEFT - _RIGHT
    for at, chart in enumerate(charts):
        shared = at > 0 and legend_of(charts[at - 1]) == legend_of(chart)
        handles = () if shared else tuple(_handle(chart, *entry) for entry in legend_of(chart))
        following = charts[at + 1] if at + 1 < len(charts) else None
        labels = None
        if isinstance(chart, Bars):
            labels = _CategoryLabels(chart.categories, room / max(1, len(chart.categories)))
        is_last = following is None or _x_span(following) != _x_span(chart)
        panels.append(_Panel(chart, handles, _legend_columns(handles, room), is_last, labels))
    return panels


def _x_span(chart: Chart) -> object:
    match chart:
        case Bars():
            return chart.categories
        case Slices():
            return 0.0, chart.until_s
        case Lines():
            return chart.at[:1] and float(chart.at[0]), chart.until
        case _:
            return None


def _handle(chart: Chart, name: str, paint: Paint, dashed: bool) -> Artist:
    label = short(name, 28)
    if isinstance(chart, Lines) and not _is_filled(chart, name):
        colour = paint.shade.dark if dashed else paint.fill
        return Line2D([], [], color=colour, lw=0.9, ls="--" if dashed else "-", label=label)
    return Patch(label=label, **_look(paint))


def _is_filled(chart: Lines, name: str) -> bool:
    return any(name in (row.filled, row.name if row.area else "") for row in chart.series)


def _legend_columns(handles: Sequence[Artist], room: float) -> int:
    """All in one row if they fit, else as many as the widest one allows."""
    wide = [_SMALL / 72 * (0.53 * len(str(handle.get_label())) + 4.0) for handle in handles]
    if sum(wide) <= room:
        return max(1, len(handles))
    return max(1, int(room / max(wide)))


def _put_titles(figure: Figure, panel: _Panel, top: float, width: float, height: float) -> None:
    left = _LEFT / width
    title = short(panel.chart.title, 150)
    figure.text(left, 1 - (top + 0.06) / height, title, va="top", weight="bold")
    if panel.legend:
        place = (left, 1 - (top + _TITLE) / height)
        look: dict[str, Any] = {"loc": "upper left", "ncols": panel.legend_columns}
        figure.legend(handles=panel.legend, bbox_to_anchor=place, **look)


def _look(paint: Paint) -> dict[str, Any]:
    if paint.hatched:
        look = {"edgecolor": paint.shade.fill, "hatch": _HATCH, "linewidth": 0.4}
        return {"facecolor": _opaque(paint.ground), **look}
    return {"facecolor": _opaque(paint.fill), "linewidth": 0}


def _opaque(colour: str) -> str:
    """Matplotlib has no rgba() colours; the grey ones stand on white."""
    return "#E2E2E2" if colour.startswith("rgba") else colour


def _draw(axes: Axes, panel: _Panel, points: float) -> None:
    chart = panel.chart
    match chart:
        case Slices():
            _draw_slices(axes, chart, points)
        case Lines():
            _draw_lines(axes, chart)
        case Bars():
            _draw_bars(axes, chart)
        case HeatMap():
            raise NotImplementedError("heat maps are drawn on pages only")
    axes.tick_params(labelbottom=panel.has_x_labels, labelsize=_SMALL)
    if panel.labels is not None and panel.has_x_labels:
        panel.labels.put(axes)
    elif panel.has_x_labels:
        axes.set_xlabel("time (s)" if isinstance(chart, Slices) else chart.x.label)


# Slices


def _draw_slices(axes: Axes, chart: Slices, points: float) -> None:
    top = chart.slices
    axes.set_xlim(0, chart.until_s)
    axes.set_ylim(0, top)
    axes.set_yticks(np.arange(chart.slices) + 0.5, [str(n) for n in range(chart.slices)])
    axes.set_ylabel("memory slice")
    axes.tick_params(axis="y", length=0)
    axes.hlines(range(chart.slices + 1), 0, chart.until_s, color=_FAINT, lw=0.4, zorder=0)
    for name, paint in chart.keys:
        slabs = [slab for slab in chart.slabs if slab.name == name]
        _draw_slabs(axes, slabs, paint, points / chart.until_s)
    for slab in chart.slabs:
        _label_slab(axes, slab, chart.paint(slab), points / chart.until_s)
    for tenant, at_s in chart.retrained:
        colour = tenant_paint(chart.place(tenant)).shade.fill
        axes.plot([at_s, at_s], [0, top], zorder=4, **_DASHED)
        axes.plot(at_s, top, "v", color=colour, ms=5, mec=_INK, mew=0.4, clip_on=False)


def _draw_slabs(axes: Axes, slabs: Sequence[Slab], paint: Paint, points_per_s: float) -> None:
    look = _look(paint)
    if slabs[0].use is Use.UNUSED:
        look = {"facecolor": "none", "edgecolor": "#BBBBBB", "lw": 0.5}
    elif not paint.hatched and not paint.light:
        # white between neighbours, thinner where slabs are so narrow that it would hide them
        typical = float(np.median([slab.until_s - slab.from_s for slab in slabs]))
        between = min(0.6, 0.1 * typical * points_per_s)
        look = {"facecolor": paint.fill, "edgecolor": "white", "lw": between}
    corners = []
    for slab in slabs:
        low, high = slab.start + 0.05, slab.start + slab.width - 0.05
        left, right = slab.from_s, slab.until_s
        corners.append([(left, low), (right, low), (right, high), (left, high)])
    axes.add_collection(PolyCollection(corners, **look), autolim=False)


def _label_slab(axes: Axes, slab: Slab, paint: Paint, points_per_s: float) -> None:
    """Size and tenant, or the size alone, if there is room."""
    if slab.use is Use.COLD:
        return
    room = (slab.until_s - slab.from_s) * points_per_s / (0.62 * _SMALL)
    full = f"{slab.size} {short(slab.tenant)}" if slab.tenant else slab.size
    text = next((text for text in (full, slab.size) if len(text) + 1 <= room), "")
    if not text:
        return
    plain = not paint.hatched and not paint.light
    ground = "white" if slab.tenant is None else paint.fill if plain else paint.ground
    ink = paint.shade.ink if plain else _INK
    axes.text(
        (slab.from_s + slab.until_s) / 2,
        slab.start + slab.width / 2,
        text,
        ha="center",
        va="center_baseline",
        fontsize=_SMALL,
        color=ink,
        # a rim in the colour of the slab keeps hatching and dashed lines off the letters
        path_effects=[withStroke(linewidth=2.2, foreground=_opaque(ground))],
        zorder=6,
    )


# Lines and bars


def _draw_lines(axes: Axes, chart: Lines) -> None:
    floors, below = band_floors(chart.series), None
    for at, (series, paint) in enumerate(zip(chart.series, paints(chart.series), strict=True)):
        x, y = _steps(chart, series)
        if series.filled and below is not None:
            axes.fill_between(x, below, y, step="post", color=_opaque(paint.fill), lw=0)
        elif series.area:
            axes.fill_between(x, y, step="post", color=paint.shade.fill, alpha=0.55, lw=0)
        elif at not in floors:
            look: dict[str, Any] = {"color": paint.fill, "lw": 0.5 if len(x) > 300 else 0.7}
            look |= {"ls": "--"} if series.dashed else {}
            axes.step(x, y, where="post", **look)
        below = y
    for mark in chart.marks:
        axes.axvline(mark, **_DASHED)
    if chart.until is not None and chart.at:
        axes.set_xlim(chart.at[0], chart.until)
    if chart.y_range is not None:
        axes.set_ylim(*chart.y_range)
    axes.locator_params(axis="y", nbins=4)
    _set_grid(axes)
    axes.set_ylabel(chart.y.label, fontsize=_SMALL)


def _steps(chart: Lines, series: Series) -> tuple[Any, Any]:
    """The values, the last one repeated so that its step has a width."""
    y = np.array([np.nan if value is None else value for value in series.values])
    if chart.until is None:
        return np.array(chart.at), y
    return np.array([*chart.at, chart.until]), np.append(y, y[-1])


def _draw_bars(axes: Axes, chart: Bars) -> None:
    scale = 100.0 if chart.y.share else 1.0
    part = _GROUP if chart.stacked else _GROUP / len(chart.series)
    base = np.zeros(len(chart.categories))
    for at, (series, paint) in enumerate(zip(chart.series, paints(chart.series), strict=True)):
        values = np.array([np.nan if value is None else scale * value for value in series.values])
        middle = 0.0 if chart.stacked else part * (at + 0.5) - _GROUP / 2
        x = np.arange(len(values)) + middle
        bottom = base if chart.stacked else None
        axes.bar(x, values, part * 0.92, bottom=bottom, **_look(paint))
        if chart.stacked:
            base = base + np.nan_to_num(values)
        if series.half_widths is not None:
            widths = [np.nan if width is None else scale * width for width in series.half_widths]
            thin: dict[str, Any] = {"ecolor": _INK, "elinewidth": 0.6, "capsize": 1}
            axes.errorbar(x, values, widths, fmt="none", **thin)
    if chart.mark is not None:
        axes.axhline(scale * chart.mark, **_DASHED)
    axes.set_ylabel(chart.y.label)
    axes.set_xlim(-0.5, len(chart.categories) - 0.5)
    axes.set_xticks(range(len(chart.categories)))
    _set_grid(axes)


def _set_grid(axes: Axes) -> None:
    axes.grid(axis="y", color=_FAINT, lw=0.4)
    axes.set_axisbelow(True)
