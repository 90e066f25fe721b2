"""A user's own class tried once, before anything is trained: what it cannot do is one sentence.

Only where a course begins; whoever serves a model finds out in its own way.
"""

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
def calling(name: str, method: str) -> Iterator[None]:
    """Whatever a model's method ends in names the method and the cause."""
    try:
        yield
    except MigratorError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise faulty(name, method, f"failed ({what[:300]})") from error


def faulty(name: str, method: str, what: str) -> InputError:
    """One sentence about a method of a model."""
    return InputError(
        f"model: {method} of {name} {what}; correct the class by what docs/learning.md says of a "
        "model of your own"
    )


def built(name: str, classes: int, seed: int, pixels: int | None) -> Model:
    """A new model; build() must be a class method that gives one."""
    with calling(name, "build()"):
        model = build(name, classes, seed, pixels)
    if not callable(getattr(model, "infer", None)):
        raise faulty(name, "build()", f"gave {_kind(model)} and no model")
    return model


def require_works(name: str, model: Model, samples: Samples, classes: int) -> None:
    """Two copies answer, learn and are saved; the model itself stays as it is."""
    rate = model.learning_rate
    if not isinstance(rate, Real) or not 0 < rate < math.inf:
        raise faulty(name, "learning_rate", f"is {rate!r} and no number above 0")
    few = samples.rows(np.arange(min(_ROWS, len(samples))))
    first, second = _copied(name, model), _copied(name, model)
    with calling(name, "example()"):
        example = first.example(2)
    if not isinstance(example, np.ndarray) or len(example) != 2:
        raise faulty(name, "example()", f"gave {_kind(example)} and no array of two inputs")
    _require_scores(name, first, few, classes)
    with calling(name, "train_step()"):
        loss = first.train_step(few.inputs, few.labels, float(rate))
    with calling(name, f"the loss that train_step() gave ({_kind(loss)})"):
        float(loss)
    _require_file(name, first, second)
    _require_scores(name, second, few, classes)


def _copied(name: str, model: Model) -> Model:
    with calling(name, "copy.deepcopy()"):
        made = copy.deepcopy(model)
    if made is model:
        raise faulty(name, "copy.deepcopy()", "gave the model itself and no copy")
    return made


def _require_scores(name: str, model: Model, few: Samples, classes: int) -> None:
    with calling(name, "infer()"):
        scores = model.infer(few.inputs)
    shape = (len(few), classes)
    if not isinstance(scores, np.ndarray) or scores.dtype.kind not in "fiu":
        raise faulty(name, "infer()", f"gave {_kind(scores)} and no array of numbers")
    if scores.shape != shape:
        raise faulty(name, "infer()", f"gave scores of shape {scores.shape}, not {shape}")


def _require_file(name: str, first: Model, second: Model) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "weights"
        with calling(name, "save()"):
            first.save(path, training=True)
        if not path.is_file():
            raise faulty(name, "save()", "wrote no file of the very name it was given")
        with calling(name, "load()"):
            second.load(path)


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
