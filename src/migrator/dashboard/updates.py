"""Records as JSON for the live page: first the run and its last hour, then what is new.

Times are in seconds since the run began. An update covers everything between two markers, so that
a page that was disconnected needs only one. A marker is the highest row number of every table: a
row written again gets a new row number, so rows above the marker are new. Seconds are turned into
JSON by SQLite: an hour of a few tenants is tens of thousands of rows, which never become Python
objects.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError
from migrator.io.database import reading
from migrator.records.rows import (
    SCHEMA,
    TABLES,
    ActionRecord,
    Conditions,
    EventRecord,
    PlanRecord,
    Record,
    RetrainingRecord,
    RunRecords,
    RunRow,
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
    find_run,
    read_rows,
    read_run,
)
from migrator.records.runs import planned_blocks
from migrator.records.store import NEWEST_ADOPTED, NEWEST_EVENTS

HISTORY_S = 3600
"""The span of seconds, units and plans given to a page; older windows are read when opened."""
_FIRST_WINDOWS = 2
"""Windows whose seconds, units and plans a page gets before the history."""
_MOST_WINDOWS = 1000
"""The newest windows that a page begins with; a month has 13,000."""
_LAST_S = 1e12
"""Until when a window lasts that has not ended."""
_MOST = 300
"""The newest events, plans and actions of one update."""
_VERSIONS = f"(at_s >= ? OR {NEWEST_ADOPTED})"
"""Those of the windows sent, and of every tenant the one that serves."""

_log = logging.getLogger(__name__)
COLUMNS = (
    *("second", "span_s", "received", "in_time", "late", "dropped", "failed", "wrong"),
    *("reconfiguring", "forecast_mean", "forecast_low", "forecast_high"),
)


@dataclass(frozen=True)
class Update:
    """What changed up to a marker, as JSON; `empty`: nothing did."""

    marker: Marker
    text: str
    empty: bool


def read_run_update(path: Path, run: int, *, history: bool = False) -> Update:
    """What a page begins with: all windows, and of the last ones everything; or the history."""
    with reading(path, SCHEMA) as connection:
        row, marker = _run_row(connection, path, run), Marker.now(connection)
        back_s = HISTORY_S if history else _FIRST_WINDOWS * row.window_s
        last = "(SELECT max(second) FROM second WHERE run = ?)"
        recent = f"run = ? AND second >= {last} - {back_s:.0f}"
        seconds = _seconds_json(connection, recent, run, run)
        newest = "SELECT max(began_s) FROM window WHERE run = ?"
        last_s = connection.execute(newest, (run,)).fetchone()[0]
        since_s = (row.began_s if last_s is None else last_s) - back_s
        # of a window all plans or none: each holds until the next
        whole_windows = "window >= (SELECT min(window) FROM window WHERE run = ? AND began_s > ?)"
        first, first_s = _first_window(connection, run)
        wanted: Conditions = {
            TenantWindowRecord: ("window >= ?", first),
            UnitRecord: ("(to_s IS NULL OR to_s > ?)", since_s),
            VersionRecord: (_VERSIONS, first_s, run),
            EventRecord: (NEWEST_EVENTS, run, _MOST),
            PlanRecord: (whole_windows, run, since_s),
            ActionRecord: (),
            RetrainingRecord: ("window >= ?", first),
        }
        # seconds are counted from the first one's begin
        with_first = "(window >= ? OR window = (SELECT min(window) FROM window WHERE run = ?))"
        windows = _read_windows(connection, run, with_first, first, run)
        facts = _facts_of(replace(read_run(connection, row, wanted), windows=windows))
        text = _update_text(connection, facts, marker, seconds)
    return Update(marker, text, empty=False)


def read_news(path: Path, run: int, after: Marker, until: Marker | None = None) -> Update:
    """What changed after a marker, up to another one, by default up to now."""
    with reading(path, SCHEMA) as connection:
        row, marker = _run_row(connection, path, run), until or Marker.now(connection)
        wanted: dict[type[Record], tuple[Any, ...]] = {
            kind: ("rowid > ? AND rowid <= ?", after.of(kind), marker.of(kind))
            for kind in TABLES
            if after.of(kind) < marker.of(kind)
        }
        between = wanted.pop(SecondRecord, ("", 0, 0))[1:]
        windows = wanted.pop(WindowRecord, None)
        rows = read_run(connection, row, wanted)
        if windows is not None:
            rows = replace(rows, windows=_read_windows(connection, run, *windows))
        facts = _facts_of(replace(rows, plans=_with_their_windows(connection, run, rows.plans)))
        # seconds that were thinned meanwhile are old ones, which the page has in full
        where = "+run = ? AND rowid > ? AND rowid <= ? AND span_s = 1"
        seconds = _seconds_json(connection, where, run, *between)
        text = _update_text(connection, facts, marker, seconds)
    return Update(marker, text, empty=marker == after)


def window_json(path: Path, run: int, number: int) -> str:
    """The seconds, units and plans of an old window, in the format of an update."""
    with reading(path, SCHEMA) as connection:
        row = _run_row(connection, path, run)
        windows = _read_windows(connection, run, "window <= ?", number)
        if not windows or windows[-1].window != number:
            raise InputError(f"window: run {run} has no window {number}; load the page again")
        first, window = windows[0], windows[-1]
        later = "SELECT min(began_s) FROM window WHERE run = ? AND window > ?"
        next_s = connection.execute(later, (run, number)).fetchone()[0]
        until_s = min(_LAST_S if end_s is None else end_s for end_s in (window.ended_s, next_s))
        of_window = ("window = ?", number)
        overlap = "from_s < ? AND (to_s IS NULL OR to_s > ?)"
        wanted: Conditions = {
            WindowRecord: of_window,
            PlanRecord: of_window,
            UnitRecord: (overlap, until_s, window.began_s),
        }
        facts = _facts_of(read_run(connection, row, wanted))
        between = (round(window.began_s - first.began_s), round(until_s - first.began_s))
        where = "run = ? AND second >= ? AND second < ?"
        seconds = _seconds_json(connection, where, run, *between)
    return f'{json.dumps(facts, allow_nan=False)[:-1]},"seconds":{seconds}}}'


def _run_row(connection: sqlite3.Connection, path: Path, run: int) -> RunRow:
    """The row of a run; InputError if there is none."""
    row = find_run(connection, run)
    if row is None:
        raise InputError(f"{path.name}: there is no run {run}; load the page again")
    return row


def _read_windows(
    connection: sqlite3.Connection, run: int, where: str = "1", *given: object
) -> tuple[WindowRecord, ...]:
    """Windows without their plans, which are large and sent separately."""
    return read_rows(connection, run, WindowRecord, where, *given, without=("plan",))


def _first_window(connection: sqlite3.Connection, run: int) -> tuple[int, float]:
    """The oldest window that a page begins with, and a moment before it."""
    query = "SELECT window, began_s FROM window WHERE run = ? ORDER BY window DESC LIMIT 1 OFFSET ?"
    oldest = connection.execute(query, (run, _MOST_WINDOWS)).fetchone()
    return (-1, 0.0) if oldest is None else (int(oldest[0]) + 1, float(oldest[1]))


def _with_their_windows(
    connection: sqlite3.Connection, run: int, plans: Iterable[PlanRecord]
) -> tuple[PlanRecord, ...]:
    """All plans of the windows that have a new one: each holds until the next."""
    windows = sorted({plan.window for plan in plans})
    planses = [read_rows(connection, run, PlanRecord, "window = ?", window) for window in windows]
    return tuple(plan for plans_of_window in planses for plan in plans_of_window)


def _facts_of(rows: RunRecords) -> dict[str, Any]:
    """Everything but the seconds as plain data, without empty lists; the newest where many."""
    run, zero_s = rows.run, rows.run.began_s

    def moved(records: Iterable[Record], *moments: str, without: str = "") -> list[dict[str, Any]]:
        """The rows with these times counted from the beginning of the run."""
        kept = [{k: v for k, v in vars(record).items() if k != without} for record in records]
        for row in kept:
            times = {key: row[key] for key in moments if row[key] is not None}
            row |= {key: round(value - zero_s, 3) for key, value in times.items()}
        return kept

    units = moved(rows.units, "from_s", "to_s")
    for unit in units:
        unit["parts_s"] = {key: round(value, 3) for key, value in unit["parts_s"].items()}
    facts: dict[str, Any] = {
        "windows": moved(rows.windows, "began_s", "ended_s", without="plan"),
        "tenant_windows": moved(rows.tenant_windows),
        "units": units,
        "versions": moved(rows.versions, "at_s"),
        "events": moved(rows.events[-_MOST:], "at_s"),
        "plans": moved(rows.plans[-_MOST:], "at_s", without="blocks"),
        "planned": _planned(run, rows.plans),
        "actions": moved(rows.actions[-_MOST:], "at_s"),
        "retrainings": moved(rows.retrainings, "at_s"),
    }
    ended_s = None if run.ended_s is None else round(run.ended_s - zero_s, 3)
    return {"run": {"run": run.run, "ended_s": ended_s}} | {k: v for k, v in facts.items() if v}


def _planned(run: RunRow, plans: Iterable[PlanRecord]) -> dict[int, Any]:
    """Window -> the blocks planned for it."""
    by_window: dict[int, list[PlanRecord]] = {}
    for plan in plans:
        by_window.setdefault(plan.window, []).append(plan)
    return {window: planned_blocks(plans, run.slots) for window, plans in by_window.items()}


def _update_text(
    connection: sqlite3.Connection, facts: dict[str, Any], marker: Marker, seconds: str
) -> str:
    """The update; the seconds are JSON already."""
    facts["run"]["last_run"] = connection.execute("SELECT max(run) FROM run").fetchone()[0]
    head = {"marker": str(marker), "now_s": round(time.time(), 3), **facts}
    text = json.dumps(head, allow_nan=False, separators=(",", ":"))
    return f'{text[:-1]},"seconds":{seconds}}}'


def _seconds_json(connection: sqlite3.Connection, where: str, *given: object) -> str:
    """{tenant: [column, ...]} of the rows that `where` names, by second."""
    arrays = ", ".join(f"json_group_array({_rounded(column)})" for column in COLUMNS)
    query = (
        f"SELECT json_group_object(tenant, json(columns)) FROM (SELECT tenant, json_array({arrays})"
        f" AS columns FROM (SELECT tenant, {', '.join(COLUMNS)} FROM second WHERE {where}"
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
        parts = text.split(".")
        if len(parts) != len(TABLES) or not all(part.isdecimal() for part in parts):
            raise InputError("after: this is not a marker of this page; load the page again")
        return Marker(tuple(min(int(part[:18]), 2**62) for part in parts))

    @staticmethod
    def now(connection: sqlite3.Connection) -> Marker:
        newest = [f"(SELECT max(rowid) FROM {kind.table})" for kind in TABLES]
        row = connection.execute(f"SELECT {', '.join(newest)}").fetchone()
        return Marker(tuple(int(number or 0) for number in row))

    def of(self, kind: type[Record]) -> int:
        return self.rows[TABLES.index(kind)]
