"""The interface of a model, built in or a user's own, its inputs, and the samples it learns from.

Inputs, labels and scores are numpy arrays, so that callers do not need torch. Texts are token
numbers (`tokens.py`).
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError

Inputs = NDArray[Any]
"""A batch: images as uint8 (n, 3, side, side), or texts as int32 token numbers (n, length), or
records of named tensors (n)."""
Labels = NDArray[np.int64]
"""Classes; records where a model declares labels of its own."""
Scores = NDArray[np.float32]
METHODS = ("build", "to", "infer", "train_step", "save", "load")
ATTRIBUTES = ("learning_rate",)


class Modality(StrEnum):
    """The kind of input of a model."""

    IMAGES = "images"
    TEXT = "text"
    TENSORS = "tensors"
    """Named tensors that the model declares."""


class Model(Protocol):
    """A model that can be served and retrained: a classifier, or with named tensors of its own.

    A class that declares `inputs` and `outputs` (sequences of `TensorSpec`) gets and returns
    dictionaries of arrays by name, and needs no `modality` and no `example`; NamedTensorModel
    adapts it. With `labels` its labels are tensors too.

    `copy.deepcopy` must return an independent model whose training starts afresh. Optional:

    - `is_correct(outputs, label)`: whether the outputs of one row are correct; without it the
      highest score is compared with the label
    - `load_pretrained()`: load the weights that the model's name stands for; not called where
      other weights follow, or where any will do, as when profiling
    - `input_pixels`: the side of the images it is given, if it resizes them; may be set
    - `weights`: the origin of the weights, in words
    - `begin_with(path)`: load the weights only, not the training state
    - `train_only(layers)`: from now on trainings change these layers only; called before every
      training. InputError if the model cannot; without it trainings change all layers
    - `begin_training(inputs, labels, counts)`: called before the first epoch and after a resume
      with some samples of every class and the number of training samples per class. The model
      corrects for these frequencies: epochs then show every sample once instead of every class
      equally often
    - `expect_training(steps)`: called before a training of that many steps, and before the
      evaluations that come with it, to prepare for it
    - `end_training()`: free what only training needs
    - `begin_serving(batch)`: called once if only batches of up to `batch` inputs follow
    - `exchange(other)`: exchange the weights with another model of this class between two batches,
      or return False to be replaced by it
    """

    modality: Modality
    learning_rate: float
    """The highest rate of a training, reached after a warm-up and then lowered."""

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        """A new model with random weights from the seed."""

    def to(self, device: str) -> None:
        """Move to "cpu" or "cuda"."""

    def example(self, batch: int) -> Inputs:
        """A batch of inputs of the model's own size."""

    def infer(self, inputs: Inputs) -> Scores:
        """One row of scores per input, one column per class."""

    def train_step(self, inputs: Inputs, labels: Labels, lr: float) -> float:
        """Train on one batch at this rate and return the loss."""

    def save(self, path: Path, *, training: bool = False) -> None:
        """Write the weights; with `training` also what resuming a training needs."""

    def load(self, path: Path) -> None:
        """Load what `save` wrote; InputError if it does not fit."""


def require_model(candidate: object, name: str) -> type[Model]:
    """The class itself if it is complete; otherwise an InputError that lists what is missing."""
    if not isinstance(candidate, type):
        raise InputError(f"model: {name} is not a class; name a class with the methods of a model")
    missing = [
        f"{method}()" for method in METHODS if not callable(getattr(candidate, method, None))
    ]
    missing += [attribute for attribute in ATTRIBUTES if not hasattr(candidate, attribute)]
    if declares_tensors(candidate):
        missing += [] if hasattr(candidate, "outputs") else ["outputs"]
    else:
        missing += [] if callable(getattr(candidate, "example", None)) else ["example()"]
        missing += [] if hasattr(candidate, "modality") else ["modality"]
    if missing:
        raise InputError(
            f"model: {name} lacks {', '.join(missing)}; see 'a model of your own' in "
            "docs/learning.md"
        )
    return candidate


def declares_tensors(kind: type[Any]) -> bool:
    """Whether a class has named tensors of its own."""
    return hasattr(kind, "inputs")


def damaged(path: Path) -> InputError:
    """The error for a file that cannot be read as weights."""
    return InputError(
        f"{path}: damaged or not a safetensors file; copy it again or name another file"
    )
