"""A live run's charts besides its slices: requests, accuracy, versions, starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from migrator.records.rows import SecondRecord, UnitRecord
from migrator.records.views import Counted, LiveRun, LiveWindow, start_s
from migrator.report.page import Areas, Axis, Bars, Lines, Paint, Series

TIME = Axis("time since the first window", "s")
_REQUESTS, _PER_S = Axis("requests"), Axis("requests per second")
_WINDOW = Axis("window")
_GOOD, _WRONG, _LATE = Paint(0), Paint(4), Paint(1)
_DROPPED, _OPEN, _FAILED = Paint(5, hatched=True), Paint(None), Paint(3)
_PARTS = (
    ("create_s", "instance created"),
    ("load_s", "weights loaded"),
    ("context_s", "context"),
    ("copy_s", "copied to the GPU"),
    ("first_s", "first batch"),
)
MOST_STARTS = 30
"""Starts that are drawn, the last ones."""


def fate_chart(title: str, names: Sequence[str], counts: Sequence[Counted], x: Axis) -> Bars:
    """What became of requests, stacked; what is not judged yet is answered in time."""
    parts: dict[str, tuple[Paint, Callable[[Counted], float]]] = {
        "goodput": (_GOOD, lambda each: each.goodput or 0.0),
        "in time, not judged yet": (
            replace(_GOOD, light=True),
            lambda each: each.in_time if each.goodput is None else 0.0,
        ),
        "wrong": (_WRONG, lambda each: each.wrong or 0.0),
        "late": (_LATE, lambda each: each.late),
        "dropped": (_DROPPED, lambda each: each.dropped),
        "failed": (_FAILED, lambda each: each.failed),
        "unanswered": (_OPEN, lambda each: each.unanswered),
    }
    series = [
        Series(name, tuple(float(part(each)) for each in counts), paint=paint)
        for name, (paint, part) in parts.items()
    ]
    shown = tuple(each for each in series if any(each.values))
    return Bars(title, tuple(names), shown or tuple(series[:1]), x, _REQUESTS, stacked=True)


def window_fates(run: LiveRun) -> Bars:
    """All tenants together, by window."""
    title = "What became of the requests, by window"
    return fate_chart(title, _names(run.windows), [each.whole for each in run.windows], _WINDOW)


def tenant_fates(run: LiveRun, tenant: str) -> Bars:
    """One tenant by window."""
    counts = [each.tenants[tenant] for each in run.windows]
    title = f"{tenant}: what became of the requests, by window"
    return fate_chart(title, _names(run.windows), counts, _WINDOW)


def _names(windows: Sequence[LiveWindow]) -> list[str]:
    return [str(each.row.window) for each in windows]


def promise_chart(run: LiveRun) -> Bars | None:
    """Goodput promised and measured; None where nothing was promised."""
    ended = [each for each in run.windows if each.ended]
    promised = tuple(each.row.predicted_goodput for each in ended)
    if all(each is None for each in promised):
        return None
    measured = tuple(each.whole.goodput for each in ended)
    series = (
        Series("measured", measured, paint=_GOOD),
        Series("promised by the plan", promised, paint=replace(_GOOD, light=True, hatched=True)),
    )
    goodput = Axis("goodput", "requests")
    return Bars("Goodput promised and measured", tuple(_names(ended)), series, _WINDOW, goodput)


# Second by second


def shown_seconds(
    run: LiveRun, tenant: str, windows: Sequence[LiveWindow]
) -> tuple[SecondRecord, ...]:
    """A tenant's seconds within these windows."""
    if not windows:
        return ()
    first_s, until_s = windows[0].row.began_s, windows[-1].until_s
    return tuple(
        each
        for each in run.records.seconds
        if each.tenant == tenant and first_s <= run.second_s(each) + 0.5 < until_s
    )


def arrivals_chart(tenant: str, hue: int, seconds: Sequence[SecondRecord]) -> Lines | None:
    """What came of one tenant against the forecast and its band."""
    if not seconds:
        return None
    series = [Series("received", tuple(e.received / e.span_s for e in seconds), paint=Paint(hue))]
    if any(each.forecast_mean is not None for each in seconds):
        band = Paint(None, light=True)
        low = Series("forecast, 10% quantile", tuple(e.forecast_low for e in seconds), paint=band)
        high = tuple(each.forecast_high for each in seconds)
        mean = tuple(each.forecast_mean for each in seconds)
        series = [
            low,
            Series("forecast, 90% quantile", high, paint=band, filled="forecast, 10% to 90%"),
            *series,
            Series("forecast, mean", mean, paint=Paint(hue), dashed=True),
        ]
    return Lines(
        f"{tenant}: arrivals against the forecast",
        tuple(float(each.second) for each in seconds),
        tuple(series),
        TIME,
        _PER_S,
        until=_until(seconds),
    )


def seconds_chart(tenant: str, seconds: Sequence[SecondRecord]) -> Areas | None:
    """What became of one tenant's requests, second by second; None where nobody counted it."""
    if not any(e.received for e in seconds) or any(e.in_time is None for e in seconds):
        return None
    parts: dict[str, tuple[Paint, Callable[[SecondRecord], float]]] = {
        "in time": (_GOOD, lambda each: (each.in_time or 0) - (each.wrong or 0.0)),
        "in time, expected to be wrong": (_WRONG, lambda each: each.wrong or 0.0),
        "late": (_LATE, lambda each: each.late),
        "dropped": (_DROPPED, lambda each: each.dropped),
        "failed": (_FAILED, lambda each: each.failed),
    }
    series = tuple(
        Series(name, tuple(part(each) / each.span_s for each in seconds), paint=paint)
        for name, (paint, part) in parts.items()
    )
    shown = tuple(each for at, each in enumerate(series) if at in (0, 2, 3) or any(each.values))
    return Areas(
        f"{tenant}: in time, late and dropped",
        tuple(float(each.second) for each in seconds),
        _until(seconds),
        shown,
        TIME,
        _PER_S,
    )


def _until(seconds: Sequence[SecondRecord]) -> float:
    return float(seconds[-1].second + seconds[-1].span_s)


# Models


def accuracy_chart(run: LiveRun) -> Lines | None:
    """Accuracy as it was known at every moment; a jump inside a window is a model swapped in."""
    found = {name: list(_accuracies(run, name)) for name in run.tenants}
    title, y = "Accuracy of the models that serve", Axis("accuracy", share=True)
    return _steps(run, found, title, y)


def version_chart(run: LiveRun) -> Lines | None:
    """Which version served when; None where none was ever swapped."""
    found = {name: list(_numbers(run, name)) for name in run.tenants}
    if all(len({number for _, number in each}) < 2 for each in found.values()):
        return None
    return _steps(run, found, "Version of the models that serve", Axis("version"))


def _accuracies(run: LiveRun, tenant: str) -> Iterator[tuple[float, float]]:
    for window in run.windows:
        row = window.rows.get(tenant)
        if row is not None and row.accuracy_before is not None:
            yield window.row.began_s, row.accuracy_before
    for each in run.records.versions:
        if each.tenant == tenant and each.adopted and each.accuracy is not None:
            yield each.at_s, each.accuracy


def _numbers(run: LiveRun, tenant: str) -> Iterator[tuple[float, float]]:
    adopted = [each for each in run.records.versions if each.tenant == tenant and each.adopted]
    rows = [row for window in run.windows if (row := window.rows.get(tenant)) and row.version]
    first = adopted[0].number - 1 if adopted else rows[0].version if rows else None
    if first:
        yield run.zero_s, float(first)
    for each in adopted:
        yield each.at_s, float(each.number)


def _steps(
    run: LiveRun, found: dict[str, list[tuple[float, float]]], title: str, y: Axis
) -> Lines | None:
    """Values that hold until the next is known, over all moments at which any changes."""
    moments = sorted({at_s for each in found.values() for at_s, _ in each})
    if not moments:
        return None
    series = tuple(
        Series(name, tuple(_at(each, moment) for moment in moments), paint=Paint(hue % 7))
        for hue, (name, each) in enumerate(found.items())
        if each
    )
    until = max(run.windows[-1].until_s if run.windows else moments[-1], moments[-1] + run.slot_s)
    at = tuple(round(each - run.zero_s, 1) for each in moments)
    return Lines(title, at, series, TIME, y, until=round(until - run.zero_s, 1))


def _at(values: Sequence[tuple[float, float]], moment: float) -> float | None:
    known = [each for each in sorted(values) if each[0] <= moment]
    return known[-1][1] if known else None


# Starts


def starts_chart(run: LiveRun) -> Bars | None:
    """What every start consisted of, the last ones where there are many."""
    shown = run.starts[-MOST_STARTS:]
    if not shown:
        return None
    series = [
        Series(name, tuple(each.parts_s.get(part, 0.0) for each in shown))
        for part, name in (*_PARTS, ("", "everything else"))
    ]
    series[-1] = Series("everything else", tuple(map(rest_s, shown)), paint=Paint(None))
    return Bars(
        "What every start consisted of",
        tuple(f"{when(run, each)}: {_where(each)}" for each in shown),
        tuple(each for each in series if any(each.values)) or tuple(series[:1]),
        Axis("start"),
        Axis("overhead", "s"),
        stacked=True,
        horizontal=True,
    )


def when(run: LiveRun, start: UnitRecord) -> str:
    """When a start was, counted from the first window."""
    at_s = start.from_s - run.zero_s
    return f"{at_s:.1f} s" if at_s >= 0 else "before"


def _where(unit: UnitRecord) -> str:
    return f"{unit.tenant} {unit.unit.partition('#')[0]}"


def rest_s(unit: UnitRecord) -> float:
    """Of a start: what no part of it says."""
    known = sum(unit.parts_s.get(part, 0.0) for part, _ in _PARTS)
    return max(0.0, start_s(unit.parts_s) - known)
