"""Samples with their labels, and what a window's retraining gets to see of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.learn.model import Inputs, Labels


class NoSamplesError(InputError):
    """There is nothing to train on, or nothing to judge with."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs and labels, row by row."""

    inputs: Inputs
    labels: Labels
    arrives: NDArray[np.int64]
    """The scenario each comes with; 0 is what a model is pre-trained on."""

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, chosen: NDArray[np.intp] | NDArray[np.bool_]) -> Samples:
        """Some of them."""
        return Samples(self.inputs[chosen], self.labels[chosen], self.arrives[chosen])

    def joined(self, other: Samples) -> Samples:
        """These, then the other ones."""
        return Samples(
            np.concatenate((self.inputs, other.inputs)),
            np.concatenate((self.labels, other.labels)),
            np.concatenate((self.arrives, other.arrives)),
        )

    def at_most(self, per_class: int, draw: np.random.Generator) -> Samples:
        """Up to so many of every class, drawn at random."""
        kept = [
            draw.permutation(np.flatnonzero(self.labels == label))[:per_class]
            for label in np.unique(self.labels)
        ]
        return self.rows(np.sort(np.concatenate(kept)) if kept else np.empty(0, np.intp))

    def share(self, part: float, draw: np.random.Generator) -> Samples:
        """That part of every class, at least one of each, drawn at random."""
        kept = []
        for label in np.unique(self.labels):
            rows = draw.permutation(np.flatnonzero(self.labels == label))
            kept.append(rows[: max(1, round(part * len(rows)))])
        return self.rows(np.sort(np.concatenate(kept)) if kept else np.empty(0, np.intp))


@dataclass(frozen=True, eq=False)
class WindowData:
    """What one retraining learns from and is judged on."""

    new: Samples
    """The window's own samples."""
    replay: Samples
    """Kept from earlier windows, a bounded number of every class."""
    held_out: Samples
    """Of all classes seen so far; never trained on."""
    new_classes: frozenset[int]

    @property
    def training(self) -> Samples:
        """Everything that is learned from."""
        return self.new.joined(self.replay)

    @property
    def held_out_new(self) -> Samples:
        """Held-out samples of the window's new classes."""
        return self.held_out.rows(np.isin(self.held_out.labels, list(self.new_classes)))
