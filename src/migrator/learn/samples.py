"""Samples that a model learns from, and the random numbers by which they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.learn.model import Inputs, Labels
from migrator.learn.named_tensors import class_numbers

_VALIDATION, _MOST_VALIDATION, _LEAST_SPLIT = 1 / 4, 50, 4
"""Part of a class's held-out samples that chooses the epoch, its limit, and the fewest samples
that are split: fewer serve both purposes."""

_LEAST_OF_CLASS = 8
"""Samples of a class that a retraining on a part of the samples keeps."""


class NoSamplesError(InputError):
    """There are no samples to train on, or none to evaluate with."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs and labels; row i of each belongs to sample i."""

    inputs: Inputs
    labels: Labels
    """Classes, or records of the tensors that are the model's labels."""
    arrives: NDArray[np.int64]
    """The scenario in which each sample arrives; 0 is pre-training."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> Labels:
        """The class of every sample; all are of one class where labels are tensors."""
        return class_numbers(self.labels)

    def rows(self, chosen: NDArray[np.intp] | NDArray[np.bool_]) -> Samples:
        """The samples selected by row numbers or a mask."""
        return Samples(self.inputs[chosen], self.labels[chosen], self.arrives[chosen])

    def at_most(self, per_class: int, draw: np.random.Generator) -> Samples:
        """At most `per_class` samples of every class, drawn at random."""
        return self._draw(lambda _count: per_class, draw)

    def share(self, part: float, draw: np.random.Generator, least: int = 1) -> Samples:
        """A fraction of every class, at least `least` samples of each, drawn at random."""
        return self._draw(lambda count: max(least, round(part * count)), draw)

    def _draw(self, kept_of: Callable[[int], int], draw: np.random.Generator) -> Samples:
        kept = [np.empty(0, np.intp)]
        for label in np.unique(self.classes):
            rows = draw.permutation(np.flatnonzero(self.classes == label))
            kept.append(rows[: kept_of(len(rows))])
        return self.rows(np.sort(np.concatenate(kept)))


def split_validation(held_out: Samples, seed: int) -> tuple[Samples, Samples]:
    """The held-out samples in two: for the accuracies, and for choosing the best epoch."""
    draw = random_stream(seed, Stream.VALIDATION)
    reported = np.ones(len(held_out), bool)
    validation = np.zeros(len(held_out), bool)
    for label in np.unique(held_out.classes):
        rows = draw.permutation(np.flatnonzero(held_out.classes == label))
        split = len(rows) >= _LEAST_SPLIT
        chosen = rows[: min(_MOST_VALIDATION, int(len(rows) * _VALIDATION))] if split else rows
        validation[chosen] = True
        reported[chosen] = not split
    return held_out.rows(reported), held_out.rows(validation)


def concatenate(parts: Sequence[Samples]) -> Samples:
    """The samples of all parts, in their order."""
    return Samples(
        np.concatenate([part.inputs for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.arrives for part in parts]),
    )


@dataclass(frozen=True, eq=False)
class WindowData:
    """What one retraining is trained and evaluated on."""

    new: Samples
    """The window's own samples."""
    replay: Samples
    """Samples of earlier windows, a bounded number per class."""
    held_out: Samples
    """Samples of all classes seen so far, for the accuracies; never trained on."""
    validation: Samples
    """Further ones, which decide the best epoch; never trained on."""
    new_classes: frozenset[int]

    @property
    def training(self) -> Samples:
        return concatenate((self.new, self.replay))

    def training_part(self, part: float, seed: int) -> Samples:
        """A part of the training samples: the same part of every class, new or replayed.

        A class keeps a few samples however small the part is.
        """
        if part == 1:
            return self.training
        draw = random_stream(seed, Stream.PART)
        return self.training.share(part, draw, _LEAST_OF_CLASS)

    @property
    def held_out_new(self) -> Samples:
        """Held-out samples of the window's new classes."""
        return self.held_out.rows(np.isin(self.held_out.classes, list(self.new_classes)))


class Stream(IntEnum):
    """Purposes of random numbers. Changing a value changes every result that depends on it."""

    SAMPLES_LIMITED = 1
    ORDER_OF_CLASSES = 2
    MEMORY = 3
    MADE_UP_PICTURES = 4
    EPOCH = 5
    ESTIMATION = 6
    VALIDATION = 7
    FEATURES = 8
    HELD_OUT = 9
    PART = 10


def random_stream(seed: int, stream: Stream, *more: int) -> np.random.Generator:
    """The generator of this seed and purpose; `more` distinguishes parts, such as epochs."""
    return np.random.default_rng((seed, stream.value, *more))
