"""Charts and tables of a run: requests, goodput, accuracy, versions, starts, events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from migrator.core.outcome import Tally
from migrator.records.rows import SecondRecord, UnitRecord
from migrator.records.runs import RecordedRun, RecordedWindow, start_duration_s
from migrator.report.page import Axis, Bars, Lines, Series, Table
from migrator.report.paint import (
    DROPPED,
    FAILED,
    GOOD,
    HUES,
    LATE,
    UNANSWERED,
    UNJUDGED,
    WRONG,
    Paint,
)
from migrator.report.terminal import NONE, UNKNOWN, moment, number, percent

MOST_STARTS = 30
"""Starts that are drawn, the last ones."""
_MOST_ROWS = 60
"""Longer tables are folded."""
_MOST_EVENTS = 500
_TIME = Axis("time since the first window", "s")
_REQUESTS, _PER_S = Axis("requests"), Axis("requests per second")
_WINDOW, GOODPUT = Axis("window"), Axis("goodput", "requests")
_OUTCOMES: Mapping[str, tuple[Paint, Callable[[Tally], float]]] = {
    "goodput": (GOOD, lambda tally: tally.goodput),
    "in time, unknown": (UNJUDGED, lambda tally: tally.unjudged),
    "wrong": (WRONG, lambda tally: tally.wrong),
    "late": (LATE, lambda tally: tally.late),
    "dropped": (DROPPED, lambda tally: tally.dropped),
    "failed": (FAILED, lambda tally: tally.failed),
    # a window that also answers requests of the one before has fewer than none waiting
    "unanswered": (UNANSWERED, lambda tally: max(0.0, tally.queued)),
}
_PARTS = {
    "create_s": "instance created",
    "load_s": "weights loaded",
    "context_s": "context",
    "copy_s": "copied to the GPU",
    "first_s": "first batch",
}
RETRAINING_PARTS = {
    "start_s": "start",
    "data_s": "data",
    "first_s": "first steps",
    "epochs_s": "other steps",
    "evaluation_s": "evaluation",
    "checkpoints_s": "checkpoints",
    "save_s": "saving",
    "hand_over_s": "handing over",
}
"""Parts of a retraining, in their order."""
TALLY_HEADERS = (
    *("received", "goodput", "goodput share", "SLO attainment", "accuracy"),
    *("wrong", "late", "dropped", "failed", "unanswered", "while reconfig\u00aduring"),
)


def tally_cells(tally: Tally) -> tuple[str, ...]:
    """The cells under `TALLY_HEADERS`."""
    judged = tally.received and not tally.unjudged
    return (
        f"{tally.received:,}",
        UNKNOWN if tally.unjudged else number(tally.goodput),
        percent(tally.goodput_share if judged else None),
        percent(tally.slo_attainment if tally.received else None),
        percent(tally.accuracy if judged and tally.in_time else None),
        number(None if tally.unjudged else tally.wrong),
        *map(number, (tally.late, tally.dropped, tally.failed, tally.queued)),
        number(tally.while_reconfiguring),
    )


def table(
    caption: str, headers: Sequence[str], rows: Sequence[tuple[str, ...]], *, text_columns: int
) -> Table:
    """A table whose first `words` columns are text, as are others that contain letters."""
    numeric = {
        column
        for column in range(text_columns, len(headers))
        if not any(any(map(str.isalpha, row[column])) for row in rows)
    }
    folded = len(rows) > _MOST_ROWS
    return Table(caption, tuple(headers), tuple(rows), frozenset(numeric), folded=folded)


# Requests


def window_outcomes(run: RecordedRun) -> Bars:
    """What became of the requests of every window."""
    names, tallies = _numbers(run.windows), [window.tally for window in run.windows]
    series = [
        Series(name, tuple(float(part(tally)) for tally in tallies), paint=paint)
        for name, (paint, part) in _OUTCOMES.items()
    ]
    shown = tuple(row for row in series if any(row.values)) or tuple(series[:1])
    title = "What became of the requests, by window"
    return Bars(title, tuple(names), shown, _WINDOW, _REQUESTS, stacked=True)


def _numbers(windows: Sequence[RecordedWindow]) -> list[str]:
    return [str(window.number) for window in windows]


def prediction_chart(run: RecordedRun) -> Bars | None:
    """Goodput predicted and measured; None where nothing was predicted."""
    ended = run.ended
    predicted = tuple(window.row.predicted_goodput for window in ended)
    fluid = tuple(window.fluid for window in ended)
    if all(goodput is None for goodput in (*predicted, *fluid)):
        return None
    series = [
        Series("measured", tuple(window.tally.known_goodput for window in ended), paint=GOOD),
        Series("predicted by the plan", predicted, paint=replace(GOOD, light=True, hatched=True)),
    ]
    if any(goodput is not None for goodput in fluid):
        name = "the plan in the fluid model, on the real arrivals"
        series.append(Series(name, fluid, paint=Paint(0)))
    names = tuple(_numbers(ended))
    return Bars("Goodput predicted and measured", names, tuple(series), _WINDOW, GOODPUT)


def tenants_table(run: RecordedRun) -> Table:
    """Every tenant over the windows that have ended."""
    rows = [(name, *tally_cells(total)) for name, total in run.totals.items()]
    if len(rows) > 1:
        rows.append(("all", *tally_cells(run.tally)))
    return table("All windows that have ended", ("tenant", *TALLY_HEADERS), rows, text_columns=1)


def windows_table(run: RecordedRun) -> Table:
    """Every window and tenant: what was measured."""
    rows = []
    for window in run.windows:
        for name, tenant in window.tenants.items():
            new = window.reconfigurations.get(name, 0)
            cells = (*tally_cells(tenant), f"{new:,}", _retrained(run, window, name))
            rows.append((_name(window), name, *cells))
        new = sum(window.reconfigurations.values())
        rows.append((_name(window), "all", *tally_cells(window.tally), f"{new:,}", ""))
    headers = ("window", "tenant", *TALLY_HEADERS, "new instances", "retrained")
    return table("By window and tenant", headers, rows, text_columns=2)


def _retrained(run: RecordedRun, window: RecordedWindow, tenant: str) -> str:
    row, at_s = window.rows.get(tenant), run.retrained_s(window, tenant)
    before = percent(row.accuracy_before if row else None)
    if at_s is None:
        return f"no, {before}"
    return f"{at_s:.3g} s, {before} → {percent(row.accuracy_after if row else None)}"


def _name(window: RecordedWindow) -> str:
    return f"{window.number}{'' if window.ended else ', not ended'}"


def plans_table(run: RecordedRun) -> Table:
    """Every window's plan: predicted goodput, measured goodput, planning time."""
    headers = (
        *("window", "forecaster", "goodput predicted", "measured", "predicted to measured"),
        *("planning (s)", "replanned"),
    )
    rows = []
    for window in run.windows:
        row, measured = window.row, window.tally.known_goodput
        predicted = row.predicted_goodput
        goodputs = (number(predicted), number(measured), _relative(predicted, measured))
        took = NONE if row.plan_s is None else f"{row.plan_s:.3g}"
        rows.append((_name(window), row.forecaster, *goodputs, took, str(row.replans)))
    return table("Plans", headers, rows, text_columns=2)


def _relative(predicted: float | None, measured: float | None) -> str:
    return NONE if predicted is None or not measured else f"{predicted / measured - 1:+.1%}"


# Second by second


def seconds_of(
    run: RecordedRun, tenant: str, windows: Sequence[RecordedWindow]
) -> tuple[SecondRecord, ...]:
    """A tenant's seconds within these windows."""
    if not windows:
        return ()
    first_s, until_s = windows[0].row.began_s, windows[-1].until_s
    return tuple(
        second
        for second in run.records.seconds
        if second.tenant == tenant and first_s <= run.second_s(second) + 0.5 < until_s
    )


def arrivals_chart(tenant: str, hue: int, seconds: Sequence[SecondRecord]) -> Lines | None:
    """Arrivals of one tenant, the forecast and its band."""
    if not seconds:
        return None
    received = tuple(second.received / second.span_s for second in seconds)
    series = [Series("received", received, paint=Paint(hue))]
    if any(second.forecast_low is not None for second in seconds):
        band = Paint(None, light=True)
        low = Series(
            "forecast, 10% quantile", tuple(second.forecast_low for second in seconds), paint=band
        )
        high = tuple(second.forecast_high for second in seconds)
        name, filled = "forecast, 90% quantile", "forecast, 10% to 90%"
        series = [low, Series(name, high, paint=band, filled=filled), *series]
    if any(second.forecast_mean is not None for second in seconds):
        mean = tuple(second.forecast_mean for second in seconds)
        series.append(Series("forecast, mean", mean, paint=Paint(hue), dashed=True))
    return Lines(
        f"{tenant}: arrivals against the forecast",
        tuple(float(second.second) for second in seconds),
        tuple(series),
        _TIME,
        _PER_S,
        until=_until(seconds),
    )


def seconds_chart(tenant: str, seconds: Sequence[SecondRecord]) -> Lines | None:
    """What became of one tenant's requests per second; None where it was not recorded."""
    if not any(second.received for second in seconds) or any(
        second.in_time is None for second in seconds
    ):
        return None
    parts: dict[str, tuple[Paint, Callable[[SecondRecord], float]]] = {
        "in time": (GOOD, lambda second: (second.in_time or 0) - (second.wrong or 0.0)),
        "in time, expected to be wrong": (WRONG, lambda second: second.wrong or 0.0),
        "late": (LATE, lambda second: second.late),
        "dropped": (DROPPED, lambda second: second.dropped),
        "failed": (FAILED, lambda second: second.failed),
    }
    series = tuple(
        Series(name, tuple(part(second) / second.span_s for second in seconds), paint=paint)
        for name, (paint, part) in parts.items()
    )
    always = ("in time", "late", "dropped")
    return Lines(
        f"{tenant}: in time, late and dropped",
        tuple(float(second.second) for second in seconds),
        tuple(row for row in series if row.name in always or any(row.values)),
        _TIME,
        _PER_S,
        until=_until(seconds),
        stacked=True,
    )


def _until(seconds: Sequence[SecondRecord]) -> float:
    return float(seconds[-1].second + seconds[-1].span_s)


# Models


def accuracy_chart(run: RecordedRun) -> Lines | None:
    """Accuracy as known at every moment; a jump inside a window is a new model."""
    accuracies = {name: sorted(_accuracies(run, name)) for name in run.tenants}
    moments = sorted({at_s for changes in accuracies.values() for at_s, _ in changes})
    if not moments:
        return None

    def at(changes: Sequence[tuple[float, float]], at_s: float) -> float | None:
        return next((value for since_s, value in reversed(changes) if since_s <= at_s), None)

    series = tuple(
        Series(name, tuple(at(changes, at_s) for at_s in moments), paint=Paint(hue % HUES))
        for hue, (name, changes) in enumerate(accuracies.items())
        if changes
    )
    until = max(run.windows[-1].until_s if run.windows else moments[-1], moments[-1] + run.slot_s)
    return Lines(
        "Accuracy of the models that serve",
        tuple(round(moment - run.zero_s, 1) for moment in moments),
        series,
        _TIME,
        Axis("accuracy", share=True),
        until=round(until - run.zero_s, 1),
    )


def _accuracies(run: RecordedRun, tenant: str) -> Iterator[tuple[float, float]]:
    for window in run.windows:
        row = window.rows.get(tenant)
        if row is not None and row.accuracy_before is not None:
            yield window.row.began_s, row.accuracy_before
    for adoption in run.adoptions(tenant):
        if adoption.accuracy is not None:
            yield adoption.at_s, adoption.accuracy


def versions_table(run: RecordedRun) -> Table | None:
    """Every model that was retrained, adopted or refused."""
    rows = [
        (
            when(run, version.at_s),
            version.tenant,
            str(version.number) if version.adopted else NONE,
            percent(version.accuracy),
            "adopted" if version.adopted else "refused",
            version.why,
        )
        for version in sorted(run.records.versions, key=lambda row: row.at_s)
    ]
    headers = ("time", "tenant", "version", "accuracy", "result", "why")
    return table("Retrained models", headers, rows, text_columns=2) if rows else None


def retrainings_table(run: RecordedRun) -> Table | None:
    """Every retraining: planned, taken, and its parts in seconds."""
    rows = [
        (
            str(retraining.window),
            retraining.subject,
            *(f"{seconds or 0.0:.1f}" for seconds in (retraining.planned_s, retraining.taken_s)),
            f"{(retraining.taken_s or 0.0) / retraining.planned_s:.2f}"
            if retraining.planned_s
            else NONE,
            *(f"{retraining.parts_s.get(part, 0.0):.2f}" for part in RETRAINING_PARTS),
        )
        for window in run.windows
        for retraining in run.retrainings_of(window)
    ]
    headers = ("window", "tenant", "planned", "taken", "taken / planned")
    caption = "Retrainings and their parts in seconds"
    names = (*headers, *RETRAINING_PARTS.values())
    return table(caption, names, rows, text_columns=2) if rows else None


# Starts and events


def when(run: RecordedRun, at_s: float) -> str:
    """A local time; in a simulation the seconds since its beginning."""
    return f"{at_s - run.zero_s:.1f} s" if run.is_simulated else moment(at_s, run.zero_s)


def starts_chart(run: RecordedRun) -> Bars | None:
    """The parts of every start, the last ones where there are many."""
    shown = run.starts[-MOST_STARTS:]
    if not shown:
        return None
    series = [
        Series(name, tuple(unit.parts_s.get(part, 0.0) for unit in shown))
        for part, name in _PARTS.items()
    ]
    series.append(Series("everything else", tuple(map(_rest_s, shown)), paint=Paint(None)))
    return Bars(
        "Duration of every start, by part",
        tuple(f"{_since(run, unit)}: {unit.tenant} {_place(unit)}" for unit in shown),
        tuple(row for row in series if any(row.values)) or tuple(series[:1]),
        Axis("start"),
        Axis("overhead", "s"),
        stacked=True,
        horizontal=True,
    )


def _since(run: RecordedRun, start: UnitRecord) -> str:
    at_s = start.from_s - run.zero_s
    return f"{at_s:.1f} s" if at_s >= 0 else "before"


def _place(unit: UnitRecord) -> str:
    return unit.unit.partition("#")[0]


def _rest_s(unit: UnitRecord) -> float:
    """The part of a start that is in none of its recorded parts."""
    recorded_s = sum(unit.parts_s.get(part, 0.0) for part in _PARTS)
    return max(0.0, start_duration_s(unit.parts_s) - recorded_s)


def events_table(run: RecordedRun) -> Table | None:
    """Events, the newest where there are many."""
    events = run.records.events
    if not events:
        return None
    shown = events[-_MOST_EVENTS:]
    rows = []
    for event in shown:
        window = run.window_at(event.at_s)
        place = NONE if window is None else str(window.number)
        rows.append((when(run, event.at_s), place, event.kind, event.words))
    caption = "Events" if len(shown) == len(events) else f"The last {len(shown)} events"
    return table(caption, ("time", "window", "event", "what"), rows, text_columns=4)
