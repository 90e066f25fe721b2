"""A live run's tables: tenants, windows, versions, starts, events."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.records.views import Counted, LiveRun, LiveWindow, start_s
from migrator.report.live_charts import rest_s, when
from migrator.report.live_text import moment, percent
from migrator.report.page import Table

_MOST_ROWS = 60
"""A longer table is folded away."""
_MOST_EVENTS = 500
_NONE = "-"
_COUNTED = (
    *("received", "goodput", "goodput share", "SLO attainment", "accuracy"),
    *("wrong", "late", "dropped", "failed", "while reconfig\u00aduring"),
)
_PARTS = ("create_s", "load_s", "context_s", "copy_s", "first_s")


def tenants_table(run: LiveRun) -> Table:
    """Every tenant over the windows that have ended."""
    rows = [(name, *counted_cells(each)) for name, each in run.totals.items()]
    if len(rows) > 1:
        rows.append(("all", *counted_cells(run.whole)))
    headers = ("tenant", *_COUNTED)
    return _table("All windows that have ended", headers, rows, words=1)


def windows_table(run: LiveRun) -> Table:
    """Every window and tenant: what was measured."""
    rows = []
    for window in run.windows:
        counts = [*window.tenants.items(), ("all", window.whole)]
        rows += [(_called(window), name, *counted_cells(each)) for name, each in counts]
    return _table("By window and tenant", ("window", "tenant", *_COUNTED), rows, words=2)


def _called(window: LiveWindow) -> str:
    return f"{window.row.window}{'' if window.ended else ', not ended'}"


def plans_table(run: LiveRun) -> Table:
    """Every window's plan: what it promised, what came of it, what deciding took."""
    headers = (
        *("window", "forecaster", "goodput promised", "measured", "promised to measured"),
        *("planning (s)", "planned again"),
    )
    rows = []
    for window in run.windows:
        row, measured = window.row, window.whole.goodput
        promised = row.predicted_goodput
        more = _NONE if promised is None or not measured else f"{promised / measured - 1:+.1%}"
        took = _NONE if row.plan_s is None else f"{row.plan_s:.3g}"
        counts = (_number(promised), _number(measured))
        rows.append((_called(window), row.forecaster, *counts, more, took, str(row.replans)))
    return _table("Plans", headers, rows, words=2)


def accuracies_table(run: LiveRun) -> Table | None:
    """Every window and tenant: the accuracy of its model, and what retraining should bring."""
    rows = []
    for window in run.windows:
        for name, row in window.rows.items():
            parts = (row.accuracy_before, row.accuracy_estimated, row.accuracy_after)
            version = _NONE if row.version is None else str(row.version)
            rows.append((_called(window), name, *map(percent, parts), version, f"{row.labelled:,}"))
    headers = (
        *("window", "tenant", "accuracy at its begin", "expected of retraining"),
        *("accuracy at its end", "version at its end", "labels"),
    )
    return _table("Models by window", headers, rows, words=2) if rows else None


def counted_cells(each: Counted) -> tuple[str, ...]:
    """Requests by what became of them."""
    return (
        f"{each.received:,}",
        _number(each.goodput),
        percent(each.share),
        percent(each.slo_attainment),
        percent(each.accuracy),
        _number(each.wrong),
        f"{each.late:,}",
        f"{each.dropped:,}",
        f"{each.failed:,}",
        _number(each.while_reconfiguring),
    )


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.0f}"


def versions_table(run: LiveRun) -> Table | None:
    """Every model that was retrained, adopted or refused."""
    rows = [
        (
            moment(each.at_s, run.zero_s),
            each.tenant,
            str(each.number) if each.adopted else _NONE,
            percent(each.accuracy),
            "adopted" if each.adopted else "refused",
            each.why,
        )
        for each in sorted(run.records.versions, key=lambda row: row.at_s)
    ]
    headers = ("time", "tenant", "version", "accuracy", "became", "why")
    return _table("Retrained models", headers, rows, words=2) if rows else None


def starts_table(run: LiveRun) -> Table | None:
    """Every start and its parts in seconds."""
    headers = (
        *("time", "instance", "tenant", "created", "weights", "context", "copy", "first batch"),
        *("everything else", "in all"),
    )
    rows = [
        (
            when(run, each),
            each.unit.partition("#")[0],
            each.tenant or "",
            *(f"{each.parts_s.get(part, 0.0):.3f}" for part in _PARTS),
            f"{rest_s(each):.3f}",
            f"{start_s(each.parts_s):.3f}",
        )
        for each in run.starts
    ]
    return _table("Starts and their parts in seconds", headers, rows, words=3) if rows else None


def events_table(run: LiveRun) -> Table | None:
    """What a person may want to know, the newest where there are many."""
    events = run.records.events
    if not events:
        return None
    shown = events[-_MOST_EVENTS:]
    rows = []
    for each in shown:
        window = run.window_at(each.at_s)
        number = _NONE if window is None else str(window.row.window)
        rows.append((moment(each.at_s, run.zero_s), number, each.kind, each.words))
    caption = "Events" if len(shown) == len(events) else f"The last {len(shown)} events"
    return _table(caption, ("time", "window", "event", "what"), rows, words=4)


def _table(
    caption: str, headers: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, words: int
) -> Table:
    """The first `words` columns, and any that is not of numbers, are text."""
    numeric = {
        column
        for column in range(words, len(headers))
        if not any(any(map(str.isalpha, row[column])) for row in rows)
    }
    return Table(caption, headers, tuple(rows), frozenset(numeric), folded=len(rows) > _MOST_ROWS)
