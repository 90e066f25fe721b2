"""What a model is to MIGRator: a class with a few methods, ours or a user's own.

Inputs, labels and scores cross this border as numpy arrays, so that nobody else needs torch.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError

Inputs = NDArray[Any]
"""A batch: images as uint8 (n, 3, side, side), or texts as int32 token numbers (n, length)."""
Labels = NDArray[np.int64]
Scores = NDArray[np.float32]


class Modality(StrEnum):
    """What a model reads."""

    IMAGES = "images"
    TEXT = "text"


class Model(Protocol):
    """A classifier that can be served and retrained; `copy.deepcopy` must give one of its own.

    A copy begins its training anew. Where the class has an attribute `weights`, it says in words
    where they came from; where it has `begin_with(path)`, that takes weights alone and not where
    their training stood; where it has `end_training()`, that gives back what only training needs;
    where it has `begin_serving(batch)`, that is called once where it will only answer batches of up
    to so many; where it has `take_over(other)`, that takes the weights of another of its kind
    between two answers, or says False and is replaced by it; where it has `kept_bytes`, that is
    about how large a checkpoint of its training is.
    """

    modality: Modality
    learning_rate: float
    """The highest rate of a training, which warms up to it and then cools down."""

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        """A new model with random weights from the seed."""
        ...

    def to(self, device: str) -> None:
        """Move to "cpu" or "cuda"."""
        ...

    def example(self, batch: int) -> Inputs:
        """A batch of inputs of the size it is meant for."""
        ...

    def infer(self, inputs: Inputs) -> Scores:
        """One row of scores per input, one column per class."""
        ...

    def train_step(self, inputs: Inputs, labels: Labels, lr: float) -> float:
        """Learn from one batch at this rate; the loss."""
        ...

    def save(self, path: Path, *, training: bool = False) -> None:
        """Write the weights; with `training` also what going on with a training needs."""
        ...

    def load(self, path: Path) -> None:
        """Take over what `save` wrote; InputError where it does not fit."""
        ...


METHODS = ("build", "to", "example", "infer", "train_step", "save", "load")
ATTRIBUTES = ("modality", "learning_rate")


def require_model(candidate: object, name: str) -> type[Model]:
    """The class itself, if it has all it needs; one InputError names everything that is missing."""
    if not isinstance(candidate, type):
        raise InputError(f"model: {name} is no class; name a class with the methods of a model")
    missing = [f"{each}()" for each in METHODS if not callable(getattr(candidate, each, None))]
    missing += [each for each in ATTRIBUTES if not hasattr(candidate, each)]
    if missing:
        raise InputError(
            f"model: {name} lacks {', '.join(missing)}; add what docs/learning.md lists under "
            "a model of your own"
        )
    return candidate
