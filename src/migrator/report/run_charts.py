"""A run's charts: what became of requests, what was promised, what came."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.core.outcome import RunOutcome, Tally, WindowOutcome
from migrator.report.page import Axis, Bars, Lines, Paint, Series
from migrator.report.run_allocation import TIME

FATES = ("goodput", "wrong", "late", "dropped", "queued")
"""What can become of a request, in the words of `Tally`."""
_PAINTS = {
    "goodput": Paint(0),
    "wrong": Paint(4),
    "late": Paint(1),
    "dropped": Paint(5, hatched=True),
    "queued": Paint(None),
}
_REQUESTS = Axis("requests")


def fate_chart(run: RunOutcome) -> Bars:
    """What became of every window's requests, stacked."""
    return _fates(
        "What became of the requests, by window",
        [str(each.window) for each in run.windows],
        [each.tally for each in run.windows],
        Axis("window"),
    )


def tenant_fate_chart(run: RunOutcome) -> Bars:
    """What became of every tenant's requests, stacked."""
    totals = run.tenants
    title = "What became of the requests, by tenant"
    return _fates(title, list(totals), list(totals.values()), Axis("tenant"))


def _fates(title: str, names: Sequence[str], tallies: Sequence[Tally], x: Axis) -> Bars:
    series = [
        # Never below nothing: a window that empties the queue of the one before has fewer waiting.
        Series(fate, tuple(max(0.0, getattr(each, fate)) for each in tallies), paint=paint)
        for fate, paint in _PAINTS.items()
    ]
    shown = tuple(each for each in series if any(each.values))
    return Bars(title, tuple(names), shown or tuple(series[:1]), x, _REQUESTS, stacked=True)


def promise_chart(run: RunOutcome) -> Lines | None:
    """Goodput measured, promised and in the fluid model; None where nothing was promised."""
    series = [Series("measured", tuple(each.tally.goodput for each in run.windows))]
    predicted = tuple(each.predicted for each in run.windows)
    fluid = tuple(each.fluid for each in run.windows)
    if any(each is not None for each in predicted):
        series.append(Series("predicted on the forecast", predicted, dashed=True))
    if any(each is not None for each in fluid):
        series.append(Series("fluid model on what came", fluid))
    if len(series) == 1 or len(run.windows) == 1:
        return None
    at = tuple(float(each.window) for each in run.windows)
    title = "Goodput promised and measured, by window"
    return Lines(title, at, tuple(series), Axis("window"), Axis("goodput", "requests"))


def arrivals_chart(window: WindowOutcome, slot_s: float, tenants: Sequence[str]) -> Lines:
    """What came in every slot of a window, and what was expected."""
    series = []
    for each in window.tenants:
        paint = Paint(tenants.index(each.tenant) % 7)
        came = tuple(float(count) for count in each.received)
        series.append(Series(each.tenant, came, paint=paint))
        if each.expected is not None:
            name = f"{each.tenant}, expected"
            series.append(Series(name, each.expected, paint=paint, dashed=True))
    slots = max(len(each.received) for each in window.tenants)
    return Lines(
        title=f"Window {window.window}: arrivals",
        at=tuple(slot * slot_s for slot in range(slots)),
        series=tuple(series),
        x=TIME,
        y=Axis("requests per slot"),
        until=slots * slot_s,
    )
