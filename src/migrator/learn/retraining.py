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
from migrator.learn.samples import NoSamplesError, Samples, WindowData
from migrator.learn.thrift import Thrift
from migrator.learn.training import DivergedError, accuracy, judged, steps_of, train_epoch


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
    stopped: str = ""
    """Why it ended before its last epoch, in words; then it is not adopted."""

    @property
    def accuracy_served(self) -> float:
        """Of the model that serves from now on."""
        return self.accuracy_after if self.adopted else self.accuracy_before


def retrain(
    model: Model,
    data: WindowData,
    before: float,
    settings: Settings,
    checkpoints: Checkpoints | None = None,
    step_done: Callable[[], None] = lambda: None,
) -> tuple[Model, Retrained]:
    """The model that serves from now on, and how it went. `model` itself stays as it is.

    `before` is its accuracy on all of the held-out data. A training whose loss or answers are no
    numbers any more is stopped, and the model serves on.
    """
    if not len(data.new) or not len(data.held_out):
        raise NoSamplesError("retraining: the window has no samples; give it some of every class")
    new_before = accuracy(model, data.held_out_new)
    candidate = copy.deepcopy(model)
    run = _Run(candidate, data, settings, checkpoints)
    try:
        run.to_the_end(step_done)
    except DivergedError as error:
        curve, seconds = tuple(run.curve), run.seconds
        return model, Retrained(
            before, 0.0, new_before, 0.0, curve, seconds, adopted=False, stopped=str(error)
        )
    after = decide(before, run.curve[-1])
    _at_rest(candidate)
    done = Retrained(
        before,
        run.curve[-1],
        new_before,
        accuracy(candidate, data.held_out_new),
        tuple(run.curve),
        run.seconds,
        after.adopted,
    )
    return (candidate if after.adopted else model), done


class _Run:
    """The epochs of a retraining, from the last one that a checkpoint has."""

    def __init__(
        self,
        candidate: Model,
        data: WindowData,
        settings: Settings,
        checkpoints: Checkpoints | None,
    ) -> None:
        self.candidate, self.data, self.settings = candidate, data, settings
        self.checkpoints = checkpoints
        self.curve, self.seconds = _resumed(candidate, checkpoints)
        self._thrift = Thrift(getattr(candidate, "kept_bytes", 0))

    def to_the_end(self, step_done: Callable[[], None]) -> None:
        """Every epoch that is left, each judged, and kept where that pays."""
        training = self.data.training
        for epoch in range(len(self.curve), self.settings.epochs):
            began = time.perf_counter()
            try:
                self._epoch(training, epoch, step_done)
            finally:
                self.seconds += time.perf_counter() - began
            if self.checkpoints is not None and self._thrift.due:
                began_s = self._thrift.now_s()
                about = {"curve": self.curve, "seconds": self.seconds}
                self.checkpoints.write(epoch, self.candidate, about)
                self._thrift.wrote(began_s)

    def _epoch(self, training: Samples, epoch: int, step_done: Callable[[], None]) -> None:
        epochs, batch, seed = self.settings.epochs, self.settings.batch, self.settings.seed
        train_epoch(self.candidate, training, epoch, epochs, batch, seed, step_done)
        found = judged(self.candidate, self.data.held_out)
        if found.unanswered == found.samples:
            raise DivergedError(
                f"after epoch {epoch + 1} no answer is a number any more, so the model as it was "
                "serves on; lower its learning_rate"
            )
        self.curve.append(found.accuracy)


def _at_rest(model: Model) -> None:
    """What only a training needs takes a GPU's memory: a model that serves gives it back."""
    rest = getattr(model, "end_training", None)
    if rest is not None:
        rest()


def _resumed(candidate: Model, checkpoints: Checkpoints | None) -> tuple[list[float], float]:
    """The curve and the seconds so far; the candidate takes over where it was."""
    found = checkpoints.newest_good() if checkpoints is not None else None
    if found is None:
        return [], 0.0
    candidate.load(found.weights)
    return [float(each) for each in found.about["curve"]], float(found.about["seconds"])
