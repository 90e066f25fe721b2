"""Runs as text: simulations, the state of a live run, its windows."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from migrator.core.catalogue import Board
from migrator.core.not_retrained import Reason
from migrator.core.outcome import Tally
from migrator.records.current_run import (
    CurrentRun,
    CurrentTenant,
    CurrentUnit,
    DaemonState,
    daemon_url,
)
from migrator.records.outcome import RunOutcome
from migrator.records.rows import RunRow
from migrator.records.runs import RecordedRun, RecordedWindow, start_duration_s
from migrator.report.run_charts import RETRAINING_PARTS
from migrator.report.slices import current_slabs, held_chart, planned_chart
from migrator.report.terminal import (
    COLUMNS,
    NONE,
    TIMELINE_KEY,
    count,
    dated_lines,
    grouped,
    moment,
    number,
    percent,
    plural,
    relation,
    slices_text,
    table_lines,
    tenant_letters,
    timeline_lines,
    wrapped,
)

# Simulations

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
        tenants = [
            (tenant.tenant, tenant.tally, tenant.reconfigurations) for tenant in window.tenants
        ]
        groups.append(grouped(str(window.window), _tenant_lines(tenants)))
    changes = outcome.tenant_reconfigurations
    whole = [(name, tally, changes[name]) for name, tally in outcome.tenants.items()]
    groups.append(grouped("all", _tenant_lines(whole)))
    table = table_lines(_RUN_HEADERS, groups, text_columns=2, shrinks=1)
    what = f"{outcome.scenario} under {outcome.policy}"
    how = f"forecaster {outcome.forecaster}, seed {outcome.seed}"
    sentences = [
        *_run_sentences(outcome),
        *_forecast_lines(outcome),
        *_not_retrained_lines(outcome),
    ]
    return "\n".join([f"{what} ({how})", *table, "", _RUN_KEY, *sentences])


def _tenant_lines(tenants: Sequence[tuple[str, Tally, int]]) -> list[tuple[str, ...]]:
    """A line per tenant, and one for all of them if there are several."""
    lines = [(name, *_run_cells(tally), count(new)) for name, tally, new in tenants]
    if len(lines) != 1:
        total = sum((tally for _, tally, _ in tenants), Tally())
        lines.append(("all", *_run_cells(total), count(sum(new for *_, new in tenants))))
    return lines


def _run_cells(tally: Tally) -> tuple[str, ...]:
    parts = (tally.goodput_share, tally.slo_attainment, tally.accuracy)
    lost = (tally.wrong, tally.late, tally.dropped, tally.while_reconfiguring)
    return (
        count(tally.received, _WHOLE),
        count(tally.goodput, _WHOLE),
        *map(percent, parts),
        *map(count, lost),
    )


def _run_sentences(outcome: RunOutcome) -> list[str]:
    windows = plural(len(outcome.windows), "window")
    sentences = [f"planning took {outcome.plan_s:.3g} s over {windows}", outcome.labels.words]
    queued = outcome.tally.queued
    if queued:
        sentences.append(f"{queued:,} requests still waited at the end")
    for name, promised in (
        ("predicted", [window.predicted for window in outcome.windows]),
        ("in the fluid model", [window.fluid for window in outcome.windows]),
    ):
        goodputs = [goodput for goodput in promised if goodput is not None]
        measured = outcome.tally.goodput
        if goodputs and len(goodputs) == len(promised) and measured:
            whole = sum(goodputs)
            sentences.append(
                f"goodput {name} {whole:,.0f} ({relation(whole, measured, 'measured')})"
            )
    return sentences


def _forecast_lines(outcome: RunOutcome) -> Iterator[str]:
    """The forecaster chosen for every tenant in the last window, and why."""
    when = " in the last window" if len(outcome.windows) > 1 else ""
    for tenant in outcome.windows[-1].tenants if outcome.windows else ():
        if tenant.forecast_by not in {None, outcome.forecaster}:
            yield from wrapped(f"{tenant.tenant} forecast{when} by {tenant.forecast_by}")


def _not_retrained_lines(outcome: RunOutcome) -> Iterator[str]:
    """Which tenants had something to learn and were not retrained, and why."""
    missed_windows: dict[tuple[str, Reason], list[tuple[int, str]]] = {}
    for window in outcome.windows:
        for tenant in window.tenants:
            waits = tenant.not_retrained
            if waits is not None and waits.reason is not Reason.NO_DATA:
                missed = missed_windows.setdefault((tenant.tenant, waits.reason), [])
                missed.append((window.window, waits.words))
    for (name, _), missed in missed_windows.items():
        numbers = ", ".join(str(number) for number, _ in missed)
        windows = f"window {numbers}" if len(missed) == 1 else f"windows {numbers}"
        yield from wrapped(f"{name} not retrained in {windows}: {missed[-1][1]}")


# The state of a live run

_STATUS_EVENTS = 8
_STATUS_HEADERS = (
    *("tenant", "received", "in time", "late", "dropped", "failed", "waiting"),
    *("workers", "accuracy", "version", "retraining"),
)
_UNIT_HEADERS = ("task", "state", "at", "size", "since")


def status_text(now: CurrentRun, board: Board) -> str:
    """Daemon, window, tenants, the slices, the last events."""
    parts = ["\n".join(_status_head(now))]
    if now.tenants:
        rows = [_tenant_cells(tenant) for tenant in now.tenants]
        parts.append("\n".join(table_lines(_STATUS_HEADERS, [rows], text_columns=1, shrinks=0)))
        whys = [
            f"retraining of {tenant.name}: {tenant.why}" for tenant in now.tenants if tenant.why
        ]
        if whys:
            parts.append("\n".join(line for why in whys for line in wrapped(why)))
    if now.held and now.probe.state is not DaemonState.ENDED:
        rows = [_unit_cells(holding, now.now_s) for holding in now.held]
        parts.append(slices_text(current_slabs(now.held, board), board.memory_slices))
        parts.append("\n".join(table_lines(_UNIT_HEADERS, [rows], text_columns=2, shrinks=0)))
    events = now.events[-_STATUS_EVENTS:]
    if events:
        lines = [
            dated_lines(event.at_s, now.now_s, f"{event.kind}: {event.words}") for event in events
        ]
        parts.append("\n".join(line for event_lines in lines for line in event_lines))
    return "\n\n".join(parts)


def _status_head(now: CurrentRun) -> Iterator[str]:
    run, now_s = now.run, now.now_s
    assert run is not None
    yield f"{run.scenario}, run {run.run}: {_daemon_words(run, now)}"
    since = moment(run.began_s, now_s)
    yield f"{run.board}, driver {run.driver}, policy {run.policy}, since {since}"
    if now.window is not None:
        slot = "" if now.slot is None else f", slot {now.slot + 1} of {now.slots}"
        yield f"window {now.window}{slot}"
    if now.files:
        yield f"labels and records: {now.files}"
    if now.paused:
        yield "paused: plans change nothing; `migrator admin resume` continues"
    drained = [tenant.name for tenant in now.tenants if tenant.drained]
    if drained:
        yield f"drained: {', '.join(drained)}; `migrator admin undrain TENANT` takes requests again"
    if now.probe.state is DaemonState.KILLED:
        yield f"the following is as last recorded, at {moment(now.last_s, now_s)}"


def _daemon_words(run: RunRow, now: CurrentRun) -> str:
    probe, url = now.probe, daemon_url(run)
    match probe.state:
        case DaemonState.RUNNING:
            return f"running as process {run.pid}" + (f" at {url}" if url else "")
        case DaemonState.SILENT if now.window is None:
            return f"process {run.pid} is starting; {probe.why}"
        case DaemonState.SILENT:
            return f"process {run.pid} exists, but {probe.why}"
        case DaemonState.ENDED:
            return f"ended {moment(run.ended_s or now.last_s, now.now_s)}"
        case DaemonState.KILLED:
            return (
                f"process {run.pid} was killed or crashed; `migrator serve` starts again, with the "
                "last good models"
            )


def _tenant_cells(tenant: CurrentTenant) -> tuple[str, ...]:
    tally = tenant.tally
    retraining = tenant.retraining or NONE
    if tenant.retraining == "running" and tenant.progress is not None:
        retraining = f"{tenant.progress:.0%}"
    return (
        tenant.name,
        *map(count, (tally.received, tally.unjudged, tally.late, tally.dropped, tally.failed)),
        count(tenant.waiting),
        str(tenant.workers),
        percent(tenant.accuracy),
        number(tenant.version),
        retraining,
    )


def _unit_cells(unit: CurrentUnit, now_s: float) -> tuple[str, ...]:
    since = NONE if unit.since_s is None else moment(unit.since_s, now_s)
    return unit.task or NONE, unit.state, number(unit.start), f"{unit.gpcs:.3g}g", since


# Windows

_WINDOW_HEADERS = (
    *("window", "tenant", "received", "goodput", "expected", "wrong", "late", "drop", "cold"),
    *("before", "est.", "after", "v", "plan s", "again"),
)
_WINDOW_KEY = (
    "expected: goodput the plan predicted; drop: dropped or failed; cold: late or dropped while an "
    "instance was not yet warm; before, after: accuracy at the beginning and end of the window; "
    "est.: expected of retraining; v: version of the model at the end; plan s: planning time; "
    "again: plans made inside the window; *: not ended, so its answers are not judged yet"
)


def windows_text(run: RecordedRun) -> str:
    """Per window and tenant: what was predicted, what was measured."""
    groups = [_window_group(window, run) for window in run.windows]
    if len(run.ended) > 1:
        rows = [(name, *_window_cells(total), *[""] * 6) for name, total in run.totals.items()]
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
        yield (
            f"goodput {tally.goodput:,.0f} of {tally.received:,} received "
            f"({percent(tally.goodput_share)}); {percent(tally.slo_attainment)} in time"
        )
    predicted = [window.row.predicted_goodput for window in run.ended]
    goodputs = [goodput for goodput in predicted if goodput is not None]
    if goodputs and len(goodputs) == len(predicted) and tally.goodput:
        whole = sum(goodputs)
        difference = relation(whole, tally.goodput, "what was measured")
        yield f"plans predicted {whole:,.0f} in all, {difference}"


def _window_group(window: RecordedWindow, run: RecordedRun) -> list[tuple[str, ...]]:
    row, lines = window.row, []
    for name in run.tenants:
        cells = (name, *_window_cells(window.tenants[name]), *_model_cells(window, name), "", "")
        lines.append(cells)
    took = NONE if row.plan_s is None else f"{row.plan_s:.3g}"
    whole = _window_cells(window.tally, row.predicted_goodput)
    lines.append(("all", *whole, "", "", "", "", took, str(row.replans)))
    return grouped(str(row.window) + ("" if window.ended else "*"), lines)


def _window_cells(tally: Tally, predicted: float | None = None) -> tuple[str, ...]:
    judged = not tally.unjudged
    return (
        count(tally.received),
        count(tally.goodput if judged else None),
        "" if predicted is None else count(predicted),
        count(tally.wrong if judged else None),
        count(tally.late),
        count(tally.dropped + tally.failed),
        count(tally.while_reconfiguring),
    )


def _model_cells(window: RecordedWindow, name: str) -> tuple[str, ...]:
    row = window.rows.get(name)
    if row is None:
        return (NONE,) * 4
    parts = (row.accuracy_before, row.accuracy_estimated, row.accuracy_after)
    return (*map(percent, parts), number(row.version))


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
        yield f"{retraining['tenant']} retrains in {slots} on {retraining['gpcs']}g"
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
        yield f"{retraining.tenant}: {taken} ({parts})"
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
