"""A trained Informer as a value: what it was trained on, how far to trust it, what it says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts
from migrator.forecast.informer.examples import past_of
from migrator.forecast.informer.network import Informer, Shape
from migrator.forecast.reaching import Reaching
from migrator.forecast.residuals import Origins, scenarios
from migrator.forecast.ridge import Ridge


def data_hash(history: Counts) -> str:
    """Which history it was."""
    return hashlib.sha256(np.ascontiguousarray(history, dtype="<f8").tobytes()).hexdigest()


@dataclass(frozen=True)
class Summary:
    """How training went; errors are of the validation part, which lies after the training part."""

    slots: int
    """Of the history it was given."""
    training_examples: int
    validation_examples: int
    best_step: int
    wape_last_mean: float
    wape_ridge: float
    wape: float


@dataclass(frozen=True, eq=False)
class TrainedInformer:
    """A network and what is needed to use it: it corrects the ridge regression."""

    network: Informer
    slot_s: float
    trust: float
    """How much of the network's correction is taken, 0 to 1, by the validation part."""
    data_hash: str
    summary: Summary

    @property
    def shape(self) -> Shape:
        """Of its network."""
        return self.network.shape

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots."""
        return scenarios(Reaching(self.points, history), history, slots, window_slots)

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the ridge regression and the correction, which ends after `shape.ahead`."""
        points = Ridge().points(history, origins, slots, window_slots)
        able = np.flatnonzero(origins >= self.shape.lookback)
        if self.trust == 0 or len(able) == 0:
            return points
        past, scale = past_of(history, origins[able], self.shape.lookback, window_slots)
        known = min(slots, self.shape.ahead)
        added = self.trust * scale[:, None] * answer(self.network, past)[:, :known]
        points[able, :known] = np.maximum(points[able, :known] + added, 0.0)
        return points


@contextmanager
def one_thread() -> Iterator[None]:
    """Products this small gain nothing from more threads, which wait for each other when busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def answer(network: Informer, past: NDArray[np.float32]) -> NDArray[np.float64]:
    """What the network says of each row, without learning from it."""
    network.eval()
    with one_thread(), torch.inference_mode():
        said: NDArray[np.float64] = network(torch.from_numpy(past)).numpy().astype(np.float64)
    return said
