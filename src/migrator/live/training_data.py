"""The training data of a window, read from the labels by retrainer processes.

The daemon may write labels meanwhile. Pre-trainings store some of their samples as well, so that
the first retraining has samples of old classes to replay.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from migrator.core.errors import InputError
from migrator.io.database import joining, reading, transaction
from migrator.learn.samples import NoSamplesError, Samples, WindowData, split_validation
from migrator.live.labels import (
    HELD_OUT,
    PRETRAINED,
    SCHEMA,
    TRAINED,
    insert,
    sample_row,
    samples_of,
)

HELD_OUT_PER_CLASS, _FEW = 100, 20
"""Upper and lower bound of the limit of held-out samples per class. The newest are used, because
the data drifts; their number is limited, because judging takes time."""


class _SampleHeader(NamedTuple):
    """A sample without its inputs."""

    id: int
    window: int
    label: int
    lot: float
    dtype: str
    shape: str

    def is_new(self, first: int) -> bool:
        """Whether it came in the window `first` or later. Pre-training samples did not."""
        return self.window >= first and self.lot not in (HELD_OUT, TRAINED)


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
    with reading(path, SCHEMA) as connection:
        rows = _rows(connection, tenant, window)
        if not rows:
            raise NoSamplesError(
                f"{path}: {tenant} has no labels up to window {window}; send labels for its answers"
            )
        trained = [row for row in rows if row.lot >= held_out]
        judged = _judged([row for row in rows if row.lot < held_out], first)
        new = [row for row in trained if row.is_new(first)]
        earlier = [row for row in trained if not row.is_new(first)]
        order = np.random.default_rng((seed, 3)).permutation(len(earlier))
        replayed = _at_most(replay, [earlier[index] for index in order])
        if most is not None and most < len(new) + len(replayed):
            chosen = _balanced(most, [*new, *replayed])
            new = [row for row in new if row in chosen]
            replayed = [row for row in replayed if row in chosen]
        known_classes = {row.label for row in rows if not row.is_new(first)}
        reported, validation = split_validation(_samples(connection, path, judged, rows[0]), seed)
        return WindowData(
            new=_samples(connection, path, new, rows[0]),
            replay=_samples(connection, path, replayed, rows[0]),
            held_out=reported,
            validation=validation,
            new_classes=frozenset(row.label for row in rows) - known_classes,
        )


def held_out_samples(
    path: Path, tenant: str, window: int, *, since: int, held_out: float, most: int
) -> Samples | None:
    """At most `most` samples, drawn at random, of those that a retraining on the labels of windows
    `since` to `window` would be judged by; None if none of them is of `window`."""
    with reading(path, SCHEMA) as connection:
        rows = _rows(connection, tenant, window)
        judged = _judged([row for row in rows if row.lot < held_out], since)
        if not any(row.is_new(window) for row in judged):
            return None
        drawn = np.random.default_rng((window + 1, 5)).permutation(len(judged))[:most]
        return _samples(connection, path, [judged[index] for index in drawn], rows[0])


def remember(path: Path, tenant: str, data: WindowData, per_class: int, seed: int) -> None:
    """Store some samples of every class, as those the model was pre-trained on and judged with."""
    draw = np.random.default_rng((seed, 7))
    trained = data.training.at_most(per_class, draw)
    judged = data.held_out.at_most(HELD_OUT_PER_CLASS, draw)
    with joining(path, SCHEMA) as connection:
        connection.execute("PRAGMA synchronous=FULL")
        with transaction(connection):
            for kept, lot, name in ((trained, TRAINED, "trained"), (judged, HELD_OUT, "held-out")):
                for number, label in enumerate(kept.labels):
                    request = f"pretrained-{seed}-{name}-{number}"
                    inputs = kept.inputs[number]
                    row = sample_row(tenant, PRETRAINED, inputs, int(label), None, request)
                    insert(connection, msgspec.structs.replace(row, lot=lot))


def _rows(connection: sqlite3.Connection, tenant: str, window: int) -> list[_SampleHeader]:
    """The samples of a tenant up to a window, newest first."""
    query = (
        "SELECT id, window, label, lot, dtype, shape FROM sample "
        "WHERE tenant = ? AND window <= ? ORDER BY window DESC, id DESC"
    )
    rows = [_SampleHeader._make(row) for row in connection.execute(query, (tenant, window))]
    # only those of the most common type and shape, because a batch must be uniform
    forms = Counter((row.dtype, row.shape) for row in rows)
    usual = max(forms, key=forms.__getitem__, default=None)
    return [row for row in rows if (row.dtype, row.shape) == usual]


def _judged(held: Sequence[_SampleHeader], first: int) -> list[_SampleHeader]:
    """Limit every class to the count of the window's most frequent class; otherwise old classes
    would outweigh it."""
    new = Counter(holding.label for holding in held if holding.is_new(first))
    most = max(new.values(), default=HELD_OUT_PER_CLASS)
    return _at_most(min(HELD_OUT_PER_CLASS, max(_FEW, most)), held)


def _turns(rows: Sequence[_SampleHeader]) -> list[int]:
    """For every row the number of earlier rows of its class."""
    taken: Counter[int] = Counter()
    turns = []
    for row in rows:
        turns.append(taken[row.label])
        taken[row.label] += 1
    return turns


def _at_most(per_class: int, rows: Sequence[_SampleHeader]) -> list[_SampleHeader]:
    """The first `per_class` rows of every class."""
    return [row for row, turn in zip(rows, _turns(rows), strict=True) if turn < per_class]


def _balanced(most: int, rows: Sequence[_SampleHeader]) -> set[_SampleHeader]:
    """`most` of the rows, taken from the classes in turn, each class in the order of the rows."""
    order = sorted(range(len(rows)), key=_turns(rows).__getitem__)
    return {rows[index] for index in order[:most]}


def _samples(
    connection: sqlite3.Connection, path: Path, rows: Sequence[_SampleHeader], like: _SampleHeader
) -> Samples:
    """The samples of these rows, which have the type and shape of `like`."""
    ordered, query = sorted(rows), "SELECT inputs FROM sample WHERE id = ?"
    contents = (connection.execute(query, (row.id,)).fetchone()[0] for row in ordered)
    try:
        inputs, *tensors = samples_of(contents, len(ordered), like.dtype, like.shape)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{path}: a sample is not as it was written ({error}); move the file away and let "
            "new labels come"
        ) from error
    classes = np.array([row.label for row in ordered], np.int64)
    return Samples(
        inputs,
        tensors[0] if tensors else classes,
        np.array([row.window for row in ordered], np.int64),
    )
