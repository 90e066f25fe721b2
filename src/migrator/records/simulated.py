"""Records of simulated runs: collected in memory while a run lasts, and written into files.

Times are those of the run's own clock, which begins on a fixed day, so that the same run writes the
same file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError, NotWrittenError
from migrator.io.atomic_write import write_atomically
from migrator.io.output_file import check_path
from migrator.records.rows import TABLES, Record, RunRecords, RunRow, key_of
from migrator.records.runs import SIMULATED
from migrator.records.store import Records, read_runs

BEGAN_S = 946_684_800.0
"""The first moment of the year 2000, when every simulated run begins."""


class RowsInMemory:
    """The rows of one run, as a file would keep them."""

    def __init__(self) -> None:
        self._rows: dict[object, Record] = {}

    def put(self, record: Record) -> None:
        """Take a row. It replaces the row with the same key."""
        self._rows[key_of(record)] = record

    def records(self, run: RunRow) -> RunRecords:
        """All rows, in the order in which a file is read."""
        tables: list[Any] = []
        for kind in TABLES:
            rows = [row for row in self._rows.values() if type(row) is kind]
            tables.append(tuple(sorted(rows, key=_order)))
        return RunRecords(run, *tables)


def _order(row: Record) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in row.keys or ("at_s",))


def check_records_path(path: Path) -> None:
    """InputError if records cannot be written to `path`; those of a live run are never replaced."""
    check_path(path, (".db",), "--records")
    if not path.exists():
        return
    try:
        live = [row for row in read_runs(path) if row.driver != SIMULATED]
    except InputError as error:
        raise InputError(
            f"--records: {path} exists and is no file of records; name another"
        ) from error
    if live:
        raise InputError(f"--records: {path} has the records of a live run; name another file")


def write_simulations(path: Path, runs: Sequence[RunRecords]) -> None:
    """Write all runs into one file; a failure leaves no file."""
    check_records_path(path)
    with write_atomically(path, option="--records") as unfinished:
        try:
            for run in runs:
                _write(unfinished, run)
            # a single file, readable also where nothing can be written beside it
            with closing(sqlite3.connect(unfinished)) as connection:
                connection.execute("PRAGMA journal_mode=DELETE")
        except (InputError, sqlite3.Error) as error:
            raise NotWrittenError(
                f"--records: cannot write {path} ({_cause(error)}); free some space or name "
                "another file"
            ) from error
        finally:
            for end in ("-wal", "-shm"):
                Path(f"{unfinished}{end}").unlink(missing_ok=True)


def _cause(error: Exception) -> str:
    """Without the advice for the records of a daemon."""
    return str(error.__cause__ or error)


def _write(path: Path, run: RunRecords) -> None:
    kept = ("scenario", "board", "driver", "policy", "seed", "about", "began_s", "pid")
    facts = {name: getattr(run.run, name) for name in kept}
    records = Records(path, **facts, seconds_kept_s=None)
    for rows in (
        *(run.windows, run.tenant_windows, run.seconds, run.units, run.versions),
        *(run.events, run.plans, run.retrainings),
    ):
        for row in rows:
            records.put(row)
    try:
        records.flush()
    finally:
        records.close(run.run.ended_s)
