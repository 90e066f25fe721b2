"""What a retraining will bring, before it is paid for.

A copy of the model trains on a small sample of the window's data for a few epochs; a saturating
curve through its accuracies says where the sample alone would lead. All data leads further. How
much further is learned from the retrainings before, pre-training first: which part of the errors
still left at the sample's limit they removed. From the second window on what new classes have
lifted the accuracy by so far counts too, twice as much (docs/decisions/021).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from migrator.learn.model import Model
from migrator.learn.retraining import Settings
from migrator.learn.samples import WindowData
from migrator.learn.streams import Stream, drawn
from migrator.learn.training import DivergedError, accuracy, train_epoch

EPOCHS = 4
_SHARE_PER_EPOCH = 1 / 70
"""Of the data, for every epoch of the real retraining: 6% of its steps, whatever its length."""
_LARGEST_SHARE = 0.2
_JUDGED, _JUDGED_PART = (100, 256), 0.02
"""Held-out samples the little run is judged on: so many, within that part of all training."""
_USUALLY_REMOVED = 0.3
"""Where there is no past."""
_HARDER = 0.7
"""Of the part that pre-training removes: few samples of old classes teach less than all did."""
_FADING = 0.3
"""What earlier retrainings still count once another has come."""
_BY_SAMPLE = 1 / 3
"""The weight of the sample beside that of earlier lifts."""
_DECAYS = (0.1, 0.2, 0.3, 0.4, 0.5)
"""By which the distance to the limit may shrink per epoch; slower ones fit noise."""


@dataclass(frozen=True)
class Past:
    """A retraining that has happened, next to what its sample had said."""

    limit: float
    """Where the sample's curve led."""
    before: float
    came: float
    """The accuracy that was served with afterwards."""
    new_part: float
    """Of the held-out samples: those of new classes."""

    @property
    def removed(self) -> float:
        """The part of the errors left at the sample's limit that all data removes in a window."""
        left = max(1 - self.limit, 0.02)
        removed = float(np.clip((self.came - self.limit) / left, -1, 1))
        return removed * _HARDER if self.new_part == 1 else removed

    @property
    def lift(self) -> float | None:
        """The accuracy gained per part of new classes; None where everything or nothing was new."""
        return (self.came - self.before) / self.new_part if 0 < self.new_part < 1 else None


@dataclass(frozen=True)
class Estimate:
    """What is expected of a retraining."""

    accuracy: float
    """Afterwards, of whichever model serves then: never below what serves now."""
    limit: float
    before: float
    new_part: float
    curve: tuple[float, ...]
    """Of the little run: before it and after each of its epochs."""
    seconds: float

    def past(self, came: float) -> Past:
        """This, once it is known what came."""
        return Past(self.limit, self.before, came, self.new_part)


def estimate(
    model: Model, data: WindowData, before: float, settings: Settings, past: Sequence[Past]
) -> Estimate:
    """The accuracy after retraining; `before` is the model's on all of the held-out data."""
    began = time.perf_counter()
    new_part = len(data.held_out_new) / max(1, len(data.held_out))
    try:
        curve = _little_run(model, data, settings)
    except DivergedError:
        # the retraining would leave the numbers too, and what serves would stay
        flat = (before,) * (EPOCHS + 1)
        return Estimate(before, before, before, new_part, flat, time.perf_counter() - began)
    # the gain is that of the few judged samples, its base that of all
    limit = float(np.clip(before + limit_of(curve) - curve[0], 0, 1))
    said = max(before, expected(limit, before, new_part, past))
    return Estimate(said, limit, before, new_part, curve, time.perf_counter() - began)


def expected(limit: float, before: float, new_part: float, past: Sequence[Past]) -> float:
    """From where the sample leads to where all data will, by what was seen before."""
    removed = _faded([each.removed for each in past] or [_USUALLY_REMOVED])
    by_sample = limit + removed * (1 - limit)
    lifts = [each.lift for each in past if each.lift is not None]
    if not lifts:
        return float(np.clip(by_sample, 0, 1))
    by_lift = before + new_part * _faded(lifts)
    return float(np.clip(_BY_SAMPLE * by_sample + (1 - _BY_SAMPLE) * by_lift, 0, 1))


def limit_of(curve: Sequence[float]) -> float:
    """Where a curve leads that begins at its first point and closes in on a limit."""
    values = np.asarray(curve)
    best, limit = np.inf, float(values[-1])
    for decay in _DECAYS:
        risen = 1 - decay ** np.arange(1, len(values))
        rise = float(risen @ (values[1:] - values[0]) / (risen @ risen))
        missed = float(((values[0] + rise * risen - values[1:]) ** 2).sum())
        if missed < best:
            best, limit = missed, float(values[0] + rise)
    return float(np.clip(limit, 0, 1))


def _little_run(model: Model, data: WindowData, settings: Settings) -> tuple[float, ...]:
    part = min(_LARGEST_SHARE, _SHARE_PER_EPOCH * settings.epochs)
    draw = drawn(settings.seed, Stream.ESTIMATION)
    sample = data.new.share(part, draw).joined(data.replay.share(part, draw))
    trained = settings.epochs * (len(data.new) + len(data.replay))
    judged_samples = int(np.clip(_JUDGED_PART * trained, *_JUDGED))
    classes = len(np.unique(data.held_out.labels))
    judged = data.held_out.at_most(-(-judged_samples // classes), draw)
    trial = copy.deepcopy(model)
    curve = [accuracy(trial, judged)]
    for epoch in range(EPOCHS):
        train_epoch(trial, sample, epoch, EPOCHS, settings.batch, settings.seed)
        curve.append(accuracy(trial, judged))
    return tuple(curve)


def _faded(values: Sequence[float]) -> float:
    """Their mean, the latest counting most."""
    mean = values[0]
    for each in values[1:]:
        mean = _FADING * mean + (1 - _FADING) * each
    return mean
