"""Labels sent by clients, in a SQLite file: durable before they are acknowledged.

A thread commits all labels that arrived during its last commit at once, so that requests and other
labels do not wait for separate disk writes. Labels that no retraining has learned are never
deleted: beyond a limit new ones are refused. Learned labels are trimmed to a few windows and a
number per class. Arrays are stored as bytes with their type and shape; nothing is unpickled.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError, NotWrittenError
from migrator.core.tensors import dtype_of, dtype_text, to_records
from migrator.io.database import (
    AGAIN_S,
    FileMovedError,
    Schema,
    describe_moved,
    explain_errors,
    open_as_is,
    open_database,
    transaction,
)

PRETRAINED = -1
"""Window number of pre-training samples, and of labels that came before the first window."""

HELD_OUT, TRAINED = -1.0, 2.0
"""Lots of samples that are always held out, or always trained on."""

SCHEMA = Schema(
    holds="labels",
    application_id=0x4D494C41,
    version=1,
    statements=(
        "CREATE TABLE sample (id INTEGER PRIMARY KEY, tenant TEXT, request TEXT, window INTEGER, "
        "label INTEGER, predicted INTEGER, lot REAL, dtype TEXT, shape TEXT, inputs BLOB, "
        "UNIQUE (tenant, request))",
        "CREATE INDEX by_class ON sample (tenant, label, window)",
        "CREATE TABLE tally (tenant TEXT, window INTEGER, labelled INTEGER, judged INTEGER, "
        "wrong INTEGER, PRIMARY KEY (tenant, window))",
    ),
)

LearnedBefore = Callable[[str], int | None]
"""Maps a tenant to the first window whose labels a retraining may still have to learn.

None: unknown, so no label of the tenant is trimmed or refused.
"""

_KINDS = "biufV"
"""Kinds of numpy arrays: numbers and records of them."""
ALL = 0
"""The class of all labels that are tensors."""
_LONGEST_ID = 200
_CLASSES = 2**31
_MOST_AT_ONCE = 512
_TRIM_EVERY = 4096
"""Samples added for a tenant between two trims."""

_log = logging.getLogger(__name__)


class NotKeptError(InputError):
    """The label was not stored: the disk is full, or too many labels are not learned yet."""


class ConflictingLabelError(InputError):
    """The request already has another label, or its id names other inputs; the first is kept."""


@dataclass(frozen=True)
class LabelCounts:
    """Counts of a tenant's labels in a window; a request counts once."""

    labelled: int = 0
    judged: int = 0
    """Labels whose answer is known as well."""
    wrong: int = 0
    """Judged labels whose answer was wrong."""

    def accuracy(self, fewest: int = 1) -> float | None:
        """The share of judged answers that were correct; None if less than `fewest` are judged."""
        return 1 - self.wrong / self.judged if self.judged >= fewest else None


class SampleRow(msgspec.Struct, frozen=True):
    """One labelled sample, in the order of the table's columns."""

    tenant: str
    request: str
    window: int
    label: int
    predicted: int | None
    lot: float
    dtype: str
    shape: str
    inputs: bytes


def nothing_known(_tenant: str) -> None:
    """A `LearnedBefore` that knows nothing."""


def sample_row(
    tenant: str,
    window: int,
    inputs: NDArray[Any],
    label: int | NDArray[Any],
    predicted: int | None,
    request_id: str,
) -> SampleRow:
    """The row of a sample; InputError if it cannot be stored.

    A label that consists of tensors is stored as `ALL` with the inputs, in one record of both.
    """
    if inputs.dtype.kind not in _KINDS or not inputs.size:
        raise InputError(
            f"label of {tenant}: its inputs are not numbers ({inputs.dtype}, {inputs.size} "
            "elements); send the array of the request"
        )
    is_id = 0 < len(request_id) <= _LONGEST_ID and request_id.isprintable()
    lot = lot_of(_content(inputs)[1])
    if isinstance(label, np.ndarray):
        inputs = to_records({"inputs": inputs[None], "label": label[None]})[0, ...]
        label = ALL
    if not 0 <= label < _CLASSES or not is_id:
        raise InputError(
            f"label of {tenant}: give a class from 0 on and the request's id, 1 to {_LONGEST_ID} "
            "printable characters"
        )
    dtype, content = _content(inputs)
    return SampleRow(
        tenant,
        request_id,
        window,
        label,
        predicted,
        lot,
        dtype,
        json.dumps(inputs.shape),
        content,
    )


def _content(array: NDArray[Any]) -> tuple[str, bytes]:
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return dtype_text(plain.dtype), plain.tobytes()


def samples_of(
    contents: Iterable[bytes], count: int, dtype: str, shape: str
) -> tuple[NDArray[Any], ...]:
    """Inputs of `count` rows and, where they were stored with them, labels. Raises ValueError or
    TypeError for what `sample_row` did not write."""
    kind, row_shape = dtype_of(dtype), json.loads(shape)
    rows = np.empty((count, *row_shape), kind)
    for at, content in enumerate(contents):
        rows[at] = np.frombuffer(content, kind).reshape(row_shape)
    is_both = kind.names == ("inputs", "label") and kind["label"].names is not None
    return (rows["inputs"], rows["label"]) if is_both else (rows,)


def judged_as(label: int | NDArray[Any], correct: bool) -> int:
    """The class that stands for an answer which the model has judged itself."""
    return (ALL if isinstance(label, np.ndarray) else label) if correct else -1


def lot_of(inputs: bytes) -> float:
    """A number from 0 to 1 derived from the inputs alone. Samples below the held-out share are
    never trained on.

    It does not depend on the request: otherwise an input sent twice could be both learned and
    judged.
    """
    digest = hashlib.blake2b(inputs, digest_size=4).digest()
    return int.from_bytes(digest, "little") / 2**32


def insert(connection: sqlite3.Connection, row: SampleRow) -> bool:
    """Insert a sample and count it; False if the request already has a label."""
    names = row.__struct_fields__
    cursor = connection.execute(
        f"INSERT OR IGNORE INTO sample ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
        msgspec.structs.astuple(row),
    )
    if not cursor.rowcount:
        return False
    judged = row.predicted is not None
    connection.execute(
        "INSERT INTO tally VALUES (?, ?, 1, ?, ?) ON CONFLICT DO UPDATE SET "
        "labelled = labelled + 1, judged = judged + excluded.judged, "
        "wrong = wrong + excluded.wrong",
        (row.tenant, row.window, judged, judged and row.predicted != row.label),
    )
    return True


def find_conflict(connection: sqlite3.Connection, row: SampleRow) -> str | None:
    """How a sample differs from the stored one of the same request; None if it does not."""
    query = "SELECT label, dtype, shape, inputs FROM sample WHERE tenant = ? AND request = ?"
    stored = connection.execute(query, (row.tenant, row.request)).fetchone()
    if stored is None:
        return None
    label, *inputs = stored
    if inputs != [row.dtype, row.shape, row.inputs]:  # with the label, where that is tensors
        return (
            f"id: {row.request} of {row.tenant} already names other inputs or another label, which "
            "are kept; send each request under an id of its own"
        )
    if label != row.label:
        return (
            f"id: {row.request} of {row.tenant} already has label {label}, which is kept; label "
            f"{row.label} is not stored, send the inputs with it under another id"
        )
    return None


def is_kept(connection: sqlite3.Connection, row: SampleRow) -> bool:
    """Whether a sample of the same request is stored."""
    query = "SELECT 1 FROM sample WHERE tenant = ? AND request = ?"
    return connection.execute(query, (row.tenant, row.request)).fetchone() is not None


@dataclass(frozen=True)
class LabelLimits:
    """How many labels of a tenant are kept."""

    windows: int = 3
    """Number of windows whose learned samples are all kept, up to the byte limit."""
    per_class: int = 400
    """Learned samples kept per class from before those windows."""
    learned_bytes: int = 2**30
    unlearned_rows: int = 500_000
    """Labels that no retraining has learned. Beyond the limit new ones are refused."""
    unlearned_bytes: int = 2**30


def trim(
    connection: sqlite3.Connection, tenant: str, learned_before: int, limits: LabelLimits
) -> None:
    """Delete samples of windows before `learned_before`; later windows are kept entirely.

    Of the learned samples, the last windows and the newest samples of every class are kept, up to
    the byte limit. The limit is divided equally among the classes, so that a rare class keeps
    samples.
    """
    where = "FROM sample WHERE tenant = :tenant AND window < :learned_before"
    values = {"tenant": tenant, "learned_before": learned_before}
    (classes,) = connection.execute(f"SELECT count(DISTINCT label) {where}", values).fetchone()
    last = connection.execute("SELECT max(window) FROM sample WHERE tenant = ?", (tenant,))
    connection.execute(
        "DELETE FROM sample WHERE id IN (SELECT id FROM (SELECT id, window, "
        "row_number() OVER newest AS number, sum(length(inputs)) OVER newest AS bytes "
        f"{where} WINDOW newest AS (PARTITION BY label ORDER BY window DESC, id DESC)) "
        "WHERE (window <= :old AND number > :per_class) OR bytes > :bytes)",
        values
        | {
            "old": (last.fetchone()[0] or 0) - limits.windows,
            "per_class": limits.per_class,
            "bytes": limits.learned_bytes // max(1, classes),
        },
    )


Kept = dict[str, dict[int, tuple[int, int]]]
"""Stored rows and bytes of inputs by tenant and window."""


def kept_by_window(connection: sqlite3.Connection, tenant: str | None = None) -> Kept:
    """What is stored of a tenant; None: of all tenants. Pre-training samples are no labels."""
    cursor = connection.execute(
        "SELECT tenant, window, count(*), sum(length(inputs)) FROM sample "
        "WHERE tenant = coalesce(?, tenant) AND lot BETWEEN 0 AND 1 GROUP BY tenant, window",
        (tenant,),
    )
    kept: Kept = {} if tenant is None else {tenant: {}}
    for name, window, rows, size in cursor:
        kept.setdefault(name, {})[window] = (rows, size)
    return kept


@dataclass(frozen=True)
class _Write:
    """A row to write and the future of its caller."""

    row: SampleRow
    done: asyncio.Future[bool]
    shared: bool = False
    """Whether it came from the shared store."""


class Labels:
    """The labels of all tenants in the file `path`; used from one event loop at a time."""

    def __init__(
        self,
        path: Path,
        limits: LabelLimits | None = None,
        *,
        learned_before: LearnedBefore = nothing_known,
        share: Callable[[Sequence[SampleRow]], None] | None = None,
    ) -> None:
        """`share` writes new rows to the shared store before they are acknowledged; if it raises,
        they are refused. `share` and `learned_before` are called in the writer thread."""
        self.path, self._share, self._limits = path, share, limits or LabelLimits()
        self._learned_before = learned_before
        self.damaged: Path | None = None
        """The copy of a damaged file that was found when this one was opened."""
        self._writable, self._again_s = True, 0.0
        try:
            self._connection, self.damaged = open_database(path, SCHEMA, "FULL")
        except NotWrittenError as error:
            _log.warning("labels are refused until the disk has room: %s", error)
            self._connection, self._writable = open_as_is(path, SCHEMA), False
        self._read_counts()
        self._added: dict[str, int] = {}
        self._pending: list[_Write] = []
        self._writing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "labels")
        self._closed = self._logged_moved = False

    async def add(
        self,
        tenant: str,
        window: int,
        inputs: NDArray[Any],
        label: int | NDArray[Any],
        predicted: int | None,
        request_id: str,
    ) -> bool:
        """Store one sample (without the batch axis); it is on disk when this returns.

        `label`: a class, or a record of tensors; `predicted`: the class of the answer, and where
        the model decided itself `judged_as`.

        Returns False if the same sample is already stored. Raises InputError for an invalid
        sample, ConflictingLabelError if the request has another label, and NotKeptError or
        FileMovedError if labels cannot be stored at present.
        """
        row = sample_row(tenant, window, inputs, label, predicted, request_id)
        if self._closed:
            raise NotKeptError(f"{self.path}: labels are closed; start the daemon again")
        # the label is stored even if the client disconnects
        return await asyncio.shield(self._put(row))

    @property
    def moved(self) -> str:
        """Why labels are refused while the file is not at its path; "" if it is."""
        return describe_moved(self._connection, self.path, SCHEMA)

    async def bring(self, rows: Iterable[SampleRow]) -> int:
        """Store labels of other daemons. Returns the number of new ones."""
        return sum(await asyncio.gather(*(self._put(row, shared=True) for row in rows)))

    def counts(self, tenant: str, window: int) -> LabelCounts:
        return self._counts.get((tenant, window), LabelCounts())

    def accuracy(self, tenant: str, window: int, fewest: int = 1) -> float | None:
        """Accuracy by the labels of a window; None if there are less than `fewest`."""
        return self.counts(tenant, window).accuracy(fewest)

    def judged(self, tenant: str, window: int) -> tuple[int, int]:
        """Labels of a window whose answer is known, and how many of these answers were wrong."""
        counts = self.counts(tenant, window)
        return counts.judged, counts.wrong

    def kept(self, tenant: str, first: int, before: int) -> int:
        """Number of stored labels of the windows from `first` to `before` - 1."""
        windows = tuple(self._kept.get(tenant, {}).items())  # the writer thread adds to it
        return sum(rows for window, (rows, _) in windows if first <= window < before)

    @property
    def last_window(self) -> int:
        """The last window that has a label, including trimmed ones; -1 if there is none."""
        return max((window for _, window in tuple(self._counts)), default=-1)

    async def close(self) -> None:
        """Write the pending labels and close the file."""
        self._closed = True
        if self._writing is not None:
            await self._writing
        self._thread.shutdown()
        self._connection.close()

    def _put(self, row: SampleRow, *, shared: bool = False) -> asyncio.Future[bool]:
        """Append a row to those that the next transaction writes."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pending.append(_Write(row, done, shared))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_pending())
        return done

    async def _write_pending(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending:
            writes, self._pending = self._pending[:_MOST_AT_ONCE], self._pending[_MOST_AT_ONCE:]
            results = await loop.run_in_executor(self._thread, self._results, writes)
            for write, result in zip(writes, results, strict=True):
                if write.done.done():
                    continue
                if isinstance(result, InputError):
                    write.done.set_exception(result)
                else:
                    write.done.set_result(result)
        self._writing = None

    def _results(self, writes: Sequence[_Write]) -> Sequence[bool | InputError]:
        """Write all. Returns whether each was new, or the error; never raises."""
        try:
            results = self._write(writes)
            self._logged_moved = False
            return results
        except FileMovedError as error:
            if not self._logged_moved:
                _log.error("labels are refused: %s", error)
            self._logged_moved = True
            return [error] * len(writes)
        except InputError as error:
            return [NotKeptError(str(error))] * len(writes)
        except Exception as error:
            _log.exception("labels could not be stored")
            why = NotKeptError(
                f"{self.path}: labels could not be stored ({type(error).__name__}: {error}); see "
                "the daemon's log"
            )
            return [why] * len(writes)

    def _write(self, writes: Sequence[_Write]) -> Sequence[bool | InputError]:
        """Write all in one transaction. Returns which were new.

        Trimming comes first, so that rows added in this transaction are kept.
        """
        if not self._writable:
            self._reopen()
        tenants = {write.row.tenant for write in writes}
        with explain_errors(self.path, SCHEMA), transaction(self._connection):
            trimmed = self._trim(tenants)
            space = {tenant: self._space(tenant) for tenant in tenants}
            results = [self._insert(write, space) for write in writes]
            new = [e for e, added in zip(writes, results, strict=True) if added is True]
            own = [write.row for write in new if not write.shared]
            if self._share is not None and own:
                self._share(own)
        self._kept |= trimmed
        self._added |= dict.fromkeys(trimmed, 0)
        for write in new:
            self._count(write.row)
        return results

    def _reopen(self) -> None:
        """Try again to write a file that could not be written when it was opened."""
        if time.monotonic() < self._again_s:  # opening checks the whole file
            raise NotWrittenError(f"{self.path}: labels are refused until the disk has room")
        self._again_s = time.monotonic() + AGAIN_S
        as_is = self._connection
        self._connection, self.damaged = open_database(self.path, SCHEMA, "FULL")
        if self.damaged is not None:
            _log.error("%s was damaged and is kept as %s", self.path, self.damaged)
        as_is.close()
        self._read_counts()
        self._writable = True

    def _read_counts(self) -> None:
        with explain_errors(self.path, SCHEMA):
            rows = self._connection.execute(
                "SELECT tenant, window, labelled, judged, wrong FROM tally"
            ).fetchall()
            self._kept = kept_by_window(self._connection)
        self._counts = {(tenant, window): LabelCounts(*counts) for tenant, window, *counts in rows}

    def _insert(self, write: _Write, space: dict[str, tuple[int, int]]) -> bool | InputError:
        """Insert a row. Return whether it is new, or why it is refused.

        A label that another daemon has acknowledged is never refused.
        """
        row, size = write.row, len(write.row.inputs)
        rows, left = space[row.tenant]
        if not write.shared and (rows < 1 or left < size) and not is_kept(self._connection, row):
            return NotKeptError(
                f"{row.tenant} has reached the limit of labels that no retraining has learned; "
                "send it again after the next retraining, see `migrator status`"
            )
        new = insert(self._connection, row)
        if new:
            space[row.tenant] = rows - 1, left - size
        elif not write.shared and (conflict := find_conflict(self._connection, row)):
            return ConflictingLabelError(conflict)
        return new

    def _trim(self, tenants: Iterable[str]) -> Kept:
        """Trim tenants with enough added samples. Returns what is left of them."""
        left: Kept = {}
        for tenant in tenants:
            learned_before = self._learned_before(tenant)
            if learned_before is None or self._added.get(tenant, _TRIM_EVERY) < _TRIM_EVERY:
                continue
            trim(self._connection, tenant, learned_before, self._limits)
            left |= kept_by_window(self._connection, tenant)
        return left

    def _space(self, tenant: str) -> tuple[int, int]:
        """Rows and bytes that may still be added to the labels that are not learned."""
        rows, size = self._limits.unlearned_rows, self._limits.unlearned_bytes
        learned_before = self._learned_before(tenant)
        if learned_before is not None:
            for window, (count, length) in self._kept.get(tenant, {}).items():
                if window >= learned_before:
                    rows, size = rows - count, size - length
        return rows, size

    def _count(self, row: SampleRow) -> None:
        self._added[row.tenant] = self._added.get(row.tenant, _TRIM_EVERY) + 1
        windows = self._kept.setdefault(row.tenant, {})
        rows, size = windows.get(row.window, (0, 0))
        windows[row.window] = (rows + 1, size + len(row.inputs))
        before, judged = self.counts(row.tenant, row.window), row.predicted is not None
        self._counts[row.tenant, row.window] = LabelCounts(
            before.labelled + 1,
            before.judged + judged,
            before.wrong + (judged and row.predicted != row.label),
        )
