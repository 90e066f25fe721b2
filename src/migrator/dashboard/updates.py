"""Records as JSON for the live page: first the run and its last hour, then what is new.

Times are in seconds since the run began. An update covers everything between two markers, so that
a page that was disconnected needs only one. A marker is the highest row number of every table: a
row written again gets a new row number, so rows above the marker are new. Seconds are turned into
JSON by SQLite: an hour of a few tenants is tens of thousands of rows, which never become Python
objects.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError
from migrator.io.database import reading
from migrator.records.blocks import planned_blocks
from migrator.records.rows import (
    LAYOUT,
    TABLES,
    ActionRecord,
    EventRecord,
    PlanRecord,
    R,
    Record,
    RetrainingRecord,
    RunRow,
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
    columns_of,
    find_run,
    read_rows,
)

HISTORY_S = 3600
"""The span of seconds, units and plans given to a page; older windows are read when opened."""
_FIRST_WINDOWS = 2
"""Windows whose seconds, units and plans a page gets before the history."""
_MOST_WINDOWS = 1000
"""The newest windows that a page begins with; a month has 13,000."""
_MOST = 300
"""The newest events, plans and actions of one update."""
_PLAN = ("plan",)
_EVENTS = "rowid IN (SELECT rowid FROM event WHERE run = ? ORDER BY rowid DESC LIMIT ?)"
_VERSIONS = (
    "(at_s >= ? OR (tenant, at_s) IN (SELECT tenant, max(at_s) FROM version WHERE run = ? AND "
    "adopted GROUP BY tenant))"
)
"""Those of the windows sent, and of every tenant the one that serves."""


@dataclass(frozen=True)
class Update:
    """What changed up to a marker, as JSON; `empty`: nothing did."""

    marker: Marker
    text: str
    empty: bool


def read_run_update(path: Path, run: int, *, history: bool = False) -> Update:
    """What a page begins with: all windows, and of the last ones everything; or the history."""
    with reading(path, LAYOUT) as connection:
        row, marker = run_row(connection, path, run), Marker.now(connection)
        back_s = HISTORY_S if history else _FIRST_WINDOWS * row.window_s
        last = "(SELECT max(second) FROM second WHERE run = ?)"
        recent = f"run = ? AND second >= {last} - {back_s:.0f}"
        seconds = seconds_json(connection, recent, run, run)
        newest = "SELECT max(began_s) FROM window WHERE run = ?"
        last_s = connection.execute(newest, (run,)).fetchone()[0]
        since_s = (row.began_s if last_s is None else last_s) - back_s
        # of a window all plans or none: each holds until the next
        whole_windows = "window >= (SELECT min(window) FROM window WHERE run = ? AND began_s > ?)"
        first, first_s = _first_window(connection, run)
        facts = facts_of(
            row,
            _with_old_plans(connection, run, since_s, first),
            read_rows(connection, run, TenantWindowRecord, "window >= ?", first),
            read_rows(connection, run, UnitRecord, "(to_s IS NULL OR to_s > ?)", since_s),
            read_rows(connection, run, VersionRecord, _VERSIONS, first_s, run),
            read_rows(connection, run, EventRecord, _EVENTS, run, _MOST),
            read_rows(connection, run, PlanRecord, whole_windows, run, since_s),
            read_rows(connection, run, ActionRecord)[-_MOST:],
            read_rows(connection, run, RetrainingRecord, "window >= ?", first),
        )
    facts["run"] |= {"last_run": _last_run(path)}
    return Update(marker, _update_text(facts, marker, seconds), empty=False)


def read_news(path: Path, run: int, after: Marker, until: Marker | None = None) -> Update:
    """What changed after a marker, up to another one, by default up to now."""
    with reading(path, LAYOUT) as connection:
        row, marker = run_row(connection, path, run), until or Marker.now(connection)

        def new(kind: type[R]) -> tuple[R, ...]:
            return _new(connection, run, kind, after, marker)

        plans = new(PlanRecord)
        facts = facts_of(
            row,
            _new(connection, run, WindowRecord, after, marker, without=_PLAN),
            new(TenantWindowRecord),
            new(UnitRecord),
            new(VersionRecord),
            new(EventRecord)[-_MOST:],
            _with_their_windows(connection, run, plans),
            new(ActionRecord)[-_MOST:],
            new(RetrainingRecord),
        )
        range_of = (after.of(SecondRecord), marker.of(SecondRecord))
        # seconds that were thinned meanwhile are old ones, which the page has in full
        where = "+run = ? AND rowid > ? AND rowid <= ? AND span_s = 1"
        seconds = seconds_json(connection, where, run, *range_of)
        facts["run"] |= {"last_run": connection.execute("SELECT max(run) FROM run").fetchone()[0]}
    changed = marker != after
    return Update(marker, _update_text(facts, marker, seconds), empty=not changed)


def run_row(connection: sqlite3.Connection, path: Path, run: int) -> RunRow:
    """The row of a run; InputError if there is none."""
    found = find_run(connection, run)
    if found is None:
        raise InputError(f"{path.name}: there is no run {run}; load the page again")
    return found


def _last_run(path: Path) -> int:
    with reading(path, LAYOUT) as connection:
        return int(connection.execute("SELECT max(run) FROM run").fetchone()[0])


def read_windows(
    connection: sqlite3.Connection, run: int, where: str = "1", *given: object
) -> tuple[WindowRecord, ...]:
    """Windows without their plans, which are large and sent separately."""
    return read_rows(connection, run, WindowRecord, where, *given, without=_PLAN)


def _first_window(connection: sqlite3.Connection, run: int) -> tuple[int, float]:
    """The oldest window that a page begins with, and a moment before it."""
    query = "SELECT window, began_s FROM window WHERE run = ? ORDER BY window DESC LIMIT 1 OFFSET ?"
    found = connection.execute(query, (run, _MOST_WINDOWS)).fetchone()
    return (-1, 0.0) if found is None else (int(found[0]) + 1, float(found[1]))


def _with_old_plans(
    connection: sqlite3.Connection, run: int, since_s: float, first: int
) -> tuple[WindowRecord, ...]:
    """The windows; those of the history with their plans if these are stored nowhere else."""
    # seconds are counted from the first one's begin
    wanted = "(window >= ? OR window = (SELECT min(window) FROM window WHERE run = ?))"
    rows = read_windows(connection, run, wanted, first, run)
    if columns_of(connection, PlanRecord):
        kept = "SELECT EXISTS (SELECT 1 FROM plan WHERE run = ?)"
        if connection.execute(kept, (run,)).fetchone()[0]:
            return rows
    recent_ones = "began_s > ? AND window >= ?"
    recent = read_rows(connection, run, WindowRecord, recent_ones, since_s, first)
    return (*rows[: len(rows) - len(recent)], *recent)


def _new(
    connection: sqlite3.Connection,
    run: int,
    kind: type[R],
    after: Marker,
    until: Marker,
    without: tuple[str, ...] = (),
) -> tuple[R, ...]:
    first, last = after.of(kind), until.of(kind)
    if first >= last:
        return ()
    where = "rowid > ? AND rowid <= ?"
    return read_rows(connection, run, kind, where, first, last, without=without)


def _with_their_windows(
    connection: sqlite3.Connection, run: int, plans: Iterable[PlanRecord]
) -> tuple[PlanRecord, ...]:
    """All plans of the windows that have a new one: each holds until the next."""
    windows = sorted({each.window for each in plans})
    found = [read_rows(connection, run, PlanRecord, "window = ?", each) for each in windows]
    return tuple(plan for plans_of_window in found for plan in plans_of_window)


def facts_of(
    run: RunRow,
    windows: tuple[WindowRecord, ...] = (),
    tenant_windows: tuple[TenantWindowRecord, ...] = (),
    units: tuple[UnitRecord, ...] = (),
    versions: tuple[VersionRecord, ...] = (),
    events: tuple[EventRecord, ...] = (),
    plans: tuple[PlanRecord, ...] = (),
    actions: tuple[ActionRecord, ...] = (),
    retrainings: tuple[RetrainingRecord, ...] = (),
) -> dict[str, Any]:
    """Everything but the seconds as plain data, without empty lists."""
    zero_s = run.began_s
    rows: dict[str, Any] = {
        "windows": [_window(each, zero_s) for each in windows],
        "tenant_windows": [each.__dict__ for each in tenant_windows],
        "units": [_unit(each, zero_s) for each in units],
        "versions": [_moved(each.__dict__, zero_s, "at_s") for each in versions],
        "events": [_moved(each.__dict__, zero_s, "at_s") for each in events],
        "plans": [_plan(each, zero_s) for each in plans[-_MOST:]],
        "planned": _planned(run, windows, plans),
        "actions": [_moved(each.__dict__, zero_s, "at_s") for each in actions],
        "retrainings": [_moved(each.__dict__, zero_s, "at_s") for each in retrainings],
    }
    ended_s = None if run.ended_s is None else round(run.ended_s - zero_s, 3)
    return {"run": {"run": run.run, "ended_s": ended_s}} | {k: v for k, v in rows.items() if v}


def _window(each: WindowRecord, zero_s: float) -> dict[str, Any]:
    left = {key: value for key, value in each.__dict__.items() if key != "plan"}
    return _moved(left, zero_s, "began_s", "ended_s")


def _unit(each: UnitRecord, zero_s: float) -> dict[str, Any]:
    parts_s = {key: round(value, 3) for key, value in each.parts_s.items()}
    return _moved(each.__dict__ | {"parts_s": parts_s}, zero_s, "from_s", "to_s")


def _plan(each: PlanRecord, zero_s: float) -> dict[str, Any]:
    left = {key: value for key, value in each.__dict__.items() if key != "blocks"}
    return _moved(left, zero_s, "at_s")


def _planned(
    run: RunRow, windows: Iterable[WindowRecord], plans: Iterable[PlanRecord]
) -> dict[int, Any]:
    """Window -> the blocks planned for it."""
    by_window: dict[int, list[PlanRecord]] = {}
    for each in plans:
        by_window.setdefault(each.window, []).append(each)
    nothing = WindowRecord(0, 0.0, "", "")
    found = {number: planned_blocks(nothing, own, run.slots) for number, own in by_window.items()}
    # files of an older version have the first plan of a window only
    for row in windows:
        if row.plan is not None and row.window not in found:
            found[row.window] = planned_blocks(row, (), run.slots)
    return found


def _moved(row: Mapping[str, Any], zero_s: float, *moments: str) -> dict[str, Any]:
    """The row with these times counted from the beginning of the run."""
    moved = {key: row[key] for key in moments if row[key] is not None}
    return {**row, **{key: round(value - zero_s, 3) for key, value in moved.items()}}


def _update_text(facts: Mapping[str, Any], marker: Marker, seconds: str) -> str:
    """The update; the seconds are JSON already."""
    head = {"marker": str(marker), "now_s": round(time.time(), 3), **facts}
    text = json.dumps(head, allow_nan=False, separators=(",", ":"))
    return f'{text[:-1]},"seconds":{seconds}}}'


COLUMNS = (
    "second",
    "span_s",
    "received",
    "in_time",
    "late",
    "dropped",
    "failed",
    "wrong",
    "reconfiguring",
    "forecast_mean",
    "forecast_low",
    "forecast_high",
)


def seconds_json(connection: sqlite3.Connection, where: str, *given: object) -> str:
    """{tenant: [column, ...]} of the rows that `where` names, by second."""
    there = columns_of(connection, SecondRecord)
    chosen = ", ".join(each if each in there else f"NULL AS {each}" for each in COLUMNS)
    arrays = ", ".join(f"json_group_array({_rounded(each)})" for each in COLUMNS)
    query = (
        f"SELECT json_group_object(tenant, json(columns)) FROM (SELECT tenant, json_array({arrays})"
        f" AS columns FROM (SELECT tenant, {chosen} FROM second WHERE {where}"
        " ORDER BY tenant, second) GROUP BY tenant)"
    )
    return str(connection.execute(query, given).fetchone()[0])


def _rounded(column: str) -> str:
    return f"round({column}, 2)" if column == "wrong" or column.startswith("forecast") else column


@dataclass(frozen=True)
class Marker:
    """The highest row number per table, in the tables' order; empty: nothing was read."""

    rows: tuple[int, ...] = (0,) * len(TABLES)

    def __str__(self) -> str:
        return ".".join(map(str, self.rows))

    @staticmethod
    def parse(text: str) -> Marker:
        """The marker written as `text`; InputError if it is none."""
        parts = text.split(".")
        if len(parts) != len(TABLES) or not all(each.isdecimal() for each in parts):
            raise InputError("after: this is not a marker of this page; load the page again")
        return Marker(tuple(min(int(each[:18]), 2**62) for each in parts))

    @staticmethod
    def now(connection: sqlite3.Connection) -> Marker:
        """Everything written so far."""
        return Marker(tuple(_last(connection, kind) for kind in TABLES))

    def of(self, kind: type[Record]) -> int:
        """The last row of one table."""
        return self.rows[list(TABLES).index(kind)]


def _last(connection: sqlite3.Connection, kind: type[Record]) -> int:
    if not columns_of(connection, kind):
        return 0
    return int(connection.execute(f"SELECT max(rowid) FROM {TABLES[kind]}").fetchone()[0] or 0)
