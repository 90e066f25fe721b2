"""The labels' file: its tables, how a sample becomes a row and back, what is dropped when.

Arrays are kept as they are in memory, beside their type and shape: nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.io.database import Layout, rebuilt, table

PRETRAINED = -1
"""The window of what a model was pre-trained on."""

HELD_OUT, TRAINED = -1.0, 2.0
"""Lots of samples that are certainly held out, or trained on."""

_SAMPLE = (
    "sample",
    (
        "id INTEGER PRIMARY KEY",
        "tenant TEXT",
        "request TEXT",
        "window INTEGER",
        "label INTEGER",
        "predicted INTEGER",
        "lot REAL",
        "dtype TEXT",
        "shape TEXT",
        "inputs BLOB",
    ),
    "UNIQUE (tenant, request)",
)
_BY_CLASS = "CREATE INDEX by_class ON sample (tenant, label, window)"
_TALLY = (
    "tally",
    ("tenant TEXT", "window INTEGER", "labelled INTEGER", "judged INTEGER", "wrong INTEGER"),
    "PRIMARY KEY (tenant, window)",
)

LAYOUT = Layout(
    holds="labels",
    application_id=0x4D494C41,
    version=2,
    statements=(table(*_SAMPLE), _BY_CLASS, table(*_TALLY)),
    upgrades={1: (*rebuilt(*_SAMPLE), _BY_CLASS, *rebuilt(*_TALLY))},
)

LearnedBefore = Callable[[str], int | None]
"""Tenant -> the first window whose labels a retraining may still have to learn.

None: not known, so nothing of the tenant is trimmed or refused.
"""

_KINDS = "biuf"
"""Of arrays that are numbers; anything else would need more than its bytes."""
_LONGEST_ID = 200
_CLASSES = 2**31


@dataclass(frozen=True)
class LabelCounts:
    """Labels of a tenant in a window; a request counts once."""

    labelled: int = 0
    judged: int = 0
    """Those whose answer is known too."""
    wrong: int = 0
    """Of the judged."""


@dataclass(frozen=True)
class SampleRow:
    """One labelled sample as it is kept."""

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
    """Nothing is known to be learned."""


def sample_row(
    tenant: str,
    window: int,
    inputs: NDArray[Any],
    label: int,
    predicted: int | None,
    request_id: str,
) -> SampleRow:
    """The row of a sample; InputError where it cannot be kept."""
    if inputs.dtype.kind not in _KINDS or not inputs.size:
        raise InputError(
            f"label of {tenant}: its inputs are no numbers ({inputs.dtype}, {inputs.size} of "
            "them); send the array that was inferred"
        )
    if not 0 <= label < _CLASSES or not _is_id(request_id):
        raise InputError(
            f"label of {tenant}: give a class from 0 on and the request's id, 1 to {_LONGEST_ID} "
            "printable characters"
        )
    plain = np.ascontiguousarray(inputs, inputs.dtype.newbyteorder("<"))
    content = plain.tobytes()
    return SampleRow(
        tenant,
        request_id,
        window,
        label,
        predicted,
        lot_of(content),
        plain.dtype.str,
        json.dumps(inputs.shape),
        content,
    )


def _is_id(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_ID and text.isprintable()


def lot_of(inputs: bytes) -> float:
    """From 0 to 1, by the inputs alone: below the part held out they are never trained on.

    Not by the request: what is asked twice would be learned as one and judged as the other.
    """
    digest = hashlib.blake2b(inputs, digest_size=4).digest()
    return int.from_bytes(digest, "little") / 2**32


def inserted(connection: sqlite3.Connection, row: SampleRow) -> bool:
    """Add a sample and count it; False: its request is there already."""
    cursor = connection.execute(
        "INSERT OR IGNORE INTO sample (tenant, request, window, label, predicted, lot, dtype, "
        "shape, inputs) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            row.tenant,
            row.request,
            row.window,
            row.label,
            row.predicted,
            row.lot,
            row.dtype,
            row.shape,
            row.inputs,
        ),
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


def arrays(rows: Iterable[tuple[str, str, bytes]]) -> NDArray[Any]:
    """Inputs of rows that have one type and shape, one under another; ValueError: not whole."""
    found = [
        np.frombuffer(inputs, np.dtype(dtype)).reshape(json.loads(shape))
        for dtype, shape, inputs in rows
    ]
    return np.stack(found)


def is_kept(connection: sqlite3.Connection, row: SampleRow) -> bool:
    """Whether a sample of the same request is there."""
    query = "SELECT 1 FROM sample WHERE tenant = ? AND request = ?"
    return connection.execute(query, (row.tenant, row.request)).fetchone() is not None


def trim(
    connection: sqlite3.Connection,
    tenant: str,
    *,
    learned_before: int,
    windows: int,
    per_class: int,
    most_bytes: int,
) -> None:
    """Delete samples of windows before `learned_before`; those of later windows all stay.

    Of the learned ones the last windows stay, and of every class the newest samples, within the
    bytes. The bytes are divided equally among the classes, so that a rare class keeps samples.
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
            "old": (last.fetchone()[0] or 0) - windows,
            "per_class": per_class,
            "bytes": most_bytes // max(1, classes),
        },
    )


def kept_by_window(
    connection: sqlite3.Connection, tenant: str | None = None
) -> dict[str, dict[int, tuple[int, int]]]:
    """Tenant -> window -> rows and bytes of inputs that are there; None: of all tenants."""
    found = connection.execute(
        "SELECT tenant, window, count(*), sum(length(inputs)) FROM sample "
        "WHERE tenant = coalesce(?, tenant) GROUP BY tenant, window",
        (tenant,),
    )
    kept: dict[str, dict[int, tuple[int, int]]] = {} if tenant is None else {tenant: {}}
    for name, window, rows, size in found:
        kept.setdefault(name, {})[window] = (rows, size)
    return kept
