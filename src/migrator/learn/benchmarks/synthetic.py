"""NC-Synthetic: made-up pictures that drift; no download."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.learn.benchmarks.benchmark import (
    Benchmark,
    Material,
    Origin,
)
from migrator.learn.model import Modality
from migrator.learn.samples import Samples, Stream, concatenate, random_stream

_PIXELS, _GRAIN = 16, 4


_TURN = 0.35
"""Angle in radians by which a class's pattern turns into another from scenario to scenario."""


_NEW, _AGAIN, _HELD_OUT = 300, 60, 100
"""Samples of a new class, of an old one as it now looks, and held out of each."""


_CONTRAST, _NOISE = 12.0, 60.0


class Synthetic(Benchmark):
    """Each class is a coarse pattern under noise; scenarios also have samples of old classes."""

    def load(self, origin: Origin) -> Material:
        draw = random_stream(origin.seed, Stream.MADE_UP_PICTURES)
        size = (2, self.classes, 3, _GRAIN, _GRAIN)
        patterns = np.kron(draw.normal(size=size), np.ones((_PIXELS // _GRAIN,) * 2))
        train, held = [], []
        for scenario in range(self.scenarios):
            looks = np.cos(_TURN * scenario) * patterns[0] + np.sin(_TURN * scenario) * patterns[1]
            for label in range((scenario + 1) * self.classes_each):
                count = _NEW if self.scenario_of(label) == scenario else _AGAIN
                train.append(_noisy(looks[label], count, label, scenario, draw))
                held.append(_noisy(looks[label], _HELD_OUT, label, scenario, draw))
        return Material(concatenate(train), concatenate(held), f"made from seed {origin.seed}")


def _noisy(
    look: NDArray[np.float64], count: int, label: int, scenario: int, draw: np.random.Generator
) -> Samples:
    noise = draw.normal(size=(count, *look.shape))
    strength = draw.uniform(0.5, 1.5, (count, 1, 1, 1))
    pixels = 128 + strength * _CONTRAST * look + _NOISE * noise
    return Samples(
        pixels.clip(0, 255).astype(np.uint8),
        np.full(count, label, np.int64),
        np.full(count, scenario, np.int64),
    )


BENCHMARKS = (
    Synthetic(
        "nc-synthetic",
        scenarios=5,
        classes_each=2,
        modality=Modality.IMAGES,
        summary="made-up pictures, 2 of 10 classes at a time, slowly drifting; no download",
        drifts=True,
    ),
)
