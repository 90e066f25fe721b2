"""Forecasters compared over traces: text, page, picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.report.html_page import write_figure
from migrator.report.page import Axis, Bars, Note, Page, Picture, Section, Series, Table
from migrator.report.paint import paint_of
from migrator.report.terminal import NONE, capitalised, plural

_NOMINAL = 0.8
"""What an interval between the 10% and the 90% quantile should cover."""
HEADERS = ("trace", "forecaster", "windows", "mean", "MAE", "WAPE", "pinball", "coverage", "ms")


@dataclass(frozen=True)
class ForecastRow:
    """The errors of a forecaster on a trace."""

    trace: str
    forecaster: str
    windows: int
    mean: float
    mae: float
    wape: float | None
    """Over the mean, as `pinball` is; None if nothing arrived."""
    pinball: float | None
    coverage: float
    ms: float


_ERRORS: dict[str, tuple[str, Callable[[ForecastRow], float | None]]] = {
    "WAPE": ("mean absolute error over the mean", lambda row: row.wape),
    "pinball": (
        "mean loss of the 10%, 50% and 90% quantiles over the mean",
        lambda row: row.pinball,
    ),
    "coverage": ("slots inside the nominal 80% interval", lambda row: row.coverage),
    "time": ("milliseconds for one forecast, median", lambda row: row.ms),
}
"""What is drawn: its meaning and its value."""


def forecast_cells(row: ForecastRow) -> tuple[str, ...]:
    """The cells of a row under `HEADERS`."""
    numbers = (row.mae, row.wape, row.pinball, row.coverage)
    return (
        row.trace,
        row.forecaster,
        str(row.windows),
        f"{row.mean:.2f}",
        *(NONE if number is None else f"{number:.3f}" for number in numbers),
        f"{row.ms:.1f}",
    )


def draw_forecasts(rows: Sequence[ForecastRow], notes: Sequence[str], path: Path) -> None:
    """Draw as HTML or PNG; a failure or Ctrl-C leaves no file."""
    write_figure(
        path,
        "--figure",
        lambda: forecast_page(rows, notes),
        lambda: Picture("", "", _error_charts(rows)),
    )


def forecast_page(rows: Sequence[ForecastRow], notes: Sequence[str]) -> Page:
    """The page of at least one row."""
    numeric = frozenset(range(2, len(HEADERS)))
    table = Table("All figures", HEADERS, tuple(map(forecast_cells, rows)), numeric)
    sections = [Section("By trace and forecaster", "measures", (), (*_error_charts(rows), table))]
    if notes:
        sections.append(Section("How it was done", "how", (), (Note("Split", tuple(notes)),)))
    forecasters = ", ".join(dict.fromkeys(row.forecaster for row in rows))
    traces = plural(len({row.trace for row in rows}), "trace")
    lead = f"{forecasters} on {traces}, window by window, without knowledge of later arrivals."
    return Page("Forecasters compared", lead, tuple(sections))


def _error_charts(rows: Sequence[ForecastRow]) -> tuple[Bars, ...]:
    return tuple(_error_bars(error, rows) for error in _ERRORS)


def _error_bars(measure: str, rows: Sequence[ForecastRow]) -> Bars:
    traces = tuple(dict.fromkeys(row.trace for row in rows))
    forecasters = dict.fromkeys(row.forecaster for row in rows)
    meaning, value = _ERRORS[measure]
    errors = {(row.trace, row.forecaster): value(row) for row in rows}
    series = tuple(
        Series(name, tuple(errors.get((trace, name)) for trace in traces), paint=paint_of(index))
        for index, name in enumerate(forecasters)
    )
    title, is_coverage = f"{capitalised(measure)}: {meaning}", measure == "coverage"
    y = Axis(measure, "ms" if measure == "time" else "", share=is_coverage)
    mark = _NOMINAL if is_coverage else None
    return Bars(title, traces, series, Axis("trace"), y, mark=mark)
