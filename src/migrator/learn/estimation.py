"""An estimate of the accuracy after a retraining, at a small part of its cost.

A copy of the model is trained on a small sample of the window's data for a few epochs. A
saturating curve through its accuracies gives the limit that the sample alone would reach. All data
reaches further; how much further is taken from earlier retrainings, pre-training first: the part
of the errors remaining at the sample's limit that they removed. From the second window on, the
accuracy gained per new class so far counts as well, with twice the weight (docs/decisions/007).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from migrator.learn.model import Model
from migrator.learn.retraining import (
    DivergedError,
    RetrainingSettings,
    accuracy,
    begin_training,
    train_epoch,
    train_only,
)
from migrator.learn.samples import Stream, WindowData, concatenate, random_stream

EPOCHS = 4
_SHARE_PER_EPOCH = 1 / 70
"""Part of the data per epoch of the real retraining: 6% of its steps, whatever its length."""
_LARGEST_SHARE = 0.2
_JUDGED, _JUDGED_PART = (100, 256), 0.02
"""Held-out samples for evaluating the trial: bounds, and a part of all samples trained on."""
_DEFAULT_REMOVED = 0.3
"""Without earlier retrainings."""
_HARDER = 0.7
"""Factor on what pre-training removed: a window has fewer samples of old classes."""
_FADING = 0.3
"""Weight of the mean so far when a newer value is added."""
_SAMPLE_WEIGHT = 1 / 3
"""Weight of the sample's limit against that of earlier gains."""
_DECAYS = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Candidate factors by which the distance to the limit shrinks per epoch."""


@dataclass(frozen=True)
class Past:
    """A finished retraining and the limit that had been estimated from its sample."""

    limit: float
    """The limit of the sample's curve."""
    before: float
    came: float
    """The accuracy in service afterwards."""
    new_part: float
    """The part of the held-out samples that are of new classes."""

    @property
    def removed(self) -> float:
        """The part of the errors remaining at the sample's limit that training removed."""
        left = max(1 - self.limit, 0.02)
        removed = float(np.clip((self.came - self.limit) / left, -1, 1))
        return removed * _HARDER if self.new_part == 1 else removed

    @property
    def lift(self) -> float | None:
        """The accuracy gained per part of new classes; None if all or no classes were new."""
        return (self.came - self.before) / self.new_part if 0 < self.new_part < 1 else None


@dataclass(frozen=True)
class AccuracyEstimate:
    """The expected result of a retraining."""

    accuracy: float
    """Of the model in service afterwards: never below the current one."""
    limit: float
    before: float
    new_part: float
    curve: tuple[float, ...]
    """Accuracy of the trial before training and after each of its epochs."""
    seconds: float

    def past(self, came: float) -> Past:
        """The estimate together with the accuracy that was reached."""
        return Past(self.limit, self.before, came, self.new_part)


def estimate(
    model: Model,
    data: WindowData,
    before: float,
    settings: RetrainingSettings,
    past: Sequence[Past],
) -> AccuracyEstimate:
    """Estimate the accuracy after retraining; `before` is the model's on all held-out data."""
    began = time.perf_counter()
    new_part = len(data.held_out_new) / max(1, len(data.held_out))
    try:
        curve = trial_curve(model, data, settings)
    except DivergedError:
        # the retraining would diverge as well and not be adopted
        flat = (before,) * (EPOCHS + 1)
        return AccuracyEstimate(before, before, before, new_part, flat, time.perf_counter() - began)
    # the gain is measured on few samples, the base on all
    limit = float(np.clip(before + limit_of(curve) - curve[0], 0, 1))
    after = max(before, expected(limit, before, new_part, past))
    return AccuracyEstimate(after, limit, before, new_part, curve, time.perf_counter() - began)


def expected(limit: float, before: float, new_part: float, past: Sequence[Past]) -> float:
    """The accuracy that all data reaches, from the sample's limit and earlier retrainings."""
    removed = _faded([earlier.removed for earlier in past] or [_DEFAULT_REMOVED])
    by_sample = limit + removed * (1 - limit)
    lifts = [earlier.lift for earlier in past if earlier.lift is not None]
    if not lifts:
        return float(np.clip(by_sample, 0, 1))
    by_lift = before + new_part * _faded(lifts)
    return float(np.clip(_SAMPLE_WEIGHT * by_sample + (1 - _SAMPLE_WEIGHT) * by_lift, 0, 1))


def limit_of(curve: Sequence[float]) -> float:
    """The limit of the saturating curve through the first point that fits the others best."""
    values = np.asarray(curve)
    best, limit = np.inf, float(values[-1])
    for decay in _DECAYS:
        risen = 1 - decay ** np.arange(1, len(values))
        rise = float(risen @ (values[1:] - values[0]) / (risen @ risen))
        missed = float(((values[0] + rise * risen - values[1:]) ** 2).sum())
        if missed < best:
            best, limit = missed, float(values[0] + rise)
    return float(np.clip(limit, 0, 1))


def trial_curve(
    model: Model, data: WindowData, settings: RetrainingSettings, epochs: int = EPOCHS
) -> tuple[float, ...]:
    """Accuracy before a short training with these settings on a sample, and after each epoch."""
    part = min(_LARGEST_SHARE, _SHARE_PER_EPOCH * settings.epochs)
    draw = random_stream(settings.seed, Stream.ESTIMATION)
    sample = concatenate((data.new.share(part, draw), data.replay.share(part, draw)))
    trained = settings.epochs * (len(data.new) + len(data.replay))
    judged_samples = int(np.clip(_JUDGED_PART * trained, *_JUDGED))
    classes = len(np.unique(data.held_out.labels))
    judged = data.held_out.at_most(-(-judged_samples // classes), draw)
    trial = copy.deepcopy(model)
    train_only(trial, settings.layers)
    curve = [accuracy(trial, judged)]
    begin_training(trial, sample, settings.seed)
    for epoch in range(epochs):
        train_epoch(trial, sample, epoch, epochs, settings.batch, settings.seed)
        curve.append(accuracy(trial, judged))
    if hasattr(trial, "end_training"):
        trial.end_training()  # frees GPU memory before the retraining
    return tuple(curve)


def _faded(values: Sequence[float]) -> float:
    """An exponential moving mean: the latest value counts most."""
    mean = values[0]
    for value in values[1:]:
        mean = _FADING * mean + (1 - _FADING) * value
    return mean
