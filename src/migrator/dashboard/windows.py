"""One old window of a run as JSON and as charts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from migrator.core.catalogue import board
from migrator.core.errors import InputError
from migrator.dashboard.updates import facts_of, read_windows, run_row, seconds_json
from migrator.io.database import reading
from migrator.records.rows import (
    SCHEMA,
    EventRecord,
    PlanRecord,
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
    read_rows,
    read_run,
)
from migrator.records.runs import RecordedRun, recorded_run
from migrator.report.chart_tables import summary_of
from migrator.report.page import Chart, legend_of
from migrator.report.paint import HUES, Paint
from migrator.report.plotly_charts import figure_of, height_of, upright_title
from migrator.report.run_charts import arrivals_chart, seconds_chart, seconds_of, starts_chart
from migrator.report.slices import held_chart, planned_chart

_LAST_S = 1e12
"""Until when a window lasts that has not ended."""


def window_json(path: Path, run: int, number: int) -> str:
    """The seconds, units and plans of an old window, in the format of an update."""
    with reading(path, SCHEMA) as connection:
        row = run_row(connection, path, run)
        around = _around(connection, run, number)
        of_window = ("window = ?", number)
        rows = read_run(connection, row, {WindowRecord: of_window, PlanRecord: of_window})
        facts = facts_of(replace(rows, units=around.units))
        where = "run = ? AND second >= ? AND second < ?"
        seconds = seconds_json(connection, where, run, *around.seconds)
    return f'{json.dumps(facts, allow_nan=False)[:-1]},"seconds":{seconds}}}'


def window_figures(path: Path, run: int, number: int) -> Mapping[str, Any]:
    """The charts of a window, each with its title, legend and summary."""
    recorded = _window_run(path, run, number)
    window = next(window for window in recorded.windows if window.number == number)
    on_board = board(recorded.records.run.board)
    charts: list[Chart | None] = [
        planned_chart(recorded, window, on_board, recorded.overheads_s),
        held_chart(recorded, window, on_board),
    ]
    for hue, name in enumerate(recorded.tenants):
        seconds = seconds_of(recorded, name, [window])
        charts += [arrivals_chart(name, hue % HUES, seconds), seconds_chart(name, seconds)]
    charts.append(starts_chart(recorded))
    return {
        "window": number,
        "charts": [_chart_json(chart) for chart in charts if chart is not None],
    }


@dataclass(frozen=True)
class _WindowContext:
    first: WindowRecord
    """Of the run."""
    before: WindowRecord | None
    window: WindowRecord
    seconds: tuple[int, int]
    units: tuple[UnitRecord, ...]


def _around(connection: sqlite3.Connection, run: int, number: int) -> _WindowContext:
    rows = read_windows(connection, run, "window <= ?", number)
    if not rows or rows[-1].window != number:
        raise InputError(f"window: run {run} has no window {number}; load the page again")
    first, window = rows[0], rows[-1]
    later = "SELECT min(began_s) FROM window WHERE run = ? AND window > ?"
    next_s = connection.execute(later, (run, number)).fetchone()[0]
    until_s = _LAST_S if window.ended_s is None else window.ended_s
    until_s = until_s if next_s is None else min(until_s, next_s)
    overlap = "from_s < ? AND (to_s IS NULL OR to_s > ?)"
    return _WindowContext(
        first,
        rows[-2] if len(rows) > 1 else None,
        window,
        (round(window.began_s - first.began_s), round(until_s - first.began_s)),
        read_rows(connection, run, UnitRecord, overlap, until_s, window.began_s),
    )


def _window_run(path: Path, run: int, number: int) -> RecordedRun:
    """The run with only the rows that one window needs: a day of them takes a second to read."""
    with reading(path, SCHEMA) as connection:
        row, around = run_row(connection, path, run), _around(connection, run, number)
        first, last = around.seconds
        wanted = {window.window for window in (around.before, around.window) if window is not None}
        these = (f"window IN ({', '.join('?' * len(wanted))})", *wanted)
        rows = read_run(
            connection,
            row,
            {
                WindowRecord: these,
                TenantWindowRecord: ("window = ?", number),
                SecondRecord: ("second >= ? AND second < ?", first, last),
                VersionRecord: (),
                EventRecord: ("at_s >= ?", around.window.began_s),
                PlanRecord: these,
            },
        )
        windows = rows.windows
        if around.first.window not in wanted:
            windows = (around.first, *windows)
        return recorded_run(replace(rows, windows=windows, units=around.units))


def _chart_json(chart: Chart) -> Mapping[str, Any]:
    return {
        "title": chart.title,
        "scale": upright_title(chart),
        "summary": summary_of(chart),
        "height": height_of(chart),
        "legend": [_key(*entry) for entry in legend_of(chart)],
        "figure": figure_of(chart),
    }


def _key(name: str, paint: Paint, dashed: bool) -> Mapping[str, object]:
    shade = paint.shade
    tones: Sequence[str] = (paint.fill, shade.fill if paint.light else shade.light)
    return {"name": name, "tones": tones, "hatched": paint.hatched, "dashed": dashed}
