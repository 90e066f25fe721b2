"""Retraining: a copy of the serving model learns the window's data, and is adopted if not worse.

The model that serves is never touched. With checkpoints, a retraining that was cut off goes on
after its last finished epoch and ends with the very weights it would have had.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

from migrator.core.errors import InputError
from migrator.learn.adoption import decide
from migrator.learn.checkpoint import Checkpoints
from migrator.learn.model import Model
from migrator.learn.samples import WindowData
from migrator.learn.training import accuracy, steps_of, train_epoch


@dataclass(frozen=True)
class Settings:
    """How a model is retrained."""

    epochs: int = 8
    batch: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 2:
            raise InputError("retraining: give at least 1 epoch and batches of at least 2")

    def steps(self, samples: int) -> int:
        """Training steps on so many samples."""
        return self.epochs * steps_of(samples, self.batch)


@dataclass(frozen=True)
class Retrained:
    """What a retraining did; accuracies are on held-out data of all classes seen so far."""

    accuracy_before: float
    accuracy_after: float
    """Of the retrained model, adopted or not."""
    accuracy_new_before: float
    """On the window's new classes alone."""
    accuracy_new_after: float
    curve: tuple[float, ...]
    """Accuracy after every epoch."""
    seconds: float
    """Training and the looks at its accuracy; what a cut-off run had spent is counted in."""
    adopted: bool


def retrain(
    model: Model,
    data: WindowData,
    before: float,
    settings: Settings,
    checkpoints: Checkpoints | None = None,
    step_done: Callable[[], None] = lambda: None,
) -> tuple[Model, Retrained]:
    """The model that serves from now on, and how it went. `model` itself stays as it is.

    `before` is its accuracy on all of the held-out data.
    """
    if not len(data.new) or not len(data.held_out):
        raise InputError("retraining: the window has no samples; give it some of every class")
    new_before = accuracy(model, data.held_out_new)
    candidate = copy.deepcopy(model)
    curve, seconds = _resumed(candidate, checkpoints)
    training = data.training
    for epoch in range(len(curve), settings.epochs):
        began = time.perf_counter()
        train_epoch(
            candidate, training, epoch, settings.epochs, settings.batch, settings.seed, step_done
        )
        curve.append(accuracy(candidate, data.held_out))
        seconds += time.perf_counter() - began
        if checkpoints is not None:
            checkpoints.write(epoch, candidate, {"curve": curve, "seconds": seconds})
    after = decide(before, curve[-1])
    done = Retrained(
        before,
        curve[-1],
        new_before,
        accuracy(candidate, data.held_out_new),
        tuple(curve),
        seconds,
        after.adopted,
    )
    return (candidate if after.adopted else model), done


def _resumed(candidate: Model, checkpoints: Checkpoints | None) -> tuple[list[float], float]:
    """The curve and the seconds so far; the candidate takes over where it was."""
    found = checkpoints.newest_good() if checkpoints is not None else None
    if found is None:
        return [], 0.0
    candidate.load(found.weights)
    return [float(each) for each in found.about["curve"]], float(found.about["seconds"])
