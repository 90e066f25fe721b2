"""The tables of a file of records: how rows are laid down in SQLite and read back.

Beneath `records`, which writes and reads whole runs, and the live page, which reads what is new.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from migrator.io.database import Layout, rebuilt, table
from migrator.records.rows import (
    KEYS,
    ActionRecord,
    EventRecord,
    PlanRecord,
    Record,
    RetrainingRecord,
    RunRow,
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
)

R = TypeVar(
    "R",
    WindowRecord,
    TenantWindowRecord,
    SecondRecord,
    UnitRecord,
    VersionRecord,
    EventRecord,
    PlanRecord,
    ActionRecord,
    RetrainingRecord,
)

TABLES: Mapping[type[Record], str] = {
    WindowRecord: "window",
    TenantWindowRecord: "tenant_window",
    SecondRecord: "second",
    UnitRecord: "unit",
    VersionRecord: "version",
    EventRecord: "event",
    PlanRecord: "plan",
    ActionRecord: "action",
    RetrainingRecord: "retraining",
}
_JSON = {"plan", "parts_s", "about", "blocks"}
"""Fields kept as text."""


def names_of(kind: type[Record] | type[RunRow]) -> tuple[str, ...]:
    """The columns of a kind of rows."""
    return tuple(each.name for each in fields(kind))


_Definition = tuple[str, list[str], *tuple[str, ...]]
"""Name, columns and constraints; SQLite needs no types: the rows are checked by their maker."""


def _definition(kind: type[Record]) -> _Definition:
    keys = KEYS[kind]
    unique = (f"PRIMARY KEY ({', '.join(('run', *keys))})",) if keys else ()
    return TABLES[kind], ["run INTEGER", *names_of(kind)], *unique


_EVERY: tuple[_Definition, ...] = (
    ("run", ["run INTEGER PRIMARY KEY", *names_of(RunRow)[1:]]),
    *map(_definition, TABLES),
)

LAYOUT = Layout(
    holds="records",
    application_id=0x4D495245,
    version=3,
    statements=tuple(table(*each) for each in _EVERY),
    upgrades={
        1: (
            "ALTER TABLE second ADD COLUMN failed DEFAULT 0",
            "ALTER TABLE second ADD COLUMN wrong",
            "ALTER TABLE second ADD COLUMN reconfiguring DEFAULT 0",
            *(table(*_definition(each)) for each in (PlanRecord, ActionRecord, RetrainingRecord)),
        ),
        2: tuple(statement for each in _EVERY for statement in rebuilt(*each)),
    },
)


def insert_into(kind: type[Record]) -> str:
    """What writes a row, or writes it again."""
    names = ("run", *names_of(kind))
    marks = ", ".join("?" * len(names))
    return f"INSERT OR REPLACE INTO {TABLES[kind]} ({', '.join(names)}) VALUES ({marks})"


def values_of(record: Record) -> tuple[object, ...]:
    """A row as it is written, without its run."""
    named = {name: getattr(record, name) for name in names_of(type(record))}
    return tuple(
        json.dumps(value) if name in _JSON and value is not None else value
        for name, value in named.items()
    )


def read_rows(
    connection: sqlite3.Connection,
    run: int,
    kind: type[R],
    where: str = "1",
    *given: object,
    without: tuple[str, ...] = (),
) -> tuple[R, ...]:
    """The rows of a run in their order; a file of an older version has fewer columns or none.

    Columns `without` which a row can be are not read.
    """
    names = tuple(each for each in columns_of(connection, kind) if each not in without)
    if not names:
        return ()
    order = ", ".join(KEYS[kind]) or "rowid"
    query = (
        f"SELECT {', '.join(names)} FROM {TABLES[kind]} WHERE run = ? AND {where} ORDER BY {order}"
    )
    found = connection.execute(query, (run, *given))
    return tuple(kind(**_fields(names, row)) for row in found)


def columns_of(connection: sqlite3.Connection, kind: type[Record]) -> tuple[str, ...]:
    """The columns that a file has of a kind of rows; none where it has no such table."""
    found = connection.execute(f"PRAGMA table_info({TABLES[kind]})")
    there = {name for _, name, *_ in found}
    return tuple(each for each in names_of(kind) if each in there)


RUNS = f"SELECT {', '.join(names_of(RunRow))} FROM run"
"""What finds rows for `read_run`."""


def read_run(row: tuple[Any, ...]) -> RunRow:
    """A row of the table of runs."""
    return RunRow(**_fields(names_of(RunRow), row))


def _fields(names: tuple[str, ...], row: tuple[Any, ...]) -> dict[str, Any]:
    named = dict(zip(names, row, strict=True))
    for name in _JSON & named.keys():
        named[name] = None if named[name] is None else json.loads(named[name])
    if "adopted" in named:
        named["adopted"] = bool(named["adopted"])
    if "blocks" in named:
        named["blocks"] = tuple(named["blocks"] or ())
    return named
