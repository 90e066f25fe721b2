"""Retraining: a copy of the serving model is trained on the window's data, adopted if not worse.

The serving model is never changed. With checkpoints, an interrupted retraining resumes after its
last finished epoch and ends with exactly the weights of an uninterrupted one.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError, MigratorError
from migrator.core.training import Layers
from migrator.learn.checkpoint import Checkpoints, CheckpointSchedule
from migrator.learn.model import Labels, Model
from migrator.learn.named_tensors import compare
from migrator.learn.samples import NoSamplesError, Samples, Stream, WindowData, random_stream

START, DATA, TRIAL, FIRST, EPOCHS = "start_s", "data_s", "trial_s", "first_s", "epochs_s"
EVALUATION, CHECKPOINTS, SAVE, HAND_OVER = "evaluation_s", "checkpoints_s", "save_s", "hand_over_s"
"""Names of the parts. Start: process and model on its instance. Trial: the estimate that a
pre-training is compared with. First: the steps in which a GPU
chooses kernels and captures the step; epochs: the other steps. Handing over: after the
retraining, until the workers have the new model."""
FIRST_STEPS = 3
"""Steps after which a GPU has chosen kernels and captured the step."""
_LEAST_PATIENCE = 3
"""Epochs without improvement, or three quarters of all, after which a training ends. Plans count
with all epochs, so one that ends early takes less than planned."""
_FEATURE_SAMPLES = 64
"""Samples of a class whose features give its initial weights."""
BATCH = 64
"""Samples of a training step."""
_WARM_UP = 0.1
"""The part of the steps over which the learning rate rises."""


class Laps:
    """Divides the time since its beginning into parts, so that they add up to the whole."""

    def __init__(self, began_s: float | None = None) -> None:
        """`began_s`: a time of the monotonic clock; by default now."""
        self._last_s = time.monotonic() if began_s is None else began_s
        self.parts_s: dict[str, float] = {}

    def end(self, part: str) -> None:
        """Add the time since the previous call to a part."""
        now_s = time.monotonic()
        self.parts_s[part] = self.parts_s.get(part, 0.0) + now_s - self._last_s
        self._last_s = now_s


@dataclass(frozen=True)
class RetrainingSettings:
    """How a model is retrained."""

    epochs: int = 8
    batch: int = BATCH
    seed: int = 0
    part: float = 1.0
    """The part of the samples of every class that is trained on."""
    layers: Layers = Layers.ALL
    """The layers that are trained; the others stay as they are."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 2:
            raise InputError("retraining: give at least 1 epoch and batches of at least 2")
        if not 0 < self.part <= 1:
            raise InputError(f"retraining: part is {self.part:g}; give more than 0 and at most 1")
        try:
            object.__setattr__(self, "layers", Layers(self.layers))  # a word if read from JSON
        except ValueError:
            names = ", ".join(repr(layers.value) for layers in Layers)
            raise InputError(
                f"retraining: layers is {self.layers!r}; give one of {names}"
            ) from None

    def steps(self, samples: int) -> int:
        """Training steps of all epochs on `samples` samples."""
        return self.epochs * steps_per_epoch(samples, self.batch)


@dataclass(frozen=True)
class Retrained:
    """Result of a retraining; accuracies are on held-out data of all classes seen so far."""

    accuracy_before: float
    accuracy_after: float
    """Of the best epoch's model, adopted or not."""
    accuracy_new_before: float
    """On the window's new classes alone."""
    accuracy_new_after: float
    curve: tuple[float, ...]
    """Accuracy on the validation samples after every epoch."""
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
    laps: Laps | None = None,
) -> tuple[Model, Retrained]:
    """The model that serves afterwards, and the result. `model` itself is not changed.

    `before` is its accuracy on all held-out data. The epoch that is best on the validation samples
    is kept; training ends early if later epochs are worse for long. A training whose loss or
    scores become NaN or infinite is stopped, and `model` stays in service. `laps` gets the seconds
    of its parts.
    """
    laps = laps or Laps()
    if not len(data.new) or not len(data.held_out):
        raise NoSamplesError("retraining: the window has no samples; give it some of every class")
    new_before = accuracy(model, data.held_out_new, settings.batch)
    laps.end(EVALUATION)
    training = _Training(model, data, settings, checkpoints, laps)
    stopped = ""
    while training.has_more:
        try:
            training.run_epoch(step_done)
        except DivergedError as error:
            stopped = str(error)
            break
    curve, seconds = tuple(training.curve), training.seconds
    if stopped:
        return model, Retrained(
            before, 0.0, new_before, 0.0, curve, seconds, adopted=False, stopped=stopped
        )
    best = training.best_model()
    if hasattr(best, "end_training"):
        best.end_training()  # frees GPU memory that only training needs
    judgement = judge(best, data.held_out, settings.batch)
    after = judgement.accuracy
    new_after = accuracy(best, data.held_out_new, settings.batch)
    laps.end(EVALUATION)
    # the model before may have no answer to some sample either
    if judgement.unanswered and (
        judgement.unanswered > judge(model, data.held_out, settings.batch).unanswered
    ):
        stopped = (
            f"{judgement.unanswered} of {judgement.samples} answers to held-out samples are NaN, "
            "so the previous model stays in service; lower its learning_rate"
        )
    adopted = after >= before and not stopped
    done = Retrained(before, after, new_before, new_after, curve, seconds, adopted, stopped)
    return (best if adopted else model), done


class _Training:
    """A training epoch by epoch: its model, the best epoch so far, and its checkpoints."""

    def __init__(
        self,
        model: Model,
        data: WindowData,
        settings: RetrainingSettings,
        checkpoints: Checkpoints | None,
        laps: Laps,
    ) -> None:
        """Train a copy of the model; resume from the newest checkpoint if there is one."""
        began = time.perf_counter()
        self._model, self._settings = copy.deepcopy(model), settings
        train_only(self._model, settings.layers)
        self._samples = data.training_part(settings.part, settings.seed)
        self._validation = data.validation
        self._checkpoints, self._laps, self._steps = checkpoints, laps, 0
        self._schedule = CheckpointSchedule()
        self._best: Model | None = None
        """A copy of the best epoch's model; None if the best epoch is the last one."""
        self.curve: list[float] = []
        self.seconds = 0.0
        self._resume(model)
        begin_training(self._model, self._samples, settings.seed)
        self.seconds += time.perf_counter() - began

    def _resume(self, serving: Model) -> None:
        checkpoint = self._checkpoints.newest_good() if self._checkpoints is not None else None
        if self._checkpoints is None or checkpoint is None:
            return
        curve = [*map(float, checkpoint.about["curve"])]
        if best_epoch(curve) < len(curve) - 1:
            best = copy.deepcopy(serving)
            if not self._checkpoints.load_best(best_epoch(curve), best):
                self._checkpoints.clear()  # later epochs than those of the new start
                return
            self._best = best
        self._model.load(checkpoint.weights)
        self.curve, self.seconds = curve, float(checkpoint.about["seconds"])

    @property
    def has_more(self) -> bool:
        done, epochs = len(self.curve), self._settings.epochs
        worse = done - 1 - best_epoch(self.curve) if done else 0
        return done < epochs and worse < max(_LEAST_PATIENCE, 3 * epochs // 4)

    def run_epoch(self, step_done: Callable[[], None]) -> None:
        epoch, began = len(self.curve), time.perf_counter()
        try:
            if epoch and best_epoch(self.curve) == epoch - 1:
                self._best = copy.deepcopy(self._model)
            self.curve.append(self._train(epoch, step_done))
        finally:
            self.seconds += time.perf_counter() - began
        if best_epoch(self.curve) == epoch:
            self._best = None
        if self._checkpoints is not None and self._schedule.due:
            self._schedule.time(self._write)
            self._laps.end(CHECKPOINTS)

    def best_model(self) -> Model:
        return self._model if self._best is None else self._best

    def _train(self, epoch: int, step_done: Callable[[], None]) -> float:
        """Train one epoch; the accuracy on the validation samples afterwards."""
        settings = self._settings
        epochs, batch, seed = settings.epochs, settings.batch, settings.seed

        def counted() -> None:
            self._steps += 1
            step_done()
            if self._steps == FIRST_STEPS:
                self._laps.end(FIRST)

        train_epoch(self._model, self._samples, epoch, epochs, batch, seed, counted)
        self._laps.end(EPOCHS)
        judgement = judge(self._model, self._validation, batch)
        self._laps.end(EVALUATION)
        if judgement.unanswered == judgement.samples:
            raise DivergedError(
                f"after epoch {epoch + 1} all scores are NaN, so the previous model stays in "
                "service; lower its learning_rate"
            )
        return judgement.accuracy

    def _write(self) -> None:
        assert self._checkpoints is not None
        about = {"curve": self.curve, "seconds": self.seconds}
        if self._best is not None:
            self._checkpoints.write_best(best_epoch(self.curve), self._best)
        self._checkpoints.write(len(self.curve) - 1, self._model, about)


def best_epoch(curve: Sequence[float]) -> int:
    """The last of several equally good epochs: its learning rate was lower."""
    best = max(curve)
    return max(epoch for epoch, reached in enumerate(curve) if reached == best)


def train_only(model: Model, layers: Layers) -> None:
    """Let trainings of the model change these layers only; InputError if it has no such method."""
    if hasattr(model, "train_only"):
        model.train_only(layers)
    elif layers is not Layers.ALL:
        raise InputError(
            f"retraining: {type(model).__name__} has no train_only(), so its layers cannot be "
            f"frozen; retrain all of them, not {layers.value!r}"
        )


def begin_training(model: Model, samples: Samples, seed: int) -> None:
    """Let the model prepare for a training on these samples, if it has a method for that."""
    if not hasattr(model, "begin_training"):
        return
    few = samples.at_most(_FEATURE_SAMPLES, random_stream(seed, Stream.FEATURES))
    model.begin_training(few.inputs, few.labels, np.bincount(samples.classes))


class DivergedError(MigratorError):
    """The loss or the scores of a training became NaN or infinite."""


@dataclass(frozen=True)
class Judgement:
    """Answers compared with labels."""

    samples: int
    right: int
    unanswered: int
    """Rows of answers that contain NaN; they count as wrong."""

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

    For models that do not correct for the frequency of classes: the few replayed samples of old
    classes would hardly count.
    """
    classes, counts = np.unique(labels, return_counts=True)
    per_class = -(-len(labels) // len(classes))
    chosen = []
    for label, count in zip(classes, counts, strict=True):
        rows = np.flatnonzero(labels == label)
        rounds = [draw.permutation(rows) for _ in range(-(-per_class // count))]
        chosen.append(np.concatenate(rounds)[:per_class])
    return draw.permutation(np.concatenate(chosen))[: len(labels)]


def batches(order: NDArray[np.intp], batch: int) -> Iterator[NDArray[np.intp]]:
    """The rows in batches of one size; the first rows fill the last batch.

    A GPU chooses kernels for every new size, which takes longer than many steps.
    """
    steps = steps_per_epoch(len(order), batch)
    whole = np.resize(order, steps * batch) if len(order) > batch else order
    yield from np.split(whole, steps)


def steps_per_epoch(samples: int, batch: int) -> int:
    """Training steps of one epoch."""
    return max(1, -(-samples // batch))


def train_epoch(
    model: Model,
    samples: Samples,
    epoch: int,
    epochs: int,
    batch: int,
    seed: int,
    step_done: Callable[[], None] = lambda: None,
) -> None:
    """Train one epoch of `epochs`. Seed and epoch determine the order.

    DivergedError at the first loss that is not finite.
    """
    draw = random_stream(seed, Stream.EPOCH, epoch)
    steps = steps_per_epoch(len(samples), batch)
    adjusts = hasattr(model, "begin_training")
    order = draw.permutation(len(samples)) if adjusts else balanced_order(samples.classes, draw)
    for number, rows in enumerate(batches(order, batch)):
        lr = rate(epoch * steps + number, epochs * steps, model.learning_rate)
        loss = float(model.train_step(samples.inputs[rows], samples.labels[rows], lr))
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss became {loss} in step {number + 1} of epoch {epoch + 1}, so the "
                "previous model stays in service; lower its learning_rate"
            )
        step_done()


def accuracy(model: Model, samples: Samples, batch: int = BATCH) -> float:
    """The part of the samples classified correctly; 0 without samples."""
    return judge(model, samples, batch).accuracy


def judge(model: Model, samples: Samples, batch: int) -> Judgement:
    """Compare the model's answers with the labels.

    `batch`: that of a retraining's steps, so that its evaluations need no more memory than these.
    """
    right = unanswered = 0
    failures: list[Exception] = []
    for first in range(0, len(samples), batch):
        rows = slice(first, first + batch)
        outputs = model.infer(samples.inputs[rows])
        correct, invalid = compare(model, outputs, samples.labels[rows], failures)
        right += int(correct.sum())
        unanswered += int(invalid.sum())
    if failures and len(failures) == len(samples):
        raise failures[0]  # the class is wrong, and not the labels of some client
    return Judgement(len(samples), right, unanswered)
