"""What `migrator top` reads of a file of records: the last rows alone, however long the run is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from migrator.core.errors import InputError
from migrator.io.database import reading
from migrator.records.rows import (
    ActionRecord,
    EventRecord,
    PlanRecord,
    RetrainingRecord,
    RunRow,
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
)
from migrator.records.tables import LAYOUT, RUNS, read_rows, read_run

RATE_S = 10
"""Rates are of so many seconds."""
LINES = 24
"""Events and actions that are read, the last ones."""


@dataclass(frozen=True)
class TopRows:
    """The last run as it stands."""

    run: RunRow
    window: WindowRecord | None
    plans: tuple[PlanRecord, ...]
    """Of that window."""
    seconds: tuple[SecondRecord, ...]
    units: tuple[UnitRecord, ...]
    """Those that are still there."""
    tenants: tuple[TenantWindowRecord, ...]
    """Of the last window that ended."""
    versions: tuple[VersionRecord, ...]
    """The last one that each tenant adopted."""
    retrainings: tuple[RetrainingRecord, ...]
    events: tuple[EventRecord, ...]
    actions: tuple[ActionRecord, ...]


def read_top(path: Path) -> TopRows:
    """The newest run of the file, also while it is being written."""
    with reading(path, LAYOUT) as connection:
        found = connection.execute(f"{RUNS} ORDER BY run DESC LIMIT 1").fetchone()
        if found is None:
            raise InputError(f"{path}: no run is in it yet; start `migrator serve SCENARIO`")
        row = read_run(found)
        run = row.run
        last = "window = (SELECT max(window) FROM {} WHERE run = ?)"
        windows = read_rows(connection, run, WindowRecord, last.format("window"), run)
        number = windows[-1].window if windows else -1
        newest = "rowid > (SELECT max(rowid) FROM {}) - ?"
        adopted = (
            "adopted AND (tenant, at_s) IN (SELECT tenant, max(at_s) FROM version WHERE run = ? "
            "AND adopted GROUP BY tenant)"
        )
        recent = "second > (SELECT max(second) FROM second WHERE run = ?) - ?"
        return TopRows(
            row,
            windows[-1] if windows else None,
            read_rows(connection, run, PlanRecord, "window = ?", number),
            read_rows(connection, run, SecondRecord, recent, run, RATE_S),
            read_rows(connection, run, UnitRecord, "to_s IS NULL"),
            read_rows(connection, run, TenantWindowRecord, last.format("tenant_window"), run),
            read_rows(connection, run, VersionRecord, adopted, run),
            read_rows(connection, run, RetrainingRecord, "window = ?", number),
            read_rows(connection, run, EventRecord, newest.format("event"), LINES),
            read_rows(connection, run, ActionRecord, newest.format("action"), LINES),
        )
