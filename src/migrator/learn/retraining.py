"""Retraining: a copy of the serving model is trained on the window's data, adopted if not worse.

The serving model is never changed. With checkpoints, an interrupted retraining resumes after its
last finished epoch and ends with exactly the weights of an uninterrupted one.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError, MigratorError
from migrator.learn.checkpoint import Checkpoints, CheckpointSchedule
from migrator.learn.model import Labels, Model
from migrator.learn.samples import NoSamplesError, Samples, Stream, WindowData, random_stream


@dataclass(frozen=True)
class RetrainingSettings:
    """How a model is retrained."""

    epochs: int = 8
    batch: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 2:
            raise InputError("retraining: give at least 1 epoch and batches of at least 2")

    def steps(self, samples: int) -> int:
        """Training steps of all epochs on `samples` samples."""
        return self.epochs * steps_per_epoch(samples, self.batch)


@dataclass(frozen=True)
class Retrained:
    """Result of a retraining; accuracies are on held-out data of all classes seen so far."""

    accuracy_before: float
    accuracy_after: float
    """Of the retrained model, adopted or not."""
    accuracy_new_before: float
    """On the window's new classes alone."""
    accuracy_new_after: float
    curve: tuple[float, ...]
    """Accuracy after every epoch."""
    seconds: float
    """Training and evaluation, including the time before an interruption."""
    adopted: bool
    stopped: str = ""
    """Why it ended before its last epoch; it is then not adopted."""

    @property
    def accuracy_served(self) -> float:
        """Accuracy of the model that serves afterwards."""
        return self.accuracy_after if self.adopted else self.accuracy_before


def retrain(
    model: Model,
    data: WindowData,
    before: float,
    settings: RetrainingSettings,
    checkpoints: Checkpoints | None = None,
    step_done: Callable[[], None] = lambda: None,
) -> tuple[Model, Retrained]:
    """The model that serves afterwards, and the result. `model` itself is not changed.

    `before` is its accuracy on all held-out data. A training whose loss or scores become NaN or
    infinite is stopped, and `model` stays in service.
    """
    if not len(data.new) or not len(data.held_out):
        raise NoSamplesError("retraining: the window has no samples; give it some of every class")
    new_before = accuracy(model, data.held_out_new)
    candidate, curve, seconds = copy.deepcopy(model), list[float](), 0.0
    found = checkpoints.newest_good() if checkpoints is not None else None
    if found is not None:
        candidate.load(found.weights)
        curve, seconds = [*map(float, found.about["curve"])], float(found.about["seconds"])
    schedule = CheckpointSchedule(getattr(candidate, "kept_bytes", 0))
    stopped = ""
    for epoch in range(len(curve), settings.epochs):
        began = time.perf_counter()
        try:
            curve.append(_epoch(candidate, data, epoch, settings, step_done))
        except DivergedError as error:
            stopped = str(error)
        finally:
            seconds += time.perf_counter() - began
        if stopped:
            break
        if checkpoints is not None and schedule.due:
            about = {"curve": curve, "seconds": seconds}
            schedule.time(partial(checkpoints.write, epoch, candidate, about))
    if stopped:
        return model, Retrained(
            before, 0.0, new_before, 0.0, tuple(curve), seconds, adopted=False, stopped=stopped
        )
    if hasattr(candidate, "end_training"):
        candidate.end_training()  # frees GPU memory that only training needs
    adopted, new_after = curve[-1] >= before, accuracy(candidate, data.held_out_new)
    done = Retrained(before, curve[-1], new_before, new_after, tuple(curve), seconds, adopted)
    return (candidate if adopted else model), done


def _epoch(
    candidate: Model,
    data: WindowData,
    epoch: int,
    settings: RetrainingSettings,
    step_done: Callable[[], None],
) -> float:
    """Train one epoch; the accuracy afterwards."""
    epochs, batch, seed = settings.epochs, settings.batch, settings.seed
    train_epoch(candidate, data.training, epoch, epochs, batch, seed, step_done)
    found = judge(candidate, data.held_out)
    if found.unanswered == found.samples:
        raise DivergedError(
            f"after epoch {epoch + 1} all scores are NaN, so the previous model stays in service; "
            "lower its learning_rate"
        )
    return found.accuracy


INFER_BATCH = 256
_WARM_UP = 0.1
"""The part of the steps over which the learning rate rises."""


class DivergedError(MigratorError):
    """The loss or the scores of a training became NaN or infinite."""


@dataclass(frozen=True)
class Judgement:
    """Scores compared with labels."""

    samples: int
    right: int
    unanswered: int
    """Rows of scores that contain NaN; they count as wrong."""

    @property
    def accuracy(self) -> float:
        """The part classified correctly; 0 without samples."""
        return self.right / max(1, self.samples)


def rate(step: int, steps: int, highest: float) -> float:
    """The learning rate of a step: linear warm-up over the first tenth, then a cosine to 0."""
    rising = (step + 1) / max(1, round(_WARM_UP * steps))
    return highest * min(rising, (1 + math.cos(math.pi * step / max(1, steps))) / 2)


def balanced_order(labels: Labels, draw: np.random.Generator) -> NDArray[np.intp]:
    """As many row numbers as there are samples, every class equally often, in random order.

    Otherwise the few replayed samples of old classes would hardly be trained on.
    """
    classes, counts = np.unique(labels, return_counts=True)
    each = -(-len(labels) // len(classes))
    chosen = []
    for label, count in zip(classes, counts, strict=True):
        rows = np.flatnonzero(labels == label)
        rounds = [draw.permutation(rows) for _ in range(-(-each // count))]
        chosen.append(np.concatenate(rounds)[:each])
    return draw.permutation(np.concatenate(chosen))[: len(labels)]


def batches(order: NDArray[np.intp], batch: int) -> Iterator[NDArray[np.intp]]:
    """The rows in batches, without a last batch of one sample (batch norm needs two)."""
    for first in range(0, len(order), batch):
        rows = order[first : first + batch]
        if len(rows) > 1 or len(order) == 1:
            yield rows


def steps_per_epoch(samples: int, batch: int) -> int:
    """Training steps of one epoch."""
    full, rest = divmod(samples, batch)
    return max(1, full + (rest > 1))


def train_epoch(
    model: Model,
    samples: Samples,
    epoch: int,
    epochs: int,
    batch: int,
    seed: int,
    step_done: Callable[[], None] = lambda: None,
) -> float:
    """Train one epoch of `epochs` and return the mean loss. Seed and epoch determine the order.

    DivergedError at the first loss that is not finite.
    """
    draw = random_stream(seed, Stream.EPOCH, epoch)
    each = steps_per_epoch(len(samples), batch)
    losses = []
    for number, rows in enumerate(batches(balanced_order(samples.labels, draw), batch)):
        lr = rate(epoch * each + number, epochs * each, model.learning_rate)
        loss = float(model.train_step(samples.inputs[rows], samples.labels[rows], lr))
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss became {loss} in step {number + 1} of epoch {epoch + 1}, so the "
                "previous model stays in service; lower its learning_rate"
            )
        losses.append(loss)
        step_done()
    return float(np.mean(losses))


def accuracy(model: Model, samples: Samples) -> float:
    """The part of the samples classified correctly; 0 without samples."""
    return judge(model, samples).accuracy


def judge(model: Model, samples: Samples) -> Judgement:
    """Compare the model's scores with the labels. NaN is excluded: argmax would return class 0."""
    right = unanswered = 0
    for first in range(0, len(samples), INFER_BATCH):
        scores = model.infer(samples.inputs[first : first + INFER_BATCH])
        invalid = np.isnan(scores).any(1)
        correct = scores.argmax(1) == samples.labels[first : first + INFER_BATCH]
        right += int((correct & ~invalid).sum())
        unanswered += int(invalid.sum())
    return Judgement(len(samples), right, unanswered)
