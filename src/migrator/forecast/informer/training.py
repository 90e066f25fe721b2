"""Trains an Informer on a history, in order of time.

It is trained on the earlier part and validated on the later one. Examples that reach over the
border are used by neither. The same history and seed give the same network.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.forecast.forecaster import Counts, Origins
from migrator.forecast.informer.network import Informer, Shape
from migrator.forecast.informer.trained import (
    Summary,
    TrainedInformer,
    answer,
    data_hash,
    one_thread,
    past_of,
)
from migrator.forecast.ridge import Ridge, over_scale
from migrator.forecast.simple import LastMean

_VALIDATION = 0.25
"""Part of the history, at its end, that validates the network."""
_ONE_AT_A_TIME = threading.Lock()
"""One training at a time: threads share torch's random numbers and its cores."""
_LEAST_JUDGED_WINDOWS = 8
"""Least windows of the validation part: fewer cannot tell a gain from chance."""
_LEAST_GAIN = 0.002
"""Least part of the squared error that the network must remove to be used."""


@dataclass(frozen=True)
class Settings:
    """How to train; chosen on validation parts, not on the data that figures are reported of."""

    seed: int = 0
    steps: int = 400
    batch: int = 32
    rate: float = 2e-3
    weight_decay: float = 1e-2
    memory: float = 0.97
    """Of the average of weights, per step."""
    every: int = 20
    """Steps between two validations."""
    patience: int = 10
    """Validations without a gain after which training ends."""
    stride: int = 5
    """Slots between the origins of examples."""


DEFAULT = Settings()


def least_slots(shape: Shape) -> int:
    """The shortest history that can be trained on: two windows to train on, one to validate."""
    learn = shape.lookback + 2 * shape.ahead
    return max(int(np.ceil(learn / (1 - _VALIDATION))), int(np.ceil(shape.ahead / _VALIDATION)))


def split(slots: int, shape: Shape, stride: int) -> tuple[Origins, Origins]:
    """Origins for training and for validation; no forecast of the first reaches into the second."""
    border = slots - int(_VALIDATION * slots)
    learn = np.arange(shape.lookback, border - shape.ahead + 1, stride, dtype=np.intp)
    judge = np.arange(border, slots - shape.ahead + 1, 4 * stride, dtype=np.intp)
    return learn, judge


def train(
    history: Counts,
    slot_s: float,
    shape: Shape | None = None,
    settings: Settings = DEFAULT,
    step_done: Callable[[], None] = lambda: None,
) -> TrainedInformer:
    """A network trained on `history`, which must be long enough, finite and not all zeros."""
    shape = shape or Shape()
    _check(history, shape)
    learn, judge = split(len(history), shape, settings.stride)
    # one fit of the ridge regression for both, so that it grows with the history as in use
    every = np.concatenate((learn, judge))
    examples = examples_of(history, every, shape.lookback, shape.ahead)
    taught, judged = examples.rows(slice(len(learn))), examples.rows(slice(len(learn), None))
    network, best_step = _learned(taught, judged, shape, settings, step_done)
    windows = (int(judge[-1]) - int(judge[0])) // shape.ahead + 1
    trust = _trust(network, judged) if windows >= _LEAST_JUDGED_WINDOWS else 0.0
    return TrainedInformer(
        network,
        slot_s,
        trust,
        data_hash(history),
        _summary(history, network, trust, judge, judged, len(learn), best_step),
    )


def _check(history: Counts, shape: Shape) -> None:
    slots, least = len(history), least_slots(shape)
    if slots < least:
        raise InputError(f"informer: {slots} slots of history are too few; give at least {least}")
    if not np.isfinite(history).all() or (history < 0).any():
        raise InputError("informer: a slot has no number of requests; fill the gaps first")
    if not history.any():
        raise InputError("informer: no request in the history; give a part in which some came")


def _learned(
    taught: Examples,
    judged: Examples,
    shape: Shape,
    settings: Settings,
    step_done: Callable[[], None],
) -> tuple[Informer, int]:
    """The network with the least validation error, and after how many steps it was reached."""
    with _ONE_AT_A_TIME, one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        steps = _Steps(Informer(shape), taught, settings)
        best, best_step, lowest = copy.deepcopy(steps.averaged), 0, np.inf
        for number in range(1, settings.steps + 1):
            steps.take()
            step_done()
            if number % settings.every and number < settings.steps:
                continue
            missed = _missed(judged, answer(steps.averaged, judged.past))
            if missed < lowest:
                best, best_step, lowest = copy.deepcopy(steps.averaged), number, missed
            if number - best_step >= settings.patience * settings.every:
                break
    return best, best_step


class _Steps:
    """Steps of training. The result is a moving average of the weights: with only a few bursts to
    learn from, single steps jump."""

    def __init__(self, network: Informer, taught: Examples, settings: Settings) -> None:
        self.network, self.averaged = network, copy.deepcopy(network).eval()
        self.taught, self.batch, self.memory = taught, settings.batch, settings.memory
        self.draw = np.random.default_rng(settings.seed)
        weights = taught.scale / max(float(taught.scale.mean()), np.finfo(np.float64).tiny)
        # where many requests come an error counts more, but no burst counts for everything
        self.weights = np.clip(weights, 0.3, 5.0).astype(np.float32)[:, None]
        self.optimiser = torch.optim.AdamW(
            network.parameters(),
            lr=settings.rate,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimiser, partial(_rate, steps=settings.steps)
        )

    def take(self) -> None:
        """Train on one batch, drawn at random."""
        self.network.train()
        rows = self.draw.integers(len(self.taught.past), size=self.batch)
        predicted = self.network(torch.from_numpy(self.taught.past[rows]))
        wanted = torch.from_numpy(self.taught.wanted[rows])
        missed = torch.nn.functional.mse_loss(predicted, wanted, reduction="none")
        loss = (missed * torch.from_numpy(self.weights[rows])).mean()
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        self.schedule.step()
        with torch.no_grad():
            pairs = zip(self.averaged.parameters(), self.network.parameters(), strict=True)
            for average, latest in pairs:
                average.lerp_(latest, 1 - self.memory)


def _rate(step: int, steps: int) -> float:
    """Factor on the learning rate: rises over the first tenth, then falls to zero as a cosine."""
    rising = (step + 1) / max(1, steps // 10)
    return min(rising, (1 + math.cos(math.pi * step / steps)) / 2)


def _missed(judged: Examples, predicted: NDArray[np.float64]) -> float:
    """Squared error in requests."""
    added = judged.scale[:, None] * predicted
    return float(((judged.came - judged.base - added) ** 2).mean())


def _trust(network: Informer, judged: Examples) -> float:
    """The part of the correction with the least squared error; 0 if it gains too little."""
    predicted = answer(network, judged.past)
    added = judged.scale[:, None] * predicted
    power = float((added**2).sum())
    if power == 0:
        return 0.0
    trust = float(np.clip(((judged.came - judged.base) * added).sum() / power, 0.0, 1.0))
    gain = 1 - _missed(judged, trust * predicted) / max(_missed(judged, 0 * predicted), 1e-12)
    return trust if gain > _LEAST_GAIN else 0.0


def _summary(
    history: Counts,
    network: Informer,
    trust: float,
    judge: Origins,
    judged: Examples,
    learned: int,
    best_step: int,
) -> Summary:
    ahead = network.shape.ahead
    flat = LastMean().points(history, judge, ahead, ahead)
    added = trust * judged.scale[:, None] * answer(network, judged.past)

    def wape(forecast: NDArray[np.float64]) -> float:
        missed = np.abs(judged.came - np.maximum(forecast, 0.0)).mean()
        return float(missed / max(judged.came.mean(), 1e-12))

    return Summary(
        slots=len(history),
        training_examples=learned,
        validation_examples=len(judge),
        best_step=best_step,
        wape_last_mean=wape(flat),
        wape_ridge=wape(judged.base),
        wape=wape(judged.base + added),
    )


class Examples(NamedTuple):
    """One row per origin."""

    past: NDArray[np.float32]
    wanted: NDArray[np.float32]
    """Arrivals minus the forecast of the ridge regression, divided by the scale."""
    scale: NDArray[np.float64]
    base: NDArray[np.float64]
    came: NDArray[np.float64]

    def rows(self, wanted: slice) -> Examples:
        """Some of them."""
        return Examples._make(column[wanted] for column in self)


def examples_of(history: Counts, origins: Origins, lookback: int, ahead: int) -> Examples:
    """The examples at these origins; their answers are in the history."""
    past, scale = past_of(history, origins, lookback, ahead)
    base = Ridge().points(history, origins, ahead, ahead)
    received: Counts = history[origins[:, None] + np.arange(ahead)]
    wanted = over_scale(received - base, scale).astype(np.float32)
    return Examples(past, wanted, scale, base, received)
