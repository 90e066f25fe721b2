"""Files of records as earlier versions wrote them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from migrator.records.rows import LAYOUT

_PLAN = '{"slots": [{"instances": [{"start": 0, "gpcs": 3, "task": "vision/inference"}]}]}'
_VERSION_1 = (
    "CREATE TABLE run (run INTEGER PRIMARY KEY, began_s, ended_s, scenario, board, driver, policy,"
    " seed, pid, about)",
    "CREATE TABLE window (run INTEGER, window, began_s, policy, forecaster, ended_s, plan,"
    " predicted_goodput, plan_s, replans, PRIMARY KEY (run, window))",
    "CREATE TABLE tenant_window (run INTEGER, window, tenant, received, in_time, late, dropped,"
    " failed, goodput, wrong, labelled, while_reconfiguring, accuracy_before, accuracy_after,"
    " accuracy_estimated, version, PRIMARY KEY (run, window, tenant))",
    "CREATE TABLE second (run INTEGER, tenant, second, received, in_time, late, dropped,"
    " forecast_mean, forecast_low, forecast_high, span_s, PRIMARY KEY (run, tenant, second))",
    "CREATE TABLE unit (run INTEGER, unit, from_s, start, gpcs, tenant, task, state, to_s, parts_s,"
    " PRIMARY KEY (run, unit, from_s))",
    "CREATE TABLE version (run INTEGER, tenant, number, at_s, accuracy, adopted, why,"
    " PRIMARY KEY (run, tenant, number, at_s))",
    "CREATE TABLE event (run INTEGER, at_s, kind, words)",
    "INSERT INTO run VALUES (1, 5.0, NULL, 'old', 'A100-40GB', 'emulated', 'migrator', 0, 1, '{}')",
    f"INSERT INTO window VALUES (1, 0, 6.0, 'migrator', 'auto', NULL, '{_PLAN}', 9.0, 1, 0)",
    "INSERT INTO second VALUES (1, 'vision', 3, 4, 3, 1, 0, 2.5, NULL, NULL, 1)",
)
"""How files of version 1 were made."""


def written_by_version_1(path: Path) -> None:
    """A run of one window and one second."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA application_id={LAYOUT.application_id}")
        connection.execute("PRAGMA user_version=1")
        for statement in _VERSION_1:
            connection.execute(statement)
        connection.commit()
