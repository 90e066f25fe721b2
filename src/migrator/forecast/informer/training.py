"""Trains an Informer on histories, in order of time.

It is trained on the earlier part of each and validated on the later one. Examples that reach over
the border are used by neither. The same histories and seed give the same network.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from migrator.core.errors import InputError
from migrator.forecast.forecaster import Counts, Origins
from migrator.forecast.informer.network import Informer, Shape
from migrator.forecast.informer.trained import (
    Summary,
    TrainedInformer,
    data_hash,
    one_thread,
    scales,
)
from migrator.forecast.simple import last_window_mean

_VALIDATION = 0.1
"""Part of a history, at its end, that validates the network."""
_MOST_JUDGED = 512
"""Most examples of the validation parts, evenly spaced."""
_BATCH = 64
"""Examples that are validated at once."""
_ONE_AT_A_TIME = threading.Lock()
"""One training at a time: threads share torch's random numbers and its cores."""


@dataclass(frozen=True)
class Settings:
    """How to train."""

    seed: int = 0
    steps: int = 800
    batch: int = 32
    rate: float = 1e-3
    """Of Adam; it rises over the first tenth of the steps, then falls to zero as a cosine."""
    every: int = 100
    """Steps between two validations; the network with the least error is kept."""
    device: str = "cpu"


DEFAULT = Settings()


def least_slots(shape: Shape) -> int:
    """The shortest history that can be trained on: two windows to train on, one to validate."""
    learn = shape.lookback + 2 * shape.ahead
    return max(math.ceil(learn / (1 - _VALIDATION)), math.ceil(shape.ahead / _VALIDATION))


def split(slots: int, shape: Shape) -> tuple[Origins, Origins]:
    """Origins for training and for validation; no forecast of the first reaches into the second."""
    border = slots - int(_VALIDATION * slots)
    learn = np.arange(shape.lookback, border - shape.ahead + 1, dtype=np.intp)
    judge = np.arange(border, slots - shape.ahead + 1, dtype=np.intp)
    return learn, judge


def train(
    histories: Sequence[Counts],
    slot_s: float,
    shape: Shape | None = None,
    settings: Settings = DEFAULT,
    step_done: Callable[[], None] = lambda: None,
) -> TrainedInformer:
    """A network trained on histories, each of them long enough, finite and not all zeros."""
    shape = shape or Shape()
    for history in histories:
        _check(history, shape)
    examples = _Examples(histories, shape, settings.device)
    with _ONE_AT_A_TIME, one_thread(), torch.random.fork_rng(devices=_cuda(settings.device)):
        torch.manual_seed(settings.seed)
        network, best_step = _learned(examples, shape, settings, step_done)
        error = examples.wape(network)
    whole = np.concatenate(histories)
    summary = Summary(
        slots=len(whole),
        training_examples=len(examples.learn),
        validation_examples=len(examples.judge),
        best_step=best_step,
        wape_last_mean=examples.wape(None),
        wape=error,
    )
    return TrainedInformer(network.cpu(), slot_s, data_hash(whole), summary)


def _check(history: Counts, shape: Shape) -> None:
    slots, least = len(history), least_slots(shape)
    if slots < least:
        raise InputError(f"informer: {slots} slots of history are too few; give at least {least}")
    if not np.isfinite(history).all() or (history < 0).any():
        raise InputError("informer: a slot has no number of requests; fill the gaps first")
    if not history.any():
        raise InputError("informer: no request in the history; give a part in which some came")


def _cuda(device: str) -> list[torch.device]:
    return [torch.device(device)] if device.startswith("cuda") else []


class _Examples:
    """What came before and after origins, in the units of the network, on its device."""

    def __init__(self, histories: Sequence[Counts], shape: Shape, device: str) -> None:
        self.shape, self.device = shape, device
        begins = np.cumsum([0, *map(len, histories)])
        parts = [split(len(history), shape) for history in histories]
        learn, judge = (
            np.concatenate(
                [begin + part[which] for begin, part in zip(begins, parts, strict=False)]
            )
            for which in (0, 1)
        )
        chosen = np.linspace(0, len(judge) - 1, min(len(judge), _MOST_JUDGED)).astype(np.intp)
        self.learn, self.judge = learn, judge[chosen]
        self._whole = np.concatenate(histories)
        # of the history that a slot belongs to; no origin is at the end of one
        scale = np.concatenate([scales(history)[:-1] for history in histories])
        self._counts = torch.tensor(self._whole, dtype=torch.float32, device=device)
        self._scale = torch.tensor(scale, dtype=torch.float32, device=device)

    def at(self, origins: Origins) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Past, what came, and the level and scale of both."""
        now = torch.from_numpy(origins).to(self.device)
        around = torch.arange(-self.shape.lookback, self.shape.ahead, device=self.device)
        rows = self._counts[now[:, None] + around]
        level = rows[:, : self.shape.lookback].mean(dim=1, keepdim=True)
        scale = self._scale[now, None]
        deviations = (rows - level) / scale
        past, came = deviations[:, : self.shape.lookback], deviations[:, self.shape.lookback :]
        return past, came, level, scale

    def error(self, network: Informer) -> float:
        """Mean squared error of the validation, in the units of the network."""
        squares = [((came - out) ** 2).mean(dim=1) for out, came, *_ in self._validated(network)]
        return torch.cat(squares).mean().item()

    def wape(self, network: Informer | None) -> float:
        """Absolute error of the validation over what came; None: of the last window's mean."""
        ahead = self.shape.ahead
        came = self._whole[self.judge[:, None] + np.arange(ahead)]
        forecast = last_window_mean(self._whole, self.judge, ahead)[:, None]
        if network is not None:
            rows = [level + scale * out for out, _, level, scale in self._validated(network)]
            forecast = torch.cat(rows).clamp(min=0.0).cpu().numpy()
        return float(np.abs(came - forecast).mean() / max(came.mean(), 1e-12))

    def _validated(self, network: Informer) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """What the network says at the origins of the validation; what came, level and scale."""
        network.eval()
        for begin in range(0, len(self.judge), _BATCH):
            past, came, level, scale = self.at(self.judge[begin : begin + _BATCH])
            with torch.inference_mode():
                yield network(past), came, level, scale


def _learned(
    examples: _Examples, shape: Shape, settings: Settings, step_done: Callable[[], None]
) -> tuple[Informer, int]:
    """The network with the least validation error, and after how many steps it was reached."""
    network = Informer(shape).to(settings.device)
    draw = np.random.default_rng(settings.seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, partial(_rate, steps=settings.steps))
    best, best_step, lowest = copy.deepcopy(network), 0, math.inf
    for number in range(1, settings.steps + 1):
        network.train()
        past, came, *_ = examples.at(draw.choice(examples.learn, settings.batch))
        loss = torch.nn.functional.mse_loss(network(past), came)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        step_done()
        if number % settings.every == 0 or number == settings.steps:
            missed = examples.error(network)
            if missed < lowest:
                best, best_step, lowest = copy.deepcopy(network), number, missed
    return best, best_step


def _rate(step: int, steps: int) -> float:
    """Factor on the learning rate."""
    rising = (step + 1) / max(1, steps // 10)
    return min(rising, (1 + math.cos(math.pi * step / steps)) / 2)
