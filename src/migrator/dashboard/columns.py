"""Seconds as columns of numbers, made into JSON by SQLite itself.

An hour of a few tenants is tens of thousands of rows: here they never become Python objects, and
the daemon's requests do not wait while SQLite works.
"""

from __future__ import annotations

import sqlite3

from migrator.records.rows import SecondRecord
from migrator.records.tables import columns_of

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
