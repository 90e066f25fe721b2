"""The training data of a window, read from the labels by retrainer processes.

The daemon may write labels meanwhile. Pre-trainings store some of their samples as well, so that
the first retraining has samples of old classes to replay.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from migrator.core.errors import InputError
from migrator.io.database import joining, reading, transaction
from migrator.learn.samples import NoSamplesError, Samples, WindowData
from migrator.live.labels import (
    HELD_OUT,
    LAYOUT,
    PRETRAINED,
    TRAINED,
    arrays,
    inserted,
    sample_row,
)

HELD_OUT_PER_CLASS, _FEW = 100, 20
"""Upper and lower bound of the limit of held-out samples per class. The newest are used, because
the data drifts; their number is limited, because judging takes time."""

_Row = tuple[int, int, int, float, str, str]
"""Id, window, label, lot, type and shape."""


def window_data(
    path: Path,
    tenant: str,
    window: int,
    *,
    since: int | None = None,
    replay: int = 200,
    held_out: float = 0.2,
    seed: int = 0,
    most: int | None = None,
) -> WindowData:
    """The labels of windows `since` (by default `window`) to `window`, and replay samples of
    earlier windows: `replay` samples of every class, drawn by the seed.

    At most `most` samples are trained on: equally many of every class as far as possible, newest
    first. NoSamplesError if there are none; InputError if the file is unusable.
    """
    first = window if since is None else since
    with reading(path, LAYOUT) as connection:
        rows = _alike(
            connection.execute(
                "SELECT id, window, label, lot, dtype, shape FROM sample "
                "WHERE tenant = ? AND window <= ? ORDER BY window DESC, id DESC",
                (tenant, window),
            ).fetchall()
        )
        if not rows:
            raise NoSamplesError(
                f"{path}: {tenant} has no labels up to window {window}; send labels for its answers"
            )
        trained = [each for each in rows if each[3] >= held_out]
        judged = _judged([each for each in rows if each[3] < held_out], first)
        new = [each for each in trained if each[1] >= first]
        earlier = _shuffled([each for each in trained if each[1] < first], seed)
        replayed = _at_most(replay, earlier)
        if most is not None and most < len(new) + len(replayed):
            chosen = _balanced(most, [*new, *replayed])
            new = [each for each in new if each in chosen]
            replayed = [each for each in replayed if each in chosen]
        known = {label for _, came, label, *_ in rows if came < first}
        return WindowData(
            new=_samples(connection, path, new, rows[0]),
            replay=_samples(connection, path, replayed, rows[0]),
            held_out=_samples(connection, path, judged, rows[0]),
            new_classes=frozenset(each[2] for each in rows) - known,
        )


def remember(path: Path, tenant: str, data: WindowData, per_class: int, seed: int) -> None:
    """Store some samples of every class, as those the model was pre-trained on and judged with."""
    draw = np.random.default_rng((seed, 7))
    trained = data.training.at_most(per_class, draw)
    judged = data.held_out.at_most(HELD_OUT_PER_CLASS, draw)
    with joining(path, LAYOUT) as connection:
        connection.execute("PRAGMA synchronous=FULL")
        with transaction(connection):
            for kept, lot, name in ((trained, TRAINED, "trained"), (judged, HELD_OUT, "held-out")):
                for number, label in enumerate(kept.labels):
                    request = f"pretrained-{seed}-{name}-{number}"
                    row = sample_row(
                        tenant, PRETRAINED, kept.inputs[number], int(label), None, request
                    )
                    inserted(connection, replace(row, lot=lot))


def _alike(rows: Sequence[_Row]) -> list[_Row]:
    """Rows of the most common type and shape, because a batch must be uniform."""
    forms = Counter(each[4:] for each in rows)
    if not forms:
        return []
    usual = forms.most_common(1)[0][0]
    return [each for each in rows if each[4:] == usual]


def _judged(held: Sequence[_Row], first: int) -> list[_Row]:
    """Limit every class to the count of the window's most frequent class; otherwise old classes
    would outweigh it."""
    came = Counter(each[2] for each in held if each[1] >= first)
    most = max(came.values(), default=HELD_OUT_PER_CLASS)
    return _at_most(min(HELD_OUT_PER_CLASS, max(_FEW, most)), held)


def _shuffled(rows: list[_Row], seed: int) -> list[_Row]:
    order = np.random.default_rng((seed, 3)).permutation(len(rows))
    return [rows[each] for each in order]


def _at_most(per_class: int, rows: Sequence[_Row]) -> list[_Row]:
    """The first `per_class` rows of every class."""
    taken: Counter[int] = Counter()
    kept = []
    for row in rows:
        taken[row[2]] += 1
        if taken[row[2]] <= per_class:
            kept.append(row)
    return kept


def _balanced(most: int, rows: Sequence[_Row]) -> set[_Row]:
    """`most` of the rows, taken from the classes in turn, each class in the order of the rows."""
    taken: Counter[int] = Counter()
    turns = []
    for row in rows:
        turns.append(taken[row[2]])
        taken[row[2]] += 1
    order = sorted(range(len(rows)), key=turns.__getitem__)
    return {rows[each] for each in order[:most]}


def _samples(
    connection: sqlite3.Connection, path: Path, rows: Sequence[_Row], like: _Row
) -> Samples:
    ordered = sorted(rows)
    query = "SELECT dtype, shape, inputs FROM sample WHERE id = ?"
    try:
        found = [connection.execute(query, (each[0],)).fetchone() for each in ordered]
        inputs = arrays(found) if found else arrays(_one(connection, like))[:0]
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{path}: a sample is not as it was written ({error}); move the file away and let "
            "new labels come"
        ) from error
    return Samples(
        inputs,
        np.array([each[2] for each in ordered], np.int64),
        np.array([each[1] for each in ordered], np.int64),
    )


def _one(connection: sqlite3.Connection, like: _Row) -> list[tuple[str, str, bytes]]:
    query = "SELECT dtype, shape, inputs FROM sample WHERE id = ?"
    return connection.execute(query, (like[0],)).fetchall()
