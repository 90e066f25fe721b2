"""A quick test of a user's own model class before a course starts, with one clear error."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from migrator.core.errors import InputError, MigratorError
from migrator.learn.model import Model
from migrator.learn.registry import build
from migrator.learn.samples import Samples

_ROWS = 4


@contextmanager
def naming_method(name: str, method: str) -> Iterator[None]:
    """Turn any exception of a model's method into an InputError that names method and cause."""
    try:
        yield
    except MigratorError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise model_error(name, method, f"failed ({what[:300]})") from error


def model_error(name: str, method: str, what: str) -> InputError:
    """The error for a fault of a model's method."""
    return InputError(
        f"model: {method} of {name} {what}; see 'a model of your own' in docs/learning.md"
    )


def build_model(
    name: str, classes: int, seed: int, pixels: int | None, *, pretrained: bool = True
) -> Model:
    """A new model; InputError unless build() is a class method that returns one."""
    with naming_method(name, "build()"):
        model = build(name, classes, seed, pixels, pretrained=pretrained)
    if not callable(getattr(model, "infer", None)):
        raise model_error(name, "build()", f"returned {_type_name(model)} instead of a model")
    return model


def require_works(name: str, model: Model, samples: Samples, classes: int) -> None:
    """Check that copies of the model can infer, train, save and load. `model` is not changed."""
    rate = model.learning_rate
    if not isinstance(rate, Real) or not 0 < rate < math.inf:
        raise model_error(name, "learning_rate", f"is {rate!r}, not a number above 0")
    few = samples.rows(np.arange(min(_ROWS, len(samples))))
    first, second = _copy(name, model), _copy(name, model)
    with naming_method(name, "example()"):
        example = first.example(2)
    if not isinstance(example, np.ndarray) or len(example) != 2:
        raise model_error(
            name, "example()", f"returned {_type_name(example)} instead of an array of two inputs"
        )
    _require_scores(name, first, few, classes)
    with naming_method(name, "train_step()"):
        loss = first.train_step(few.inputs, few.labels, float(rate))
    with naming_method(name, f"the loss from train_step() ({_type_name(loss)})"):
        float(loss)
    _require_save_and_load(name, first, second)
    _require_scores(name, second, few, classes)


def _copy(name: str, model: Model) -> Model:
    with naming_method(name, "copy.deepcopy()"):
        made = copy.deepcopy(model)
    if made is model:
        raise model_error(name, "copy.deepcopy()", "returned the model itself, not a copy")
    return made


def _require_scores(name: str, model: Model, few: Samples, classes: int) -> None:
    with naming_method(name, "infer()"):
        scores = model.infer(few.inputs)
    shape = (len(few), classes)
    if not isinstance(scores, np.ndarray) or scores.dtype.kind not in "fiu":
        raise model_error(
            name, "infer()", f"returned {_type_name(scores)} instead of an array of numbers"
        )
    if scores.shape != shape:
        raise model_error(name, "infer()", f"returned scores of shape {scores.shape}, not {shape}")


def _require_save_and_load(name: str, first: Model, second: Model) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "weights"
        with naming_method(name, "save()"):
            first.save(path, training=True)
        if not path.is_file():
            raise model_error(name, "save()", "did not write the file that it was given")
        with naming_method(name, "load()"):
            second.load(path)


def _type_name(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
