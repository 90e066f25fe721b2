"""Models with named tensors of their own, and what is correct.

`NamedTensorModel` makes a user's class, which gets and returns dictionaries of arrays, a model like
every other: its batches of inputs, outputs and labels are arrays of records (`core/tensors.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.core.tensors import TensorSpec, has_nan, record_dtype, to_columns, to_records
from migrator.learn.model import Inputs, Labels, Modality, Model


class NamedTensorModel:
    """A model whose class declares `inputs` and `outputs`, and perhaps `labels`.

    Methods that the class does not have are missing here as well.
    """

    modality = Modality.TENSORS

    def __init__(self, model: Any) -> None:
        """InputError if the declared tensors are unusable."""
        self.model = model
        self.name = type(model).__name__
        self.learning_rate: float = model.learning_rate
        self.inputs = _specs(self.name, "inputs", model.inputs)
        self.outputs = _specs(self.name, "outputs", model.outputs)
        self.labels = _specs(self.name, "labels", getattr(model, "labels", ()))
        names = [spec.name for spec in (*self.inputs, *self.labels)]
        if not self.inputs or not self.outputs or len(set(names)) < len(names):
            raise InputError(
                f"model: {self.name} declares inputs and labels {names}; declare at least one "
                "input and one output, and give inputs and labels different names"
            )
        if len({spec.name for spec in self.outputs}) < len(self.outputs):
            raise InputError(f"model: two outputs of {self.name} have one name; rename one")
        if not hasattr(model, "is_correct") and (self.labels or len(self.outputs[0].shape) != 1):
            raise InputError(
                f"model: {self.name} needs is_correct(outputs, label): only where the first output "
                "has one score per class, and labels are classes, is the highest score compared "
                "with the label"
            )

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        del classes, seed
        raise InputError(f"{cls.__name__} adapts a model of a user's class; build that class")

    def to(self, device: str) -> None:
        self.model.to(device)

    def example(self, batch: int) -> Inputs:
        """What the class gives as an example, or zeros."""
        if not hasattr(self.model, "example"):
            return np.zeros(batch, record_dtype(self.inputs))
        return _records(self.name, "example()", self.inputs, self.model.example(batch), batch)

    def infer(self, inputs: Inputs) -> NDArray[Any]:
        """Records of the outputs."""
        answered = self.model.infer(to_columns(inputs))
        return _records(self.name, "infer()", self.outputs, answered, len(inputs))

    def train_step(self, inputs: Inputs, labels: NDArray[Any], lr: float) -> float:
        loss: float = self.model.train_step(to_columns(inputs), _labels(labels), lr)
        return loss

    def save(self, path: Path, *, training: bool = False) -> None:
        self.model.save(path, training=training)

    def load(self, path: Path) -> None:
        self.model.load(path)

    def is_correct(self, outputs: Any, label: Any) -> bool:
        """Whether the outputs of one row are correct."""
        if not hasattr(self.model, "is_correct"):
            return bool(np.argmax(outputs[self.outputs[0].name]) == label)
        columns = {spec.name: outputs[spec.name] for spec in self.outputs}
        label = {spec.name: label[spec.name] for spec in self.labels} if self.labels else label
        return bool(self.model.is_correct(columns, label))

    def __getattr__(self, name: str) -> Any:
        """Optional methods and attributes of the class."""
        if name.startswith("__") or name == "model":
            raise AttributeError(name)
        own = getattr(self.model, name)
        if name == "exchange":
            return lambda other: own(other.model)
        if name == "begin_training":
            return lambda inputs, labels, counts: own(to_columns(inputs), _labels(labels), counts)
        return own


def _labels(labels: NDArray[Any]) -> Any:
    return labels if labels.dtype.names is None else to_columns(labels)


def _specs(name: str, which: str, declared: Any) -> tuple[TensorSpec, ...]:
    if isinstance(declared, Sequence) and all(isinstance(spec, TensorSpec) for spec in declared):
        return tuple(declared)
    raise InputError(f"model: {which} of {name} is no sequence of TensorSpec; declare one")


def _records(
    name: str, method: str, specs: Sequence[TensorSpec], given: Any, rows: int
) -> NDArray[Any]:
    """The tensors that a method of the user's class returned; InputError if they are others."""
    names = [spec.name for spec in specs]
    if not isinstance(given, Mapping) or set(given) != set(names):
        what = list(given) if isinstance(given, Mapping) else f"a {type(given).__name__}"
        raise InputError(
            f"model: {method} of {name} returned {what}; return a dictionary of {names}"
        )
    columns = {}
    for spec in specs:
        column = np.asarray(given[spec.name])
        if column.shape != (rows, *spec.shape) or not np.can_cast(
            column.dtype, spec.dtype, "same_kind"
        ):
            raise InputError(
                f"model: {method} of {name} returned {spec.name} as {column.dtype} of shape "
                f"{column.shape}; return {spec.dtype} of {(rows, *spec.shape)}"
            )
        columns[spec.name] = column.astype(spec.dtype, copy=False)
    return to_records(columns)


def compare(
    model: Model,
    outputs: NDArray[Any],
    labels: NDArray[Any],
    failures: list[Exception] | None = None,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows are correct, and which contain NaN: these are wrong, whatever the label.

    `failures`: gets what `is_correct` raises for a row, which counts as wrong; None: it is raised.
    """
    invalid = has_nan(outputs)
    decide = getattr(model, "is_correct", None)
    correct: NDArray[np.bool_]
    if decide is None:
        correct = outputs.argmax(1) == labels
    else:
        correct = np.zeros(len(outputs), np.bool_)
        for number, row in enumerate(zip(outputs, labels, strict=True)):
            try:
                verdict = decide(*row)
                correct[number] = bool(verdict) and not (
                    isinstance(verdict, Real) and math.isnan(verdict)
                )
            except Exception as error:
                if failures is None:
                    raise
                failures.append(error)
    return correct & ~invalid, invalid


def class_numbers(labels: NDArray[Any]) -> Labels:
    """The class of every label; labels that are tensors are all of one class."""
    return labels if labels.dtype.names is None else np.zeros(len(labels), np.int64)
