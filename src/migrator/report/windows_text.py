"""The windows of a recorded run as text: all of them, or one in detail."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from migrator.core.catalogue import Board
from migrator.core.outcome import Tally
from migrator.records.runs import RecordedRun, RecordedWindow, start_duration_s
from migrator.report.run_charts import RETRAINING_PARTS
from migrator.report.slices import held_chart, planned_chart
from migrator.report.terminal import (
    COLUMNS,
    NONE,
    TIMELINE_KEY,
    count,
    dated_lines,
    grouped,
    known,
    moment,
    number,
    percent,
    relation,
    table_lines,
    tenant_letters,
    timeline_lines,
    wrapped,
)

_WINDOW_HEADERS = (
    *("window", "tenant", "received", "goodput", "expected", "wrong", "late", "drop", "cold"),
    *("before", "est.", "after", "by", "v", "plan s", "again"),
)
_WINDOW_KEY = (
    "expected: goodput the plan predicted; drop: dropped or failed; cold: late or dropped while an "
    "instance was not yet warm; before, after: accuracy at the beginning and end of the window; "
    "est.: expected of retraining; by: what after rests on; v: version of the model at "
    "the end; plan s: planning time; again: plans made inside the window; *: not ended; unknown: "
    "too few of its answers are labelled"
)


def windows_text(run: RecordedRun) -> str:
    """Per window and tenant: what was predicted, what was measured."""
    groups = [_window_group(window, run) for window in run.windows]
    if len(run.ended) > 1:
        rows = [(name, *_window_cells(total), *[""] * 7) for name, total in run.totals.items()]
        groups.append(grouped("all", rows))
    table = ["no window yet"]
    if groups:
        table = table_lines(_WINDOW_HEADERS, groups, text_columns=2, shrinks=1)
    key = textwrap.wrap(_WINDOW_KEY, COLUMNS)
    return "\n".join([_run_words(run), *table, "", *key, *_summary(run)])


def _run_words(run: RecordedRun) -> str:
    row = run.records.run
    return f"{row.scenario}, run {row.run}: {row.policy} on {row.board} ({row.driver})"


def _summary(run: RecordedRun) -> Iterator[str]:
    tally = run.tally
    if tally.received:
        share = "" if tally.unjudged else f" ({percent(tally.goodput_share)})"
        yield (
            f"goodput {known(tally.known_goodput)} of {tally.received:,} received{share}; "
            f"{percent(tally.slo_attainment)} in time"
        )
    predicted = [window.row.predicted_goodput for window in run.ended]
    goodputs = [goodput for goodput in predicted if goodput is not None]
    if goodputs and len(goodputs) == len(predicted) and tally.known_goodput:
        whole = sum(goodputs)
        difference = relation(whole, tally.goodput, "what was measured")
        yield f"plans predicted {whole:,.0f} in all, {difference}"
    for words in run.preferences.words(run.totals):
        yield from wrapped(words)


def _window_group(window: RecordedWindow, run: RecordedRun) -> list[tuple[str, ...]]:
    row, lines = window.row, []
    for name in run.tenants:
        cells = (name, *_window_cells(window.tenants[name]), *_model_cells(window, name), "", "")
        lines.append(cells)
    took = NONE if row.plan_s is None else f"{row.plan_s:.3g}"
    whole = _window_cells(window.tally, row.predicted_goodput)
    lines.append(("all", *whole, "", "", "", "", "", took, str(row.replans)))
    return grouped(str(row.window) + ("" if window.ended else "*"), lines)


def _window_cells(tally: Tally, predicted: float | None = None) -> tuple[str, ...]:
    return (
        count(tally.received),
        known(tally.known_goodput),
        "" if predicted is None else count(predicted),
        count(None if tally.unjudged else tally.wrong),
        count(tally.late),
        count(tally.dropped + tally.failed),
        count(tally.while_reconfiguring),
    )


def _model_cells(window: RecordedWindow, name: str) -> tuple[str, ...]:
    row = window.rows.get(name)
    if row is None:
        return (NONE,) * 5
    parts = (row.accuracy_before, row.accuracy_estimated, row.accuracy_after)
    return (*map(percent, parts), row.evidence, number(row.version))


def window_text(run: RecordedRun, window: RecordedWindow, board: Board) -> str:
    """One window: counts, its plan and what was held, starts, models, events."""
    row = window.row
    ended = moment(row.ended_s, row.began_s) if row.ended_s is not None else "not ended"
    head = (
        f"{_run_words(run)}\n"
        f"window {row.window}: {moment(row.began_s)} to {ended}; forecaster {row.forecaster}"
    )
    table = table_lines(_WINDOW_HEADERS, [_window_group(window, run)], text_columns=2, shrinks=1)
    events = [(event.at_s, f"{event.kind}: {event.words}") for event in run.events_of(window)]
    parts = [
        [head],
        table,
        list(_slice_lines(run, window, board)),
        list(_start_lines(run, window)),
        list(_retraining_lines(run, window)),
        _dated("models", list(_versions(run, window)), row.began_s),
        _dated("events", events, row.began_s),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _slice_lines(run: RecordedRun, window: RecordedWindow, board: Board) -> Iterator[str]:
    letters = ", ".join(f"{letter} {name}" for name, letter in tenant_letters(run.tenants).items())
    yield from textwrap.wrap(f"{letters}; {TIMELINE_KEY}", COLUMNS)
    plan = window.row.plan or {}
    if plan:
        yield f"planned by {plan.get('solver')}, within {plan.get('gap', 0.0):.2%} of the best"
    for retraining in plan.get("retrainings", ()):
        slots = f"slots {retraining['start']} to {retraining['end'] - 1}"
        way = f" as {retraining['configuration']}" if retraining.get("configuration") else ""
        yield f"{retraining['tenant']} retrains{way} in {slots} on {retraining['gpcs']}g"
    planned = planned_chart(run, window, board, dict.fromkeys(run.tenants, 0.0))
    if planned is None:
        yield "no plan was recorded"
    else:
        if not plan:
            yield "planned"
        yield from timeline_lines(planned, run.slot_s)
    yield "held"
    yield from timeline_lines(held_chart(run, window, board), run.slot_s)


def _start_lines(run: RecordedRun, window: RecordedWindow) -> Iterator[str]:
    units = [start for start in run.starts if window.contains(start.from_s)]
    if units:
        yield "starts"
    for unit in units:
        parts = {name: s for name, s in unit.parts_s.items() if name != "total"}
        took = ", ".join(f"{name.removesuffix('_s')} {s:.2f}" for name, s in parts.items())
        where = f"{unit.unit.partition('#')[0]} for {unit.tenant}"
        yield f"{where}: {start_duration_s(unit.parts_s):.2f} s ({took})"


def _retraining_lines(run: RecordedRun, window: RecordedWindow) -> Iterator[str]:
    retrainings = run.retrainings_of(window)
    if retrainings:
        yield "retrainings"
    for retraining in retrainings:
        parts = ", ".join(
            f"{part_name} {retraining.parts_s[part]:.2f}"
            for part, part_name in RETRAINING_PARTS.items()
            if part in retraining.parts_s
        )
        taken = f"{retraining.taken_s:.1f} s, planned {retraining.planned_s:.1f} s"
        yield f"{retraining.subject}: {taken} ({parts})"
    missing = run.not_retrained_in(window)
    if missing:
        yield "not retrained"
    for row in missing:
        yield from wrapped(f"{row.tenant}: {row.why}")


def _versions(run: RecordedRun, window: RecordedWindow) -> Iterator[tuple[float, str]]:
    for version in run.records.versions:
        if window.contains(version.at_s):
            result = f"version {version.number} adopted" if version.adopted else "refused"
            yield (
                version.at_s,
                f"{version.tenant}: {result}, {percent(version.accuracy)}: {version.why}",
            )


def _dated(title: str, dated_words: Sequence[tuple[float, str]], now_s: float) -> list[str]:
    lines = [line for at_s, text in dated_words for line in dated_lines(at_s, now_s, text)]
    return [title, *lines] if lines else []
