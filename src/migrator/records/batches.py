"""Batches of a run in a CSV file, a row each; written only where it is asked for."""

from __future__ import annotations

import csv
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import get_type_hints

from migrator.core.batch import Batch
from migrator.core.errors import InputError
from migrator.io.output_file import check_path

OPTION = "--batches"
MOST_ROWS = 5_000_000
"""Rows of one run (about 500 MB); later batches are not recorded."""

_TYPES = tuple(get_type_hints(Batch).values())

_log = logging.getLogger(__name__)


class BatchFile:
    """Appends batches to a file. `put` is cheap; `flush` writes and may run in a thread."""

    def __init__(self, path: Path, zero_s: float) -> None:
        """`zero_s`: the Unix time at 0 of the batches' clock. InputError: not writable."""
        check_batches_path(path)
        self._zero_s, self._left = zero_s, MOST_ROWS
        self._waiting: deque[Batch] = deque()
        try:
            self._file = path.open("a", encoding="utf-8", newline="")
        except OSError as error:
            raise InputError(
                f"{OPTION}: {path} cannot be written ({error.strerror}); name another file"
            ) from error
        self._csv = csv.writer(self._file)
        if not self._file.tell():
            self._csv.writerow(Batch._fields)

    def put(self, batch: Batch) -> None:
        if self._left > 0:
            self._left -= 1
            self._waiting.append(batch)
            if not self._left:
                _log.warning("%s: %d batches are recorded; the others are not", OPTION, MOST_ROWS)

    def flush(self) -> None:
        """Write the queued batches. If that fails, nothing more is recorded."""
        batches = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            self._csv.writerows(map(self._row, batches))
            self._file.flush()
        except OSError as error:
            self._left = 0
            _log.warning("%s: no more batches are recorded: %s", OPTION, error)

    def close(self) -> None:
        self.flush()
        with suppress(OSError):  # of rows that could not be written, which was reported
            self._file.close()

    def _row(self, batch: Batch) -> list[object]:
        return [
            f"{value + self._zero_s:.6f}" if isinstance(value, float) else value for value in batch
        ]


def check_batches_path(path: Path | None) -> None:
    """InputError if batches cannot be written to `path`; None: they are not recorded."""
    if path is None:
        return
    check_path(path, (".csv",), OPTION)
    if not path.exists() or not path.stat().st_size:
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        if file.readline().strip() != ",".join(Batch._fields):
            raise InputError(f"{OPTION}: {path} exists and has no batches; name another file")


def read_batches(path: Path) -> Iterator[Batch]:
    """The batches of a file in the order in which they were answered; times are Unix time."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        for row in rows:
            if len(row) < len(Batch._fields):
                return  # the daemon was killed while it wrote this row
            yield Batch(*(kind(text) for kind, text in zip(_TYPES, row, strict=True)))
