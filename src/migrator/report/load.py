"""What clients saw of a live run: the table and JSON of `migrator load`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from migrator.core.outcome import ClientTally, LoadOutcome
from migrator.report.terminal import NONE, count, grouped, percent, table_lines

_HEADERS = (
    *("window", "tenant", "sent", "goodput", "share", "SLO", "accuracy"),
    *("late", "drop", "refused", "failed", "p50", "p95", "p99", "version"),
)
_KEY = (
    "share: goodput / sent; SLO: in time / sent; drop: given up by the server; p50 to p99: ms\n"
    "from when a request was due to its answer; version: of the models that answered"
)


def load_table(outcome: LoadOutcome) -> str:
    """Per window and tenant and in all: what was sent and what became of it."""
    groups = [
        grouped(str(window.window), _lines_of(window.tenants, window.whole))
        for window in outcome.windows
    ]
    groups.append(grouped("all", _lines_of(outcome.tenants, outcome.whole)))
    what = f"{outcome.scenario} at {outcome.url} (seed {outcome.seed})"
    table = table_lines(_HEADERS, groups, text_columns=2, shrinks=1)
    return "\n".join([what, *table, "", _KEY, *_sentences(outcome)])


def _sentences(outcome: LoadOutcome) -> list[str]:
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
