"""The numbers of charts as tables and sentences, for readers who cannot see the chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from migrator.report.page import Areas, Axis, Bars, Chart, HeatMap, Lines, Series, Slices, Table

_MOST_ROWS = 250
"""Longer line charts are tabulated by means over neighbouring points."""


def value_text(value: float | None, axis: Axis) -> str:
    """A value in the format of its axis; a dash if there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    if axis.share:
        return f"{value:.1%}"
    words = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
    return f"{words} {axis.unit}".rstrip()


def axis_text(axis: Axis) -> str:
    """An axis' title with its unit."""
    unit = "%" if axis.share else axis.unit
    return f"{axis.title} ({unit})" if unit else axis.title


def numbers_of(chart: Chart) -> Table:
    """The chart's numbers, folded away."""
    match chart:
        case Bars():
            return _table(chart, chart.categories, chart.x.title, chart.series)
        case Lines():
            return _lines_table(chart)
        case Areas():
            return _areas_table(chart)
        case HeatMap():
            return _heat_table(chart)
        case Slices():
            return _slices_table(chart)


def summary_of(chart: Chart) -> str:
    """The chart in a sentence or two, for a screen reader."""
    match chart:
        case Bars() | Lines() | Areas():
            kind = type(chart).__name__.lower()
            spans = [_span(each, chart.y) for each in chart.series[:8]]
            more = len(chart.series) - len(spans)
            rest = f"; and {more} more" if more else ""
            return (
                f"{chart.title}: {kind} of {chart.y.title} by {chart.x.title}. "
                f"{'; '.join(spans)}{rest}."
            )
        case HeatMap():
            values = tuple(value for row in chart.values for value in row)
            span = _span(Series(chart.z.title, values), chart.z)
            return f"{chart.title}: heat map by {chart.y.title} and {chart.x.title}. {span}."
        case Slices():
            names = ", ".join(name for name, _ in chart.keys)
            return (
                f"{chart.title}: {chart.slices} memory slices over {chart.until_s:g} s, "
                f"{len(chart.slabs)} intervals of {names or 'nothing'}."
            )


def _span(series: Series, axis: Axis) -> str:
    known = [each for each in series.values if each is not None and math.isfinite(each)]
    if not known:
        return f"{series.name}: no values"
    low, high = value_text(min(known), axis), value_text(max(known), axis)
    return f"{series.name}: {low}" if low == high else f"{series.name}: {low} to {high}"


def _table(
    chart: Bars | Lines | Areas,
    places: Sequence[str],
    place: str,
    series: Sequence[Series],
    remark: str = "",
) -> Table:
    cells = [_cells(each, chart.y) for each in series]
    return Table(
        caption=f"{chart.title}: {axis_text(chart.y)}{remark}",
        headers=(place, *(each.name for each in series)),
        rows=tuple(zip(places, *cells, strict=True)),
        numeric=frozenset(range(1, len(series) + 1)),
        folded=True,
    )


def _cells(series: Series, axis: Axis) -> list[str]:
    bare = Axis(axis.title, "", axis.share)
    widths = series.half_widths or (None,) * len(series.values)
    return [
        value_text(value, bare)
        + (f"\u00a0±\u00a0{value_text(width, bare)}" if width is not None else "")
        for value, width in zip(series.values, widths, strict=True)
    ]


def _lines_table(chart: Lines) -> Table:
    """Long ones by the mean of as many neighbours as keep the table short."""
    stride = -(-len(chart.at) // _MOST_ROWS)
    if stride <= 1:
        places = [f"{each:g}" for each in chart.at]
        return _table(chart, places, axis_text(chart.x), chart.series)
    starts = range(0, len(chart.at), stride)
    places = [f"{chart.at[start]:g}" for start in starts]
    series = [
        Series(each.name, tuple(_mean(each.values[start : start + stride]) for start in starts))
        for each in chart.series
    ]
    remark = f", means of {stride} neighbouring points"
    return _table(chart, places, f"{axis_text(chart.x)}, from", series, remark)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return math.fsum(known) / len(known) if known else None


def _areas_table(chart: Areas) -> Table:
    """A row per stretch in which nothing changes."""
    columns = list(zip(*(each.values for each in chart.series), strict=True))
    stretches = [list(each) for _, each in groupby(range(len(columns)), key=columns.__getitem__)]
    ends = [*chart.at[1:], chart.until]
    places = [f"{chart.at[each[0]]:g} to {ends[each[-1]]:g}" for each in stretches]
    series = [
        Series(each.name, tuple(each.values[stretch[0]] for stretch in stretches))
        for each in chart.series
    ]
    return _table(chart, places, axis_text(chart.x), series)


def _heat_table(chart: HeatMap) -> Table:
    bare = Axis(chart.z.title, "", chart.z.share)
    return Table(
        caption=f"{chart.title}: {axis_text(chart.z)}",
        headers=(chart.y.title, *chart.columns),
        rows=tuple(
            (name, *(value_text(each, bare) for each in values))
            for name, values in zip(chart.rows, chart.values, strict=True)
        ),
        numeric=frozenset(range(1, len(chart.columns) + 1)),
        folded=True,
    )


def _slices_table(chart: Slices) -> Table:
    rows = []
    for each in chart.slabs:
        last = each.start + each.width - 1
        where = f"{each.start:g}" if each.width == 1 else f"{each.start:g} to {last:g}"
        size = each.note or each.size
        rows.append((each.name, size, where, f"{each.from_s:g}", f"{each.until_s:g}"))
    return Table(
        caption=chart.title,
        headers=("task", "instance", "memory slices", "from (s)", "until (s)"),
        rows=tuple(rows),
        numeric=frozenset({3, 4}),
        folded=True,
    )
