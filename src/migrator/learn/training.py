"""Epochs of training and their judgement, whatever the model: batches in, accuracy out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import MigratorError
from migrator.learn.model import Labels, Model
from migrator.learn.samples import Samples
from migrator.learn.streams import Stream, drawn

INFER_BATCH = 256
_WARM_UP = 0.1
"""Of the steps: the rate rises, so that the first gradients do no harm."""


class DivergedError(MigratorError):
    """A training has left the numbers; what it was given is to serve on."""


@dataclass(frozen=True)
class Judgement:
    """Answers held to their labels."""

    samples: int
    right: int
    unanswered: int
    """Rows of scores with something in them that is no number; they count as wrong."""

    @property
    def accuracy(self) -> float:
        """The part answered correctly; 0 where there are no samples."""
        return self.right / max(1, self.samples)


def rate(step: int, steps: int, highest: float) -> float:
    """Up over the first tenth, then down to nothing as a cosine."""
    rising = (step + 1) / max(1, round(_WARM_UP * steps))
    return highest * min(rising, (1 + math.cos(math.pi * step / max(1, steps))) / 2)


def balanced(labels: Labels, draw: np.random.Generator) -> NDArray[np.intp]:
    """As many rows as there are samples, every class as often as any other, in random order.

    Without this the few replayed samples of old classes would drown among the new ones.
    """
    classes, counts = np.unique(labels, return_counts=True)
    each = -(-len(labels) // len(classes))
    drawn = []
    for label, count in zip(classes, counts, strict=True):
        rows = np.flatnonzero(labels == label)
        rounds = [draw.permutation(rows) for _ in range(-(-each // count))]
        drawn.append(np.concatenate(rounds)[:each])
    return draw.permutation(np.concatenate(drawn))[: len(labels)]


def batches(order: NDArray[np.intp], batch: int) -> Iterator[NDArray[np.intp]]:
    """The rows in batches; a last one of a single sample is left out (it has no spread)."""
    for first in range(0, len(order), batch):
        rows = order[first : first + batch]
        if len(rows) > 1 or len(order) == 1:
            yield rows


def steps_of(samples: int, batch: int) -> int:
    """Steps of one epoch."""
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
    """One epoch of `epochs`; the order depends on seed and epoch alone. The mean loss.

    DivergedError at the first loss that is no finite number.
    """
    draw = drawn(seed, Stream.EPOCH, epoch)
    each = steps_of(len(samples), batch)
    losses = []
    for number, rows in enumerate(batches(balanced(samples.labels, draw), batch)):
        lr = rate(epoch * each + number, epochs * each, model.learning_rate)
        loss = float(model.train_step(samples.inputs[rows], samples.labels[rows], lr))
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss became {loss} in step {number + 1} of epoch {epoch + 1}, so the model "
                "as it was serves on; lower its learning_rate"
            )
        losses.append(loss)
        step_done()
    return float(np.mean(losses))


def accuracy(model: Model, samples: Samples) -> float:
    """The part answered correctly; 0 where there are no samples."""
    return judged(model, samples).accuracy


def judged(model: Model, samples: Samples) -> Judgement:
    """How the model answers; of scores that are no numbers argmax would make the first class."""
    right = unanswered = 0
    for first in range(0, len(samples), INFER_BATCH):
        scores = model.infer(samples.inputs[first : first + INFER_BATCH])
        void = np.isnan(scores).any(1)
        said = scores.argmax(1) == samples.labels[first : first + INFER_BATCH]
        right += int((said & ~void).sum())
        unanswered += int(void.sum())
    return Judgement(len(samples), right, unanswered)
