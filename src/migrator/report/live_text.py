"""A live run as plain text for a terminal: how it stands, its windows, one of them in detail."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime

from migrator.core.catalogue import Board
from migrator.records.rows import EventRecord, RunRow
from migrator.records.standing import Life, Standing, TenantStanding, UnitStanding, address
from migrator.records.views import Counted, LiveRun, LiveWindow, start_s
from migrator.report.live_slices import (
    KEY,
    drawn_units,
    held_lines,
    letters_of,
    planned_lines,
)
from migrator.report.run_text import COLUMNS, count, laid_out

_NONE = "-"
_STATUS_HEADERS = (
    *("tenant", "received", "in time", "late", "dropped", "failed", "waiting"),
    *("workers", "accuracy", "version", "retraining"),
)
_UNIT_HEADERS = ("task", "state", "at", "size", "since")
_WINDOW_HEADERS = (
    *("window", "tenant", "received", "goodput", "expected", "wrong", "late", "drop", "cold"),
    *("before", "est.", "after", "v", "plan s", "again"),
)
_WINDOW_KEY = (
    "expected: goodput the plan promised; drop: dropped or failed; cold: late or dropped while an "
    "instance was not yet warm; before, after: accuracy at the window's begin and end; est.: what "
    "retraining was expected to bring; v: version of the model at the end; plan s: what deciding "
    "took; again: decisions inside the window; *: not ended yet, so nothing is judged"
)
_WRAPPED = 15
"""Columns before an event's words."""


def moment(at_s: float, now_s: float | None = None) -> str:
    """A moment on this machine's clock, with its day unless it is the day of `now_s`."""
    at = datetime.fromtimestamp(at_s)
    today = now_s is not None and datetime.fromtimestamp(now_s).date() == at.date()
    return f"{at:%H:%M:%S}" if today else f"{at:%Y-%m-%d %H:%M:%S}"


# How it stands


def status_text(stands: Standing, board: Board) -> str:
    """Daemon, window, tenants, what is on the slices, the last events."""
    parts = ["\n".join(_head(stands))]
    if stands.tenants:
        rows = [_tenant_cells(each) for each in stands.tenants]
        parts.append("\n".join(laid_out(_STATUS_HEADERS, [rows], words=1, shrinks=0)))
    if stands.units and stands.found.life is not Life.ENDED:
        rows = [_unit_cells(each, stands.now_s) for each in stands.units]
        parts.append(drawn_units(board, stands.units))
        parts.append("\n".join(laid_out(_UNIT_HEADERS, [rows], words=2, shrinks=0)))
    if stands.events:
        parts.append("\n".join(event_lines(stands.events, stands.now_s)))
    return "\n\n".join(parts)


def _head(stands: Standing) -> Iterator[str]:
    run, now_s = stands.run, stands.now_s
    yield f"{run.scenario}, run {run.run}: {life_words(stands)}"
    since = moment(run.began_s, now_s)
    yield f"{run.board}, driver {run.driver}, policy {run.policy}, since {since}"
    if stands.window is not None:
        slot = "" if stands.slot is None else f", slot {stands.slot + 1} of {stands.slots}"
        yield f"window {stands.window}{slot}"
    if stands.paused:
        yield "paused: nothing is changed for a plan; `migrator admin resume` goes on"
    drained = [each.name for each in stands.tenants if each.drained]
    if drained:
        yield f"drained: {', '.join(drained)}; `migrator admin undrain TENANT` takes requests again"
    if stands.found.life is Life.KILLED:
        yield f"what follows is what was last written down, at {moment(stands.last_s, now_s)}"


def life_words(stands: Standing) -> str:
    """Whether its daemon is there."""
    run, found = stands.run, stands.found
    where = address(run)
    match found.life:
        case Life.RUNNING:
            return f"running as process {run.pid}" + (f" at {where}" if where else "")
        case Life.SILENT if stands.window is None:
            return f"process {run.pid} is starting; {found.why}"
        case Life.SILENT:
            return f"process {run.pid} is there, but {found.why}"
        case Life.ENDED:
            return f"ended {moment(run.ended_s or stands.last_s, stands.now_s)}"
        case Life.KILLED:
            return (
                f"process {run.pid} was killed or crashed; `migrator serve` starts again, with the "
                "last good models"
            )


def _tenant_cells(each: TenantStanding) -> tuple[str, ...]:
    return (
        each.name,
        *map(count, (each.received, each.in_time, each.late, each.dropped)),
        _count(each.failed),
        _count(each.waiting),
        str(each.workers),
        percent(each.accuracy),
        _number(each.version),
        _retraining(each),
    )


def _retraining(each: TenantStanding) -> str:
    if each.retraining == "running" and each.progress is not None:
        return f"{each.progress:.0%}"
    return each.retraining or _NONE


def _unit_cells(each: UnitStanding, now_s: float) -> tuple[str, ...]:
    since = _NONE if each.since_s is None else moment(each.since_s, now_s)
    start = _NONE if each.start is None else str(each.start)
    return each.task or _NONE, each.state, start, f"{each.gpcs:.3g}g", since


def event_lines(events: Sequence[EventRecord], now_s: float | None = None) -> list[str]:
    """A line per event, long ones wrapped."""
    lines = []
    for each in events:
        lines += _dated(each.at_s, now_s, f"{each.kind}: {each.words}")
    return lines


def _dated(at_s: float, now_s: float | None, words: str) -> list[str]:
    return textwrap.wrap(
        f"{moment(at_s, now_s)}  {printable(words)}", COLUMNS, subsequent_indent=" " * _WRAPPED
    )


def printable(words: str) -> str:
    """On one line, without what a terminal would obey: a model's own error may be among them."""
    return "".join(each if each.isprintable() else "?" for each in " ".join(words.split()))


# Windows


def windows_text(run: LiveRun) -> str:
    """Per window and tenant: what was promised, what was measured."""
    groups = [_group(each, run) for each in run.windows]
    if sum(each.ended for each in run.windows) > 1:
        rows = [("", name, *_counted_cells(each), *[""] * 6) for name, each in run.totals.items()]
        groups.append([("all", *row[1:]) if at == 0 else row for at, row in enumerate(rows)])
    title = run_words(run.records.run)
    table = laid_out(_WINDOW_HEADERS, groups, words=2, shrinks=1) if groups else ["no window yet"]
    return "\n".join([title, *table, "", *textwrap.wrap(_WINDOW_KEY, COLUMNS), *_summary(run)])


def run_words(run: RunRow) -> str:
    """Which run it is."""
    return f"{run.scenario}, run {run.run}: {run.policy} on {run.board} ({run.driver})"


def _summary(run: LiveRun) -> Iterator[str]:
    whole, windows = run.whole, [each for each in run.windows if each.ended]
    if whole.received:
        yield (
            f"goodput {whole.goodput or 0:,.0f} of {whole.received:,} received "
            f"({percent(whole.share)}); {percent(whole.slo_attainment)} in time"
        )
    promised = [each.row.predicted_goodput for each in windows]
    known = [each for each in promised if each is not None]
    if known and len(known) == len(windows) and whole.goodput:
        more = sum(known) / whole.goodput - 1
        yield f"plans promised {sum(known):,.0f} in all, {more:+.1%} beside what was measured"


def _group(window: LiveWindow, run: LiveRun) -> list[tuple[str, ...]]:
    row, lines = window.row, []
    for name in run.tenants:
        cells = (name, *_counted_cells(window.tenants[name]), *_model_cells(window, name), "", "")
        lines.append(cells)
    took = _NONE if row.plan_s is None else f"{row.plan_s:.3g}"
    whole = _counted_cells(window.whole, row.predicted_goodput)
    lines.append(("all", *whole, "", "", "", "", took, str(row.replans)))
    number = str(row.window) + ("" if window.ended else "*")
    return [(number if at == 0 else "", *line) for at, line in enumerate(lines)]


def _counted_cells(each: Counted, promised: float | None = None) -> tuple[str, ...]:
    return (
        count(each.received),
        _count(each.goodput),
        "" if promised is None else count(promised),
        _count(each.wrong),
        count(each.late),
        count(each.dropped + each.failed),
        _count(each.while_reconfiguring),
    )


def _model_cells(window: LiveWindow, name: str) -> tuple[str, ...]:
    row = window.rows.get(name)
    if row is None:
        return (_NONE,) * 4
    parts = (row.accuracy_before, row.accuracy_estimated, row.accuracy_after)
    return (*map(percent, parts), _number(row.version))


# One window


def window_text(run: LiveRun, window: LiveWindow, board: Board) -> str:
    """One window: counts, plan and what was held, starts, models, events."""
    row = window.row
    ended = moment(row.ended_s, row.began_s) if row.ended_s is not None else "not ended"
    head = (
        f"{run_words(run.records.run)}\n"
        f"window {row.window}: {moment(row.began_s)} to {ended}; forecaster {row.forecaster}"
    )
    table = laid_out(_WINDOW_HEADERS, [_group(window, run)], words=2, shrinks=1)
    parts = [head, "\n".join(table), "\n".join(_board_lines(run, window, board))]
    parts += ["\n".join(each) for each in (_starts(run, window), _versions(run, window)) if each]
    events = event_lines(run.events_of(window), row.began_s)
    return "\n\n".join([*parts, *(["\n".join(["events", *events])] if events else [])])


def _board_lines(run: LiveRun, window: LiveWindow, board: Board) -> Iterator[str]:
    letters = ", ".join(f"{letter} {name}" for name, letter in letters_of(run.tenants).items())
    yield from textwrap.wrap(f"{letters}; {KEY}", COLUMNS)
    plan = window.row.plan
    if plan is None:
        yield "no plan was recorded"
    else:
        yield f"planned by {plan.get('solver')}, within {plan.get('gap', 0.0):.2%} of the best"
        for each in plan.get("retrainings", ()):
            slots = f"slots {each['start']} to {each['end'] - 1}"
            yield f"{each['tenant']} retrains in {slots} on {each['gpcs']}g"
        yield from planned_lines(run, window, board)
    yield "held"
    yield from held_lines(run, window, board)


def _starts(run: LiveRun, window: LiveWindow) -> list[str]:
    lines = []
    for each in run.starts:
        if window.holds(each.from_s):
            parts = {name: s for name, s in each.parts_s.items() if name != "total"}
            took = ", ".join(f"{name.removesuffix('_s')} {s:.2f}" for name, s in parts.items())
            where = f"{each.unit.partition('#')[0]} for {each.tenant}"
            lines.append(f"{where}: {start_s(each.parts_s):.2f} s ({took})")
    return ["starts", *lines] if lines else []


def _versions(run: LiveRun, window: LiveWindow) -> list[str]:
    lines = []
    for each in run.records.versions:
        if window.holds(each.at_s):
            became = f"version {each.number} adopted" if each.adopted else "refused"
            words = f"{each.tenant}: {became}, {percent(each.accuracy)}: {each.why}"
            lines += _dated(each.at_s, window.row.began_s, words)
    return ["models", *lines] if lines else []


def percent(part: float | None) -> str:
    """A part of one, or a dash."""
    return _NONE if part is None else f"{part:.1%}"


def _count(value: float | None) -> str:
    return _NONE if value is None else count(value)


def _number(value: int | None) -> str:
    return _NONE if value is None else str(value)
