"""How far a page has read a run's records: the last row of every table, as one short word.

A row that is written again gets a new row number, so what is above the marker is everything new.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from migrator.core.errors import InputError
from migrator.records.rows import Record
from migrator.records.tables import TABLES, columns_of


@dataclass(frozen=True)
class Marker:
    """The highest row number per table, in the tables' order; empty: nothing was read."""

    rows: tuple[int, ...] = (0,) * len(TABLES)

    def __str__(self) -> str:
        return ".".join(map(str, self.rows))

    @staticmethod
    def parse(text: str) -> Marker:
        """The marker written as `text`; InputError where it is none."""
        parts = text.split(".")
        if len(parts) != len(TABLES) or not all(each.isdecimal() for each in parts):
            raise InputError("after: no marker that this page was given; load the page again")
        return Marker(tuple(min(int(each[:18]), 2**62) for each in parts))

    @staticmethod
    def now(connection: sqlite3.Connection) -> Marker:
        """Everything that is written by now."""
        return Marker(tuple(_last(connection, kind) for kind in TABLES))

    def of(self, kind: type[Record]) -> int:
        """The last row of one table."""
        return self.rows[list(TABLES).index(kind)]


def _last(connection: sqlite3.Connection, kind: type[Record]) -> int:
    if not columns_of(connection, kind):
        return 0
    return int(connection.execute(f"SELECT max(rowid) FROM {TABLES[kind]}").fetchone()[0] or 0)
