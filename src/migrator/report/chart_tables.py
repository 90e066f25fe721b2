"""The numbers of charts as tables, for readers who cannot see the charts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from migrator.report.page import Axis, Bars, Chart, HeatMap, Lines, Series, Slices, Table

_MOST_NUMBERS = 250
"""Longer line charts are tabulated by means over neighbouring points."""


def numbers_of(chart: Chart) -> Table:
    """The chart's numbers, folded away."""
    match chart:
        case Bars():
            return _numbers_table(chart, chart.categories, chart.x.title, chart.series)
        case Lines():
            return _lines_table(chart)
        case HeatMap():
            return _heat_table(chart)
        case Slices():
            return _slices_table(chart)


def _numbers_table(
    chart: Bars | Lines,
    places: Sequence[str],
    place: str,
    series: Sequence[Series],
    remark: str = "",
) -> Table:
    cells = [_number_cells(row, chart.y) for row in series]
    return Table(
        caption=f"{chart.title}: {chart.y.label}{remark}",
        headers=(place, *(row.name for row in series)),
        rows=tuple(zip(places, *cells, strict=True)),
        numeric=frozenset(range(1, len(series) + 1)),
        folded=True,
    )


def _number_cells(series: Series, axis: Axis) -> list[str]:
    bare = Axis(axis.title, "", axis.share)
    widths = series.half_widths or (None,) * len(series.values)
    return [
        bare.text(value) + (f"\u00a0±\u00a0{bare.text(width)}" if width is not None else "")
        for value, width in zip(series.values, widths, strict=True)
    ]


def _lines_table(chart: Lines) -> Table:
    """Long ones by the mean of as many neighbours as keep the table short."""
    stride = -(-len(chart.at) // _MOST_NUMBERS)
    if stride <= 1:
        places = [f"{x:g}" for x in chart.at]
        return _numbers_table(chart, places, chart.x.label, chart.series)
    starts = range(0, len(chart.at), stride)
    places = [f"{chart.at[start]:g}" for start in starts]
    series = [
        Series(row.name, tuple(_mean(row.values[start : start + stride]) for start in starts))
        for row in chart.series
    ]
    remark = f", means of {stride} neighbouring points"
    return _numbers_table(chart, places, f"{chart.x.label}, from", series, remark)


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) / len(numbers) if numbers else None


def _heat_table(chart: HeatMap) -> Table:
    bare = Axis(chart.z.title, "", chart.z.share)
    return Table(
        caption=f"{chart.title}: {chart.z.label}",
        headers=(chart.y.title, *chart.columns),
        rows=tuple(
            (name, *(bare.text(value) for value in values))
            for name, values in zip(chart.rows, chart.values, strict=True)
        ),
        numeric=frozenset(range(1, len(chart.columns) + 1)),
        folded=True,
    )


def _slices_table(chart: Slices) -> Table:
    rows = []
    for slab in chart.slabs:
        last = slab.start + slab.width - 1
        where = f"{slab.start:g}" if slab.width == 1 else f"{slab.start:g} to {last:g}"
        size = slab.note or slab.size
        span = (f"{round(at_s, 1):g}" for at_s in (slab.from_s, slab.until_s))
        rows.append((slab.name, size, where, *span))
    return Table(
        caption=chart.title,
        headers=("task", "instance", "memory slices", "from (s)", "until (s)"),
        rows=tuple(rows),
        numeric=frozenset({3, 4}),
        folded=True,
    )
