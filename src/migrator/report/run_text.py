"""Runs as plain text for a terminal, at most `COLUMNS` wide."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from migrator.core.comparison import Estimate, Row, over_best_peer, relative
from migrator.core.outcome import RunOutcome, Tally
from migrator.report.plan_blocks import short
from migrator.report.run_words import forecast_sentences, lead_sentences

COLUMNS = 100
_NONE = "-"
_WHOLE = 1e7
"""Up to here the two counts that matter most are shown to the unit."""

_RUN_HEADERS = (
    *("window", "tenant", "received", "goodput", "share", "SLO", "accuracy"),
    *("wrong", "late", "dropped", "cold", "new"),
)
_RUN_KEY = (
    "share: goodput / received; SLO: in time / received; cold: late or dropped while an instance\n"
    "was not yet warm; new: instances or shares that were new"
)


def run_table(outcome: RunOutcome) -> str:
    """Per window and tenant and in all: what was received and what became of it."""
    groups = []
    for window in outcome.windows:
        own = [(each.tenant, each.tally, each.reconfigurations) for each in window.tenants]
        groups.append(_group(str(window.window), own))
    changes = outcome.tenant_reconfigurations
    whole = [(name, tally, changes[name]) for name, tally in outcome.tenants.items()]
    groups.append(_group("all", whole))
    table = laid_out(_RUN_HEADERS, groups, words=2, shrinks=1)
    what = f"{outcome.scenario} under {outcome.policy}"
    how = f"forecaster {outcome.forecaster}, seed {outcome.seed}"
    words = [*_run_words(outcome), *_forecast_words(outcome)]
    return "\n".join([f"{what} ({how})", *table, "", _RUN_KEY, *words])


def _group(window: str, tenants: Sequence[tuple[str, Tally, int]]) -> list[tuple[str, ...]]:
    """A line per tenant, and one for all of them where there are several."""
    lines = [(name, *_tally_cells(tally), count(new)) for name, tally, new in tenants]
    if len(lines) != 1:
        total = sum((tally for _, tally, _ in tenants), Tally())
        lines.append(("all", *_tally_cells(total), count(sum(new for *_, new in tenants))))
    return [(window if at == 0 else "", *line) for at, line in enumerate(lines)]


def _tally_cells(tally: Tally) -> tuple[str, ...]:
    parts = (tally.goodput_share, tally.slo_attainment, tally.accuracy)
    lost = (tally.wrong, tally.late, tally.dropped, tally.while_reconfiguring)
    return (
        count(tally.received, _WHOLE),
        count(tally.goodput, _WHOLE),
        *(f"{each:.1%}" for each in parts),
        *(count(each) for each in lost),
    )


def _run_words(outcome: RunOutcome) -> list[str]:
    windows = "1 window" if len(outcome.windows) == 1 else f"{len(outcome.windows)} windows"
    words = [f"planning took {outcome.plan_s:.3g} s over {windows}"]
    queued = outcome.tally.queued
    if queued:
        words.append(f"{queued:,} requests still waited at the end")
    for name, promised in (
        ("predicted", [each.predicted for each in outcome.windows]),
        ("in the fluid model", [each.fluid for each in outcome.windows]),
    ):
        known = [each for each in promised if each is not None]
        measured = outcome.tally.goodput
        if known and len(known) == len(promised) and measured:
            whole = sum(known)
            words.append(f"goodput {name} {whole:,.0f} ({whole / measured - 1:+.1%} to measured)")
    return words


def _forecast_words(outcome: RunOutcome) -> list[str]:
    """Who forecast every tenant in the last window and why, where that was chosen."""
    if not outcome.windows:
        return []
    when = " in the last window" if len(outcome.windows) > 1 else ""
    sentences = forecast_sentences(outcome.windows[-1], outcome.forecaster, when)
    return [line for each in sentences for line in _wrapped(each)]


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(sentence, COLUMNS, subsequent_indent="  ", break_on_hyphens=False)


_COMPARISON_HEADERS = (
    *("policy", "goodput %", "SLO %", "accuracy %", "late %", "drop %"),
    *("new", "plan s", "vs peer"),
)
_COMPARISON_KEY = (
    "SLO: in time / received; new: instances or shares that were new; ±: 95% confidence\n"
    "vs: higher or lower goodput than the best other policy, than the one named; an oracle is no\n"
    "peer, nor are migrator and migrator-replanned of each other"
)


def comparison_table(rows: Sequence[Row], to: str = "migrator") -> str:
    """Per scenario the policies, highest goodput first; means over seeds with half widths."""
    changes = {(each.scenario, each.policy): each.change for each in relative(rows, to)}
    sentences = lead_sentences(rows)
    headers = (*_COMPARISON_HEADERS, short(f"vs {to}", 11))
    lines: list[str] = []
    for scenario in dict.fromkeys(row.scenario for row in rows):
        own = [row for row in rows if row.scenario == scenario]
        own.sort(key=lambda row: -row.goodput_share.mean)
        cells = [
            _row_cells(
                row,
                over_best_peer(row, own),
                None if row.policy == to else changes.get((scenario, row.policy)),
            )
            for row in own
        ]
        lines += [short(f"{scenario} ({_seeds(own)})", COLUMNS)]
        lines += laid_out(headers, [cells], words=1, shrinks=0)
        lines += [*_wrapped(sentences.get(scenario, "")), ""]
    return "\n".join([*lines, _COMPARISON_KEY])


def _seeds(rows: Sequence[Row]) -> str:
    numbers = sorted({row.seeds for row in rows})
    if numbers == [1]:
        return "1 seed"
    return f"{numbers[0]} seeds" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]} seeds"


def _row_cells(row: Row, peer: float | None, change: float | None) -> tuple[str, ...]:
    measured = (row.goodput_share, row.slo_attainment, row.accuracy)
    return (
        row.policy,
        *(_percent(each) for each in measured),
        *(f"{100 * each.mean:.1f}" for each in (row.late_share, row.dropped_share)),
        count(row.reconfigurations.mean),
        f"{row.plan_s.mean:.3g}",
        _signed(peer),
        _signed(change),
    )


def _percent(estimate: Estimate) -> str:
    mean = f"{100 * estimate.mean:.1f}"
    if estimate.half_width is None:
        return mean
    return f"{mean} ±{100 * estimate.half_width:4.1f}"


def _signed(part: float | None) -> str:
    if part is None:
        return _NONE
    return f"{part:+.1%}" if abs(part) < 10 else f"x{part + 1:.0f}"


def count(value: float, limit: float = 1e6) -> str:
    """A count to the unit below `limit`, in millions above: at most seven characters by default."""
    if abs(value) < limit - 0.5:
        return f"{value:,.0f}"
    return f"{value / 1e6:.2f}M" if abs(value) < 999.995e6 else f"{value:.1e}"


def laid_out(
    headers: Sequence[str],
    groups: Sequence[Sequence[tuple[str, ...]]],
    *,
    words: int,
    shrinks: int,
) -> list[str]:
    """Lines of a table, a rule between groups; the first `words` columns are text.

    Column `shrinks` is cut to what the others leave of the width.
    """
    cells = [line for group in groups for line in group]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    spare = COLUMNS - sum(widths) - (len(widths) - 1)
    # A column that gives way keeps at least its header.
    widths[shrinks] = max(len(headers[shrinks]), widths[shrinks] + min(0, spare))
    room = widths[shrinks]

    def line(row: Sequence[str]) -> str:
        shown = [short(cell, room) if at == shrinks else cell for at, cell in enumerate(row)]
        sides: list[Callable[[str, int], str]] = [str.ljust] * words
        sides += [str.rjust] * (len(row) - words)
        return " ".join(
            side(cell, width) for side, cell, width in zip(sides, shown, widths, strict=True)
        ).rstrip()

    rule = "-" * (sum(widths) + len(widths) - 1)
    lines = [line(headers)]
    for group in groups:
        lines += [rule, *(line(row) for row in group)]
    return lines
