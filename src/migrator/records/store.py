"""Writing and reading the records of a run in a SQLite file.

`put` queues a row; `flush` writes all queued rows in one transaction and may run in a thread. A
killed process loses the rows it had not flushed. Readers may open the file at any time.
`read_recent` reads only the newest rows, and the totals of all seconds, for `status`.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Self

from migrator.core.errors import InputError, NotWrittenError
from migrator.core.outcome import Tally
from migrator.io.database import (
    AGAIN_S,
    describe_moved,
    explain_errors,
    open_as_is,
    open_database,
    reading,
    transaction,
)
from migrator.io.file_kind import RECORDS, wrong_kind
from migrator.records.rows import (
    SCHEMA,
    TABLES,
    ActionRecord,
    EventRecord,
    Record,
    RetrainingRecord,
    RunRecords,
    RunRow,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
    find_run,
    insert_into,
    key_of,
    read_run,
    read_run_rows,
    values_of,
)

SECONDS_KEPT_S = 3600
"""Seconds older than this are stored `_THINNED_S` to a row."""
_THINNED_S = 10
_THIN_EVERY = 300
"""Flushes between two passes that thin old rows."""
_MOST_WAITING = 100_000
"""Rows queued while the file cannot be written; beyond that the oldest are discarded."""

_EVENTS = 24
"""The newest events that are read."""
NEWEST_EVENTS = "rowid IN (SELECT rowid FROM event WHERE run = ? ORDER BY rowid DESC LIMIT ?)"
NEWEST_ADOPTED = (
    "(tenant, at_s) IN (SELECT tenant, max(at_s) FROM version WHERE run = ? AND adopted "
    "GROUP BY tenant)"
)
"""The version of every tenant that serves."""

_EVENTS_KEPT, _UNITS_KEPT, _PLANS_KEPT = 20_000, 50_000, 5_000

_log = logging.getLogger(__name__)


class Records:
    """The writer of one run; a file has one writer at a time."""

    def __init__(
        self,
        path: Path,
        *,
        scenario: str,
        board: str,
        driver: str,
        policy: str,
        seed: int,
        about: Mapping[str, Any] | None = None,
        seconds_kept_s: int | None = SECONDS_KEPT_S,
        began_s: float | None = None,
        pid: int | None = None,
    ) -> None:
        self.path, self._seconds_kept_s = path, seconds_kept_s
        self.damaged: Path | None = None
        """Where a damaged file was moved when this one was opened."""
        self._file_lock, self._queue_lock, self._flushes = Lock(), Lock(), 0
        self._queue: dict[object, Record] = {}
        self._about = dict(about or {})
        writer = os.getpid() if pid is None else pid
        began_s = time.time() if began_s is None else began_s
        self._begun = (began_s, scenario, board, driver, policy, seed, writer)
        self.run, self._again_s = 0, 0.0
        """Its number in the file; 0 until the disk has room for it."""
        try:
            self._connection, self.damaged = open_database(path, SCHEMA, "NORMAL")
            self._begin()
        except NotWrittenError as error:
            _log.warning("records are discarded until the disk has room: %s", error)
            self._connection = open_as_is(path, SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        """Insert the row of the run, once."""
        if self.run:
            return
        with explain_errors(self.path, SCHEMA):
            values = (*self._begun, json.dumps(self._about))
            query = "INSERT INTO run VALUES (NULL, ?, NULL, ?, ?, ?, ?, ?, ?, ?)"
            self.run = int(self._connection.execute(query, values).lastrowid or 0)

    def _reopen(self) -> None:
        """Open the file again if it could not be written at first."""
        if not self.run:
            if time.monotonic() < self._again_s:  # opening checks the whole file
                raise NotWrittenError(f"{self.path}: records wait until the disk has room")
            self._again_s = time.monotonic() + AGAIN_S
            as_is = self._connection
            self._connection, self.damaged = open_database(self.path, SCHEMA, "NORMAL")
            as_is.close()
            self._begin()

    def put(self, record: Record) -> None:
        key = key_of(record)
        with self._queue_lock:
            self._queue[key] = record

    def event(self, kind: str, words: str) -> None:
        self.put(EventRecord(time.time(), kind, words))

    def flush(self) -> None:
        """Write the queued rows; after an InputError the next flush tries again."""
        with self._file_lock:
            with self._queue_lock:
                taken, self._queue = self._queue, {}
            try:
                self._reopen()
                with explain_errors(self.path, SCHEMA), transaction(self._connection):
                    self._write(list(taken.values()))
                    if self._flushes % _THIN_EVERY == 0:
                        self._thin()
            except BaseException:
                with self._queue_lock:
                    kept = list((taken | self._queue).items())[-_MOST_WAITING:]
                    self._queue = dict(kept)
                raise
            self._flushes += 1

    @property
    def moved(self) -> str:
        """Why nothing can be written while the file is not at its path; "" if it is."""
        return describe_moved(self._connection, self.path, SCHEMA)

    def add_about(self, **more: object) -> None:
        """Add facts that were not known when the run began."""
        self._about |= more
        if not self.run:  # written together with the run
            return
        with self._file_lock, explain_errors(self.path, SCHEMA):
            renewed = "UPDATE run SET about = ? WHERE run = ?"
            self._connection.execute(renewed, (json.dumps(self._about), self.run))

    def last_window(self) -> int | None:
        """The highest number of a window in any run so far."""
        with self._file_lock, explain_errors(self.path, SCHEMA):
            number = self._connection.execute("SELECT max(window) FROM window").fetchone()[0]
        return None if number is None else int(number)

    def close(self, ended_s: float | None = None) -> None:
        """Flush and record the end of the run, unless the disk is full."""
        try:
            self.flush()
            with self._file_lock, explain_errors(self.path, SCHEMA):
                ended = "UPDATE run SET ended_s = ? WHERE run = ?"
                self._connection.execute(
                    ended, (time.time() if ended_s is None else ended_s, self.run)
                )
        except NotWrittenError as error:
            _log.warning("the last records are discarded: %s", error)
        finally:
            self._connection.close()

    def _write(self, records: list[Record]) -> None:
        for kind in TABLES:
            rows = [(self.run, *values_of(record)) for record in records if type(record) is kind]
            self._connection.executemany(insert_into(kind), rows)

    def _thin(self) -> None:
        """Sum old seconds into longer spans; of events, units and plans keep the newest."""
        newest = "SELECT max(second) FROM second WHERE run = ?"
        last = self._connection.execute(newest, (self.run,)).fetchone()[0]
        if last is not None and self._seconds_kept_s is not None:
            until = (last - self._seconds_kept_s) // _THINNED_S * _THINNED_S
            self._connection.execute(_THINNED, {"run": self.run, "until": until})
            self._connection.execute(
                "DELETE FROM second WHERE span_s = 1 AND (run < :run OR second < :until)",
                {"run": self.run, "until": until},
            )
        kept_of = {"event": _EVENTS_KEPT, "unit": _UNITS_KEPT, "plan": _PLANS_KEPT}
        for table, kept in kept_of.items():
            self._connection.execute(
                f"DELETE FROM {table} WHERE rowid <= (SELECT max(rowid) FROM {table}) - {kept}"
            )


_THINNED = f"""
INSERT OR REPLACE INTO second (run, tenant, second, received, in_time, late, dropped, failed,
    wrong, reconfiguring, forecast_mean, forecast_low, forecast_high, span_s)
SELECT run, tenant, second / {_THINNED_S} * {_THINNED_S} AS first, sum(received), sum(in_time),
    sum(late), sum(dropped), sum(failed),
    CASE WHEN count(wrong) = count(*) THEN sum(wrong) END, sum(reconfiguring), avg(forecast_mean),
    avg(forecast_low), avg(forecast_high), {_THINNED_S}
FROM second WHERE span_s = 1 AND (run < :run OR second < :until)
GROUP BY run, tenant, first
"""


def read_runs(path: Path) -> tuple[RunRow, ...]:
    """Every run in the file, oldest first."""
    if words := wrong_kind(path, (RECORDS,)):
        raise InputError(f"{path}: {words}")
    with reading(path, SCHEMA) as connection:
        return read_run_rows(connection)


def read_records(path: Path, run: int | None = None) -> RunRecords:
    """All rows of a run, by default the newest; also while it is being written."""
    with reading(path, SCHEMA) as connection:
        row = find_run(connection, run)
        if row is None:
            numbers = ", ".join(str(row.run) for row in read_run_rows(connection)) or "none"
            raise InputError(f"{path}: there is no run {run}; give one of {numbers}")
        return read_run(connection, row, dict.fromkeys(TABLES, ()))


@dataclass(frozen=True)
class RecentRows(RunRecords):
    """The newest rows of a run.

    The current window with its retrainings, the units that exist now, of every tenant its last
    window that ended and its newest model.
    """

    is_newest: bool = True
    """Whether it is the last run of its file."""
    totals: Mapping[str, Tally] = field(default_factory=dict)
    """Per tenant all requests of the run; `unjudged` are those in time."""
    last_s: float = 0.0
    """When anything was last recorded."""

    @property
    def window(self) -> WindowRecord | None:
        """The current window; None: it has not begun."""
        return self.windows[-1] if self.windows else None


def read_recent(path: Path, run: int | None = None) -> RecentRows:
    """The newest rows of a run, by default of the newest run; also while it is being written."""
    with reading(path, SCHEMA) as connection:
        row, newest = find_run(connection, run), find_run(connection)
        if row is None or newest is None:
            numbers = ", ".join(str(row.run) for row in read_run_rows(connection))
            if not numbers:
                raise InputError(f"{path}: it has no run yet; start `migrator serve SCENARIO`")
            raise InputError(f"{path}: there is no run {run}; give one of {numbers}")
        number = row.run
        last = "window = (SELECT max(window) FROM {} WHERE run = ?)"
        of_window = (last.format("window"), number)
        newest_rows = read_run(
            connection,
            row,
            {
                WindowRecord: of_window,
                RetrainingRecord: of_window,
                TenantWindowRecord: (last.format("tenant_window"), number),
                UnitRecord: ("to_s IS NULL",),
                VersionRecord: (f"adopted AND {NEWEST_ADOPTED}", number),
                EventRecord: (NEWEST_EVENTS, number, _EVENTS),
                ActionRecord: (),
            },
        )
        return RecentRows(
            **vars(newest_rows),
            is_newest=row.run == newest.run,
            totals=_totals(connection, number),
            last_s=_last_s(connection, row),
        )


def _totals(connection: sqlite3.Connection, run: int) -> dict[str, Tally]:
    query = (
        "SELECT tenant, sum(received), sum(coalesce(in_time, 0)), sum(late), sum(dropped), "
        "sum(failed) FROM second WHERE run = ? GROUP BY tenant"
    )
    return {
        name: Tally(received=received, unjudged=in_time, late=late, dropped=dropped, failed=lost)
        for name, received, in_time, late, dropped, lost in connection.execute(query, (run,))
    }


def _last_s(connection: sqlite3.Connection, run: RunRow) -> float:
    def newest(expression: str, table: str) -> float:
        query = f"SELECT max({expression}) FROM {table} WHERE run = ?"
        return float(connection.execute(query, (run.run,)).fetchone()[0] or 0.0)

    first = "SELECT min(began_s) FROM window WHERE run = ?"
    zero_s = connection.execute(first, (run.run,)).fetchone()[0] or run.began_s
    return max(
        run.began_s,
        run.ended_s or 0.0,
        newest("at_s", "event"),
        newest("at_s", "version"),
        newest("coalesce(ended_s, began_s)", "window"),
        newest("coalesce(to_s, from_s)", "unit"),
        zero_s + newest("second + span_s", "second"),
    )
