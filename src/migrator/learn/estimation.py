"""An estimate of the accuracy after a retraining, at a small part of its cost.

A copy of the model is trained on a small sample of the window's data for a few epochs. A
saturating curve through its accuracies gives the limit that the sample alone would reach. All data
reaches further; how much further is taken from earlier retrainings, pre-training first: the part
of the errors remaining at the sample's limit that they removed. If there are new classes, the
accuracy that retrainings gained per part of them gives a second estimate; before the first one, new
classes are taken to be learned as well as the model knows the others. The result is the mean of
both: a sample is too small for all that is new to a model which has missed several windows. What
earlier retrainings removed and gained counts for less if they had more samples
(docs/decisions/007).
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from migrator.core.training import Layers
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
_FEWEST, _LARGEST_OF_FEW = 128, 0.5
"""Samples of a trial, and the largest part of the data that it may take to have them: with fewer it
often learns nothing, and the estimate is far too low."""
_JUDGED, _JUDGED_PART = (100, 256), 0.02
"""Held-out samples for evaluating the trial: bounds, and a part of all samples trained on."""
_DEFAULT_REMOVED = 0.3
"""Without earlier retrainings."""
_DOUBT = 0.05
"""Errors that must remain for an earlier retraining to count as much as the usual part."""
_HARDER = 0.7
"""Factor on what pre-training removed: a window has fewer samples of old classes."""
_FADING = 0.3
"""Weight of the mean so far when a newer value is added."""
_HEAD_EPOCHS = 1
"""Epochs of the trial of the head only, which learns fast."""
_GROWTH = 0.33
"""Power of the samples seen with which gains grow, before any retraining has been measured."""
_GROWTHS = tuple(power / 20 for power in range(17))
_LEAST_EPOCHS, _LEAST_GAIN = 3, 0.03
"""Of a retraining whose curve tells how gains grow."""
_HEAD, _HEAD_REMOVED, _BLOCK = 0.5, 0.08, 0.85
"""The gain of the head relative to all layers where it was not tried; the part of the errors that
remain after its trial which a retraining of the head removes; and how far the last block comes from
the head towards all layers."""
_LEAST_FRACTION = 0.2
"""Below it the result of a short configuration says little about a long one."""
_ERROR, _FRACTION_SPREAD = 0.03, 0.12
"""Standard deviation of the longest configuration's estimate, and of the fraction of another."""
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
    settings: RetrainingSettings = field(default_factory=RetrainingSettings)
    """The configuration that was carried out."""
    fraction: float = 1.0
    """Its expected gain, relative to that of the longest configuration."""
    estimated: float | None = None
    """The accuracy that was expected."""
    curve: tuple[float, ...] = ()
    """Accuracy on the validation samples after every epoch."""
    samples: int = 0
    """Samples of the longest configuration; 0: unknown."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "curve", tuple(self.curve))  # a list if read from JSON

    @property
    def came_longest(self) -> float:
        """The accuracy that the longest configuration would have reached."""
        if self.fraction == 1:
            return self.came
        gained = (self.came - self.before) / max(_LEAST_FRACTION, self.fraction)
        return min(1.0, self.before + gained)

    @property
    def removed(self) -> float:
        """The part of the errors remaining at the sample's limit that training removed.

        Where hardly any remained, it says little, and the usual part counts.
        """
        gained, left = self.came_longest - self.limit, 1 - self.limit
        removed = (gained + _DOUBT * _DEFAULT_REMOVED) / (left + _DOUBT)
        removed = float(np.clip(removed, -1, 1))
        return removed * _HARDER if self.new_part == 1 else removed

    @property
    def lift(self) -> float | None:
        """The accuracy gained per part of new classes; None if all or no classes were new."""
        gained = self.came_longest - self.before
        return gained / self.new_part if 0 < self.new_part < 1 else None

    def part_gained(self, samples: int) -> float:
        """The part of its gain that a retraining on this number of samples is expected to have."""
        if not self.samples or not samples:
            return 1.0
        return math.pow(min(1.0, samples / self.samples), _GROWTH)

    @property
    def growth(self) -> float | None:
        """The power of its epochs with which the gain grew; None if its curve does not show it."""
        gains = np.asarray(self.curve) - self.before
        if self.settings.layers is Layers.HEAD:  # it learns fast, which says nothing about others
            return None
        if len(gains) < _LEAST_EPOCHS or gains[-1] < _LEAST_GAIN:
            return None
        parts = np.arange(1, len(gains) + 1) / len(gains)
        missed = [((gains - gains[-1] * parts**power) ** 2).sum() for power in _GROWTHS]
        return _GROWTHS[int(np.argmin(missed))]


@dataclass(frozen=True)
class AccuracyEstimate:
    """The expected result of a retraining with one configuration."""

    accuracy: float
    """Of the model in service afterwards: never below the current one."""
    limit: float
    before: float
    new_part: float
    curve: tuple[float, ...]
    """Accuracy of the trial before training and after each of its epochs."""
    seconds: float
    """That the estimate took, for all configurations."""
    settings: RetrainingSettings = field(default_factory=RetrainingSettings)
    fraction: float = 1.0
    """The gain relative to that of the longest configuration."""
    spread: float = 0.0
    """Standard deviation to expect of the error of `accuracy`."""
    samples: int = 0
    """Samples of the longest configuration; 0: unknown."""

    def past(self, came: float, curve: Sequence[float] = ()) -> Past:
        """The estimate together with the accuracy that was reached, and the retraining's curve."""
        return Past(
            self.limit,
            self.before,
            came,
            self.new_part,
            self.settings,
            self.fraction,
            self.accuracy,
            tuple(curve),
            self.samples,
        )


@dataclass(frozen=True)
class TrialTraining:
    """Short trainings on a sample, from which the gain of every configuration is estimated."""

    curve: tuple[float, ...]
    """Accuracy before training and after each epoch, with the longest configuration's layers."""
    head_gain: float | None = None
    """Accuracy gained by training the head only; None: not tried."""
    samples: int = 0
    """Samples of the longest configuration; 0: unknown."""
    new_before: float = 0.0
    """Accuracy before training on the window's new classes alone."""


def estimate(
    model: Model,
    data: WindowData,
    before: float,
    settings: RetrainingSettings,
    past: Sequence[Past],
) -> AccuracyEstimate:
    """Estimate the accuracy after retraining; `before` is the model's on all held-out data."""
    return estimate_each(model, data, before, [settings], past)[0]


def estimate_each(
    model: Model,
    data: WindowData,
    before: float,
    configurations: Sequence[RetrainingSettings],
    past: Sequence[Past],
) -> tuple[AccuracyEstimate, ...]:
    """Estimate the accuracy after retraining with each of the configurations, from one trial."""
    began = time.perf_counter()
    new_part = len(data.held_out_new) / max(1, len(data.held_out))
    try:
        trial = run_trial(model, data, configurations)
    except DivergedError:
        # the retraining would diverge as well and not be adopted
        flat, seconds = (before,) * (EPOCHS + 1), time.perf_counter() - began
        return tuple(
            AccuracyEstimate(before, before, before, new_part, flat, seconds, settings)
            for settings in configurations
        )
    estimates = estimates_from(trial, before, new_part, configurations, past)
    seconds = time.perf_counter() - began
    return tuple(replace(estimate, seconds=seconds) for estimate in estimates)


def estimates_from(
    trial: TrialTraining,
    before: float,
    new_part: float,
    configurations: Sequence[RetrainingSettings],
    past: Sequence[Past],
) -> tuple[AccuracyEstimate, ...]:
    """The estimates that follow from a trial and earlier retrainings."""
    longest = longest_of(configurations)
    # the gain is measured on few samples, the base on all
    limit = float(np.clip(before + limit_of(trial.curve) - trial.curve[0], 0, 1))
    whole = expected(limit, before, new_part, past, trial.samples, trial.new_before)
    best = max(before, whole)
    growth, head = growth_of(past), _head_fraction(before, best - before, trial.head_gain)
    error = typical_error(past)
    estimates = []
    for settings in configurations:
        fraction = _fraction(settings, longest, growth, head)
        others = 0.0 if settings == longest else _FRACTION_SPREAD * (best - before)
        estimates.append(
            AccuracyEstimate(
                best if fraction == 1 else before + fraction * (best - before),
                limit,
                before,
                new_part,
                trial.curve,
                0.0,
                settings,
                fraction,
                math.hypot(error, others),
                trial.samples,
            )
        )
    return tuple(estimates)


def longest_of(configurations: Sequence[RetrainingSettings]) -> RetrainingSettings:
    """The configuration with the most trained layers, and among those the most samples seen."""
    order = [*Layers]
    return max(
        configurations,
        key=lambda settings: (order.index(settings.layers), settings.epochs * settings.part),
    )


def usual_fractions(
    configurations: Sequence[RetrainingSettings], past: Sequence[Past]
) -> tuple[float, ...]:
    """The gains of the configurations relative to that of the longest, before any estimate."""
    longest, growth = longest_of(configurations), growth_of(past)
    return tuple(_fraction(settings, longest, growth, _HEAD) for settings in configurations)


def growth_of(past: Sequence[Past]) -> float:
    """The power of the samples seen with which gains grow: the usual one and those measured."""
    measured = [growth for earlier in past if (growth := earlier.growth) is not None]
    return float(np.mean([_GROWTH, *measured]))


def typical_error(past: Sequence[Past]) -> float:
    """Standard deviation of the estimate of the longest configuration."""
    squares = [
        (earlier.came - earlier.estimated) ** 2
        for earlier in past
        if earlier.estimated is not None and earlier.new_part < 1
    ]
    return math.sqrt(_faded([_ERROR**2, *squares]) if squares else _ERROR**2)


def _fraction(
    settings: RetrainingSettings, longest: RetrainingSettings, growth: float, head: float
) -> float:
    """The gain of a configuration relative to the longest one; `head`: that of the head only."""
    if settings == longest:
        return 1.0
    ratio = settings.epochs * settings.part / (longest.epochs * longest.part)
    seen = math.pow(min(1.0, ratio), growth)
    if settings.layers is longest.layers:
        return seen
    if settings.layers is Layers.HEAD:
        return seen * head
    return seen * (head + _BLOCK * (1 - head))


def _head_fraction(before: float, longest_gain: float, head_gain: float | None) -> float:
    """The gain of the head only, with as many samples seen; `head_gain`: measured on a sample."""
    if head_gain is None or longest_gain <= 0:
        return _HEAD
    limit = min(1.0, before + max(0.0, head_gain))
    gain = limit + _HEAD_REMOVED * (1 - limit) - before
    return float(np.clip(gain / longest_gain, 0, 1))


def expected(
    limit: float,
    before: float,
    new_part: float,
    past: Sequence[Past],
    samples: int = 0,
    new_before: float = 0.0,
) -> float:
    """The accuracy that all data reaches, from the sample's limit and earlier retrainings.

    `samples`: of the longest configuration; 0: unknown. `new_before`: the present accuracy on the
    new classes, which is more than 0 if the model was trained on them elsewhere.
    """
    every_removed = [earlier.removed * earlier.part_gained(samples) for earlier in past]
    removed = _faded(every_removed or [_DEFAULT_REMOVED])
    by_sample = limit + removed * (1 - limit)
    if not 0 < new_part < 1:
        return float(np.clip(by_sample, 0, 1))
    lifts = [
        earlier.lift * earlier.part_gained(samples) for earlier in past if earlier.lift is not None
    ]
    known = (before - new_part * new_before) / (1 - new_part)
    by_lift = before + new_part * _faded(lifts or [max(0.0, min(1.0, known) - new_before)])
    by_lift = min(1.0, by_lift)
    return float(np.clip((by_sample + by_lift) / 2, 0, 1))


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


def run_trial(
    model: Model, data: WindowData, configurations: Sequence[RetrainingSettings]
) -> TrialTraining:
    """Train copies on a sample for a moment; the head alone only if a configuration does so."""
    longest = longest_of(configurations)
    every = len(data.new) + len(data.replay)
    part = min(_LARGEST_SHARE, _SHARE_PER_EPOCH * longest.epochs * longest.part)
    part = max(part, min(_LARGEST_OF_FEW, _FEWEST / max(1, every)))
    draw = random_stream(longest.seed, Stream.ESTIMATION)
    sample = concatenate((data.new.share(part, draw), data.replay.share(part, draw)))
    samples = len(data.training_part(longest.part, longest.seed))
    trained = longest.epochs * longest.part * every
    judged_samples = int(np.clip(_JUDGED_PART * trained, *_JUDGED))
    classes = len(np.unique(data.held_out.classes))
    judged = data.held_out.at_most(-(-judged_samples // classes), draw)
    trial = copy.deepcopy(model)
    fewer = {settings.layers for settings in configurations} - {longest.layers}
    for layers in (*fewer, longest.layers):
        train_only(trial, layers)  # an error before anything is trained

    def judged_accuracy(network: Model) -> float:
        return accuracy(network, judged, longest.batch)

    curve = [judged_accuracy(trial)]
    new = judged.rows(np.isin(judged.classes, list(data.new_classes)))
    new_before = accuracy(trial, new, longest.batch) if len(new) else 0.0
    begin_training(trial, sample, longest.seed)
    head = copy.deepcopy(trial) if fewer else None
    for epoch in range(EPOCHS):
        train_epoch(trial, sample, epoch, EPOCHS, longest.batch, longest.seed)
        curve.append(judged_accuracy(trial))
    _end(trial)
    if head is None:
        return TrialTraining(tuple(curve), samples=samples, new_before=new_before)
    train_only(head, Layers.HEAD)
    for epoch in range(_HEAD_EPOCHS):
        train_epoch(head, sample, epoch, _HEAD_EPOCHS, longest.batch, longest.seed)
    _end(head)
    return TrialTraining(tuple(curve), judged_accuracy(head) - curve[0], samples, new_before)


def _end(trial: Model) -> None:
    if hasattr(trial, "end_training"):
        trial.end_training()  # frees GPU memory before the retraining


def _faded(values: Sequence[float]) -> float:
    """An exponential moving mean: the latest value counts most."""
    mean = values[0]
    for value in values[1:]:
        mean = _FADING * mean + (1 - _FADING) * value
    return mean
