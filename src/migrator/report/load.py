"""What clients saw of a live run: the table, page and JSON of `migrator load`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from migrator.core.outcome import ClientSeconds, ClientTally, LoadOutcome
from migrator.report.page import Axis, Bars, Lines, Page, Section, Series, Table
from migrator.report.paint import DROPPED, FAILED, GOOD, LATE, REFUSED, WRONG, Paint, tenant_paint
from migrator.report.terminal import NONE, capitalised, count, grouped, percent, table_lines

_HEADERS = (
    *("window", "tenant", "sent", "goodput", "share", "SLO", "accuracy"),
    *("late", "drop", "refused", "failed", "p50", "p95", "p99", "version"),
)
_KEY = (
    "share: goodput / sent; SLO: in time / sent; drop: given up by the server; p50 to p99: ms\n"
    "from when a request was due to its answer; version: of the models that answered"
)
_PAGE_HEADERS = (
    *("window", "tenant", "sent", "goodput", "goodput share", "SLO attainment", "accuracy"),
    *("late", "dropped", "refused", "failed", "p50 ms", "p95 ms", "p99 ms", "versions"),
)
_WORDS = (
    "As measured by the client: latency counts from the moment a request was due. Goodput share "
    "and SLO attainment are parts of what was sent; accuracy is the correct part of what was "
    "answered in time. Dropped: given up by the server, as the deadline could not be met."
)
_REQUESTS, _WINDOW = Axis("requests"), Axis("window")


def load_table(outcome: LoadOutcome) -> str:
    """Per window and tenant and in all: what was sent and what became of it."""
    groups = [
        grouped(str(window.window), _lines_of(window.tenants, window.whole))
        for window in outcome.windows
    ]
    groups.append(grouped("all", _lines_of(outcome.tenants, outcome.whole)))
    what = f"{outcome.scenario} at {outcome.url} (seed {outcome.seed})"
    table = table_lines(_HEADERS, groups, text_columns=2, shrinks=1)
    return "\n".join([what, *table, "", _KEY, *load_sentences(outcome)])


def load_sentences(outcome: LoadOutcome) -> list[str]:
    """Losses by reason, labels stored, and how punctual the client was."""
    whole = outcome.whole
    lost = Counter(whole.refused) + Counter(whole.failed)
    sentences = [f"{times:,} {reason}" for reason, times in lost.most_common()]
    labels = whole.labels_stored + whole.labels_lost
    if labels:
        when = ", those of a window before it began" if outcome.labels_at == "start" else ""
        sentences.append(f"{whole.labels_stored:,} of {labels:,} labels stored{when}")
    sentences.append(f"99% of requests were sent within {outcome.lag_p99_s * 1e3:.1f} ms of due")
    if outcome.ended is not None:
        sentences.append(f"ended early: {outcome.ended}")
    return sentences


def _lines_of(tenants: Mapping[str, ClientTally], whole: ClientTally) -> list[tuple[str, ...]]:
    """A line per tenant, and one for all of them if there are several."""
    lines = [(name, *_cells(tally)) for name, tally in tenants.items()]
    if len(lines) != 1:
        lines.append(("all", *_cells(whole)[:-1], ""))
    return lines


def _cells(tally: ClientTally) -> tuple[str, ...]:
    parts = (tally.goodput_share, tally.slo_attainment, tally.accuracy)
    latencies = tally.latencies
    times = () if latencies is None else (latencies.p50_s, latencies.p95_s, latencies.p99_s)
    return (
        count(tally.sent),
        count(tally.goodput),
        *map(percent, parts),
        count(tally.late),
        count(tally.dropped),
        count(sum(tally.refused.values())),
        count(sum(tally.failed.values())),
        *(f"{time * 1e3:.0f}" for time in times),
        *[NONE] * (3 - len(times)),
        versions_text(tally.versions),
    )


def versions_text(versions: Mapping[str, int]) -> str:
    """The versions that answered, the first and the last where there are many."""
    names = sorted(versions, key=lambda version: (len(version), version))
    return ",".join(names) if len(names) <= 3 else f"{names[0]}..{names[-1]}"


# Page


def load_page(outcome: LoadOutcome) -> Page:
    """The page of a load."""
    lead = (
        f"{outcome.whole.sent:,} requests to {outcome.url}, of which {outcome.whole.goodput:,} "
        f"({outcome.whole.goodput_share:.1%}) were answered in time and correctly."
    )
    sentences = [f"{capitalised(sentence)}." for sentence in load_sentences(outcome)]
    sections = (
        Section("Result", "result", (_WORDS, *sentences), (_table(outcome), _outcomes(outcome))),
        Section("Windows", "windows", (), (_accuracies(outcome), _latencies(outcome))),
        Section("Seconds", "seconds", (), tuple(_lines(*line) for line in outcome.seconds.items())),
    )
    return Page(f"MIGRator: {outcome.scenario} as clients saw it", lead, sections)


def _table(outcome: LoadOutcome) -> Table:
    rows = [
        (str(window.window), name, *_cells(tally))
        for window in outcome.windows
        for name, tally in window.tenants.items()
    ]
    rows += [("all", name, *_cells(tally)) for name, tally in outcome.tenants.items()]
    rows.append(("all", "all", *_cells(outcome.whole)))
    numeric = frozenset(range(2, len(_PAGE_HEADERS) - 1))
    return Table("What became of the requests", _PAGE_HEADERS, tuple(rows), numeric)


def _names(outcome: LoadOutcome) -> tuple[str, ...]:
    return tuple(str(window.window) for window in outcome.windows)


def _outcomes(outcome: LoadOutcome) -> Bars:
    tallies = [window.whole for window in outcome.windows]
    parts = {
        "goodput": (GOOD, [tally.goodput for tally in tallies]),
        "wrong": (WRONG, [tally.wrong for tally in tallies]),
        "late": (LATE, [tally.late for tally in tallies]),
        "dropped": (DROPPED, [tally.dropped for tally in tallies]),
        "refused": (REFUSED, [sum(tally.refused.values()) for tally in tallies]),
        "failed": (FAILED, [sum(tally.failed.values()) for tally in tallies]),
    }
    series = tuple(
        Series(name, tuple(map(float, values)), paint=paint)
        for name, (paint, values) in parts.items()
        if any(values) or name == "goodput"
    )
    title = "What became of the requests, by window"
    return Bars(title, _names(outcome), series, _WINDOW, _REQUESTS, stacked=True)


def _accuracies(outcome: LoadOutcome) -> Bars:
    series = tuple(
        Series(
            tenant,
            tuple(window.tenants[tenant].accuracy for window in outcome.windows),
            paint=tenant_paint(at),
        )
        for at, tenant in enumerate(outcome.tenants)
    )
    title = "Accuracy of what was answered in time"
    return Bars(title, _names(outcome), series, _WINDOW, Axis("accuracy", share=True))


def _latencies(outcome: LoadOutcome) -> Bars:
    def ms(tally: ClientTally, name: str) -> float | None:
        return None if tally.latencies is None else getattr(tally.latencies, name) * 1e3

    series = tuple(
        Series(
            f"{tenant}, {name[:3]}",
            tuple(ms(w.tenants[tenant], name) for w in outcome.windows),
            paint=replace(tenant_paint(at), light=name == "p99_s"),
        )
        for at, tenant in enumerate(outcome.tenants)
        for name in ("p50_s", "p99_s")
    )
    return Bars("Latency", _names(outcome), series, _WINDOW, Axis("latency", "ms"))


def _lines(tenant: str, seconds: ClientSeconds) -> Lines:
    rows = {
        "sent": (Paint(None, dark=True), seconds.sent),
        "in time": (GOOD, seconds.in_time),
        "goodput": (GOOD, seconds.goodput),
    }
    return Lines(
        f"{tenant}, second by second",
        tuple(float(second) for second in range(len(seconds.sent))),
        tuple(
            Series(name, tuple(map(float, row)), paint=paint, dashed=name == "in time")
            for name, (paint, row) in rows.items()
        ),
        Axis("time", "s"),
        Axis("requests per second"),
        until=float(len(seconds.sent)),
    )


# JSON


def load_json(outcome: LoadOutcome) -> dict[str, Any]:
    """Everything counted in a load, ready for `json.dumps`."""
    return {
        "scenario": outcome.scenario,
        "url": outcome.url,
        "seed": outcome.seed,
        "window_s": outcome.window_s,
        "lag_p99_s": outcome.lag_p99_s,
        "ended": outcome.ended,
        "labels_at": outcome.labels_at,
        **_tally_json(outcome.whole),
        "tenants": {name: _tally_json(tenant) for name, tenant in outcome.tenants.items()},
        "windows": [
            {
                "window": window.window,
                **_tally_json(window.whole),
                "tenants": {name: _tally_json(tally) for name, tally in window.tenants.items()},
            }
            for window in outcome.windows
        ],
        "seconds": {name: asdict(second) for name, second in outcome.seconds.items()},
    }


def _tally_json(tally: ClientTally) -> dict[str, Any]:
    return {
        **asdict(tally),
        "in_time": tally.in_time,
        "goodput_share": tally.goodput_share,
        "slo_attainment": tally.slo_attainment,
        "accuracy": tally.accuracy,
    }
