"""Models for workers in tests, numpy only: the first pixel of a batch says what they do."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from support.means_model import Means

HANG, RAISE, SLOW = 255, 254, 253


class Obedient(Means):
    """Scores are its one weight plus the mean of each picture, in every class."""

    def __init__(self, classes: int, seed: int) -> None:
        self.weight = np.full(classes, float(seed), np.float32)

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        return cls(classes, seed)

    def example(self, batch: int) -> NDArray[Any]:
        return np.zeros((batch, 3, 4, 4), np.uint8)

    def infer(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        command = int(inputs.flat[0])
        if command == RAISE:
            raise ValueError("asked to raise")
        if command in (HANG, SLOW):
            time.sleep(60.0 if command == HANG else 0.5)
        means = inputs.reshape(len(inputs), -1).mean(axis=1)
        scores: NDArray[np.float32] = (self.weight + means[:, None]).astype(np.float32)
        return scores

    def save(self, path: Path, *, training: bool = False) -> None:
        del training
        path.write_text(str(float(self.weight[0])), encoding="utf-8")

    def load(self, path: Path) -> None:
        # as careless as a user's own: what is read first is taken over before the rest fails
        self.weight[:] = np.nan
        self.weight[:] = float(path.read_text(encoding="utf-8"))


class Unbuildable(Obedient):
    """Raises when it is built."""

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        raise RuntimeError(f"no {classes} classes with seed {seed}")


class Deadly(Obedient):
    """Ends the process that builds it."""

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        raise SystemExit(classes + seed)


class Traced(Obedient):
    """Its weight becomes the lowest byte of the trace to which its caller belongs; 0: none."""

    def infer(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        trace: Any = sys.modules.get("opentelemetry.trace")
        if trace is not None:
            self.weight[:] = trace.get_current_span().get_span_context().trace_id % 256
        return super().infer(inputs)
