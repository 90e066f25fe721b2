"""A load as plain text for a terminal: what clients saw of every window and tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from migrator.core.load_outcome import ClientTally, LoadOutcome
from migrator.report.run_text import count, laid_out

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
    groups = [_group(str(each.window), each.tenants, each.whole) for each in outcome.windows]
    groups.append(_group("all", outcome.tenants, outcome.whole))
    what = f"{outcome.scenario} at {outcome.url} (seed {outcome.seed}{_speed(outcome)})"
    table = laid_out(_HEADERS, groups, words=2, shrinks=1)
    return "\n".join([what, *table, "", _KEY, *load_sentences(outcome)])


def load_sentences(outcome: LoadOutcome) -> list[str]:
    """What was lost and why, what was learned from, and how far the client can be trusted."""
    whole = outcome.whole
    lost = Counter(whole.refused) + Counter(whole.failed)
    sentences = [f"{times:,} {reason}" for reason, times in lost.most_common()]
    labels = whole.labels_stored + whole.labels_lost
    if labels:
        sentences.append(f"{whole.labels_stored:,} of {labels:,} labels stored")
    sentences.append(f"99% of requests were sent within {outcome.lag_p99_s * 1e3:.1f} ms of due")
    if outcome.ended is not None:
        sentences.append(f"ended early: {outcome.ended}")
    return sentences


def _speed(outcome: LoadOutcome) -> str:
    return "" if outcome.speed == 1 else f", {outcome.speed:g} times as fast"


def _group(
    window: str, tenants: Mapping[str, ClientTally], whole: ClientTally
) -> Sequence[tuple[str, ...]]:
    """A line per tenant, and one for all of them where there are several."""
    lines = [(name, *cells(tally)) for name, tally in tenants.items()]
    if len(lines) != 1:
        lines.append(("all", *cells(whole)[:-1], ""))
    return [(window if at == 0 else "", *line) for at, line in enumerate(lines)]


def cells(tally: ClientTally) -> tuple[str, ...]:
    """A tally's columns after its name."""
    parts = (tally.goodput_share, tally.slo_attainment, tally.accuracy)
    known = tally.latencies
    times = () if known is None else (known.p50_s, known.p95_s, known.p99_s)
    return (
        count(tally.sent),
        count(tally.goodput),
        *(f"{each:.1%}" for each in parts),
        count(tally.late),
        count(tally.dropped),
        count(sum(tally.refused.values())),
        count(sum(tally.failed.values())),
        *(f"{each * 1e3:.0f}" for each in times),
        *("-" for _ in range(3 - len(times))),
        versions_text(tally.versions),
    )


def versions_text(versions: Mapping[str, int]) -> str:
    """The versions that answered, the first and the last where there are many."""
    names = sorted(versions, key=lambda each: (len(each), each))
    return ",".join(names) if len(names) <= 3 else f"{names[0]}..{names[-1]}"
