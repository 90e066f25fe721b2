"""The report of `migrator load`: one page on what clients saw of a live run."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.core.load_outcome import ClientSeconds, ClientTally, LoadOutcome
from migrator.report.load_text import cells, load_sentences
from migrator.report.page import Axis, Bars, Lines, Page, Paint, Section, Series, Table

_HEADERS = (
    *("window", "tenant", "sent", "goodput", "goodput share", "SLO attainment", "accuracy"),
    *("late", "dropped", "refused", "failed", "p50 ms", "p95 ms", "p99 ms", "versions"),
)
_WORDS = (
    "As the sender of the requests saw it: latency counts from the moment a request was due. "
    "Goodput share and SLO attainment are parts of what was sent; accuracy is the correct part of "
    "what was answered in time. Dropped: given up by the server, as the deadline could not be met."
)
_REQUESTS, _WINDOW = Axis("requests"), Axis("window")


def load_page(outcome: LoadOutcome) -> Page:
    """The page of a load."""
    lead = (
        f"{outcome.whole.sent:,} requests to {outcome.url}, of which {outcome.whole.goodput:,} "
        f"({outcome.whole.goodput_share:.1%}) were answered in time and correctly."
    )
    sections = (
        Section("Result", "result", (_WORDS, *_told(outcome)), (_table(outcome), _fates(outcome))),
        Section("Windows", "windows", (), (_shares(outcome, "accuracy"), _latencies(outcome))),
        Section("Seconds", "seconds", (), tuple(_seconds(outcome))),
    )
    return Page(f"MIGRator: {outcome.scenario} as clients saw it", lead, sections)


def _told(outcome: LoadOutcome) -> tuple[str, ...]:
    return tuple(f"{each[0].upper()}{each[1:]}." for each in load_sentences(outcome))


def _table(outcome: LoadOutcome) -> Table:
    rows = [
        (str(window.window), name, *cells(tally))
        for window in outcome.windows
        for name, tally in window.tenants.items()
    ]
    rows += [("all", name, *cells(tally)) for name, tally in outcome.tenants.items()]
    rows.append(("all", "all", *cells(outcome.whole)))
    numeric = frozenset(range(2, len(_HEADERS) - 1))
    return Table("What became of the requests", _HEADERS, tuple(rows), numeric)


def _names(outcome: LoadOutcome) -> tuple[str, ...]:
    return tuple(str(each.window) for each in outcome.windows)


def _fates(outcome: LoadOutcome) -> Bars:
    tallies = [each.whole for each in outcome.windows]
    parts = {
        "goodput": (Paint(0), [each.goodput for each in tallies]),
        "wrong": (Paint(4), [each.wrong for each in tallies]),
        "late": (Paint(1), [each.late for each in tallies]),
        "dropped": (Paint(5, hatched=True), [each.dropped for each in tallies]),
        "refused": (Paint(2), [sum(each.refused.values()) for each in tallies]),
        "failed": (Paint(None), [sum(each.failed.values()) for each in tallies]),
    }
    series = tuple(
        Series(name, tuple(map(float, values)), paint=paint)
        for name, (paint, values) in parts.items()
        if any(values) or name == "goodput"
    )
    title = "What became of the requests, by window"
    return Bars(title, _names(outcome), series, _WINDOW, _REQUESTS, stacked=True)


def _shares(outcome: LoadOutcome, name: str) -> Bars:
    series = tuple(
        Series(tenant, tuple(getattr(each.tenants[tenant], name) for each in outcome.windows))
        for tenant in outcome.tenants
    )
    title = f"{name.capitalize()} of what was answered in time"
    return Bars(title, _names(outcome), series, _WINDOW, Axis(name, share=True))


def _latencies(outcome: LoadOutcome) -> Bars:
    def ms(tally: ClientTally, name: str) -> float | None:
        return None if tally.latencies is None else getattr(tally.latencies, name) * 1e3

    series = tuple(
        Series(f"{tenant}, {name[:3]}", tuple(ms(w.tenants[tenant], name) for w in outcome.windows))
        for tenant in outcome.tenants
        for name in ("p50_s", "p99_s")
    )
    return Bars("Latency", _names(outcome), series, _WINDOW, Axis("latency", "ms"))


def _seconds(outcome: LoadOutcome) -> Iterator[Lines]:
    for tenant, seconds in outcome.seconds.items():
        yield _lines(tenant, seconds)


def _lines(tenant: str, seconds: ClientSeconds) -> Lines:
    rows = {"sent": seconds.sent, "in time": seconds.in_time, "goodput": seconds.goodput}
    return Lines(
        f"{tenant}, second by second",
        tuple(float(each) for each in range(len(seconds.sent))),
        tuple(Series(name, tuple(map(float, row))) for name, row in rows.items()),
        Axis("time", "s"),
        Axis("requests per second"),
        until=float(len(seconds.sent)),
    )
