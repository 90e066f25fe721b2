"""The figure of `migrator forecast evaluate`: forecasters side by side on every trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.io.whole_file import check_path, drawing_module, written_whole
from migrator.report.page import Axis, Bars, Block, Note, Page, Section, Series, Table, paint_of
from migrator.report.page_html import write_page


@dataclass(frozen=True)
class ForecastRow:
    """What a forecaster reached on a trace."""

    trace: str
    forecaster: str
    windows: int
    mean: float
    mae: float
    wape: float | None
    """Over the mean, as `pinball` is; None where nothing came."""
    pinball: float | None
    coverage: float
    ms: float
    note: str = ""


MEASURES: dict[str, tuple[str, Callable[[ForecastRow], float | None]]] = {
    "WAPE": ("mean absolute error over the mean", lambda row: row.wape),
    "pinball": (
        "mean loss of the 10%, 50% and 90% quantiles over the mean",
        lambda row: row.pinball,
    ),
    "coverage": ("slots inside the nominal 80% interval", lambda row: row.coverage),
    "time": ("milliseconds for one forecast, median", lambda row: row.ms),
}
"""What is drawn: its meaning and its value."""

HEADERS = ("trace", "forecaster", "windows", "mean", "MAE", "WAPE", "pinball", "coverage", "ms")


def cells(row: ForecastRow) -> tuple[str, ...]:
    """A row in words, under `HEADERS`."""
    numbers = (row.mae, row.wape, row.pinball, row.coverage)
    return (
        row.trace,
        row.forecaster,
        str(row.windows),
        f"{row.mean:.2f}",
        *("-" if each is None else f"{each:.3f}" for each in numbers),
        f"{row.ms:.1f}",
    )


def draw_forecasts(
    rows: Sequence[ForecastRow], notes: Sequence[str], path: Path, option: str = "--figure"
) -> None:
    """Draw as HTML or PNG; a failure or Ctrl-C leaves no file that looks whole."""
    check_forecast_path(path, option)
    if path.suffix.lower() == ".html":
        write_page(forecast_page(rows, notes), path, option)
        return
    write: Callable[[Sequence[ForecastRow], Path], None]
    write = drawing_module("migrator.report.forecast_png", option).write
    with written_whole(path, option) as unfinished:
        write(rows, unfinished)


def check_forecast_path(path: Path, option: str = "--figure") -> None:
    """InputError where the figure cannot go to `path`; to be asked before the work."""
    check_path(path, (".html", ".png"), option)


def names_of(rows: Sequence[ForecastRow]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Traces and forecasters, in order of appearance."""
    traces = tuple(dict.fromkeys(row.trace for row in rows))
    return traces, tuple(dict.fromkeys(row.forecaster for row in rows))


def forecast_page(rows: Sequence[ForecastRow], notes: Sequence[str]) -> Page:
    """The page of at least one row."""
    traces, forecasters = names_of(rows)
    blocks: list[Block] = [_bars(each, rows, traces, forecasters) for each in MEASURES]
    blocks.append(_table(rows))
    parts = [Section("By trace and forecaster", "measures", (), tuple(blocks))]
    if notes:
        parts.append(Section("How it was done", "how", (), (Note("Split", tuple(notes)),)))
    counted = "1 trace" if len(traces) == 1 else f"{len(traces)} traces"
    lead = f"{', '.join(forecasters)} on {counted}, window by window, never seeing ahead."
    return Page("Forecasters compared", lead, tuple(parts))


def _bars(
    measure: str,
    rows: Sequence[ForecastRow],
    traces: tuple[str, ...],
    forecasters: tuple[str, ...],
) -> Bars:
    meaning, value = MEASURES[measure]
    found = {(row.trace, row.forecaster): value(row) for row in rows}
    series = tuple(
        Series(name, tuple(found.get((trace, name)) for trace in traces), paint=paint_of(index))
        for index, name in enumerate(forecasters)
    )
    title = f"{measure[0].upper()}{measure[1:]}: {meaning}"
    y = Axis(measure, "ms" if measure == "time" else "", share=measure == "coverage")
    return Bars(title, traces, series, Axis("trace"), y)


def _table(rows: Sequence[ForecastRow]) -> Table:
    numeric = frozenset(range(2, len(HEADERS)))
    return Table("All figures", HEADERS, tuple(map(cells, rows)), numeric)
